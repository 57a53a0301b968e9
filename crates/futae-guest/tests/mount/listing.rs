//! Directories of a tree whose entries cannot be looked up.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::common::{Place, has_fuse, mount_tree};

/// The mount may read a directory but not search it: as on a plain one, its entries are listed, and only their attributes are
/// refused.
#[test]
fn a_directory_that_the_mount_may_not_search_is_listed_completely() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let source = place.folder.path().join("source");
    let closed = source.join("closed");
    fs::create_dir_all(closed.join("folder")).expect("directories");
    fs::write(closed.join("file"), "data").expect("written");
    fs::set_permissions(&closed, Permissions::from_mode(0o400)).expect("set");
    // Modes count for root, too, without these capabilities of this thread and of those that it starts.
    let own = capabilities(None).expect("known");
    let mut fewer = own;
    fewer
        .effective
        .remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
    set_capabilities(None, fewer).expect("given up");
    let mount = mount_tree(&place, &source);
    set_capabilities(None, own).expect("taken again");
    let above = place.mountpoint().join("closed");
    let entries = fs::read_dir(&above).expect("opened").map(|entry| {
        let entry = entry.expect("an entry");
        let is_folder = entry.file_type().expect("a kind").is_dir();
        (entry.file_name(), is_folder)
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort();
    assert_eq!(entries, [("file".into(), false), ("folder".into(), true)]);
    let refused = fs::metadata(above.join("file")).map(drop);
    let refused = refused.map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::PermissionDenied));
    mount.unmount().expect("unmounted");
}
