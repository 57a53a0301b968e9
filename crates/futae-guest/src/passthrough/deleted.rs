//! Files that were deleted in the source directory, and not through the mount.
//!
//! The kernel learns of that when it looks such a name up again, which may be never. Until it forgets the file, this mount has a
//! descriptor of it, and the file system below cannot use its space for others. A file server is not asked: that would be a
//! request for each file.

use super::state::Passthrough;
use crate::aside::Aside;
use fuser::{FileType, INodeNo, Notifier};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The pause between two looks at all files that have a descriptor.
const PAUSE: Duration = Duration::from_secs(5);

/// Has the kernel forget deleted files, until what this returns is dropped.
pub(super) fn start(tree: &Arc<Passthrough>, notifier: Notifier) -> io::Result<Aside> {
    let tree: Weak<Passthrough> = Arc::downgrade(tree);
    Aside::start("futae-deleted", PAUSE, move || {
        look(&*tree.upgrade()?, &notifier);
        Some(PAUSE)
    })
}

fn look(tree: &Passthrough, notifier: &Notifier) {
    for node in tree.nodes.with_places() {
        // Directories may be the current ones of programs, and take little space.
        if node.kind != FileType::RegularFile || !node.is_deleted() {
            continue;
        }
        for (parent, name) in node.names() {
            // It forgets the file with its last name, now or when programs have closed it. An error says that it has
            // forgotten the name.
            let _ = notifier.inval_entry(INodeNo(parent), &name);
        }
    }
}
