//! The state of a mounted tree.

use super::cached::CachedFiles;
use super::descriptors::{Descriptors, Shares};
use super::log::Log;
use super::node::Node;
use super::nodes::Nodes;
use super::numbers::ROOT;
use super::priority::{Change, Priority};
use super::weight::Weight;
use crate::kept_by_kernel::KernelKeeper;
use crate::mapped::Teller;
use crate::negotiated::Negotiated;
use crate::spare_threads::Aside;
use fuser::{FileType, InitFlags, KernelConfig, Notifier};
use futae_engine::Engine;
use rustix::fs::{Stat, StatVfs};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tracing::{info, warn};

/// How long the kernel may cache names and attributes.
pub(crate) const FRESH: Duration = Duration::from_secs(1);

/// The longest request size to negotiate with the kernel, in bytes.
pub(super) const REQUEST_BYTES: u32 = 1 << 20;

/// An open directory, and its user.
pub(super) struct OpenDirectory {
    pub(super) user: u32,
    pub(super) file: Arc<Mutex<OwnedFd>>,
}

/// Open directories.
#[derive(Default)]
pub(crate) struct Directories {
    pub(super) opened: HashMap<u64, OpenDirectory>,
    pub(super) next: u64,
}

/// The state of a mounted tree.
pub(crate) struct Passthrough {
    pub(super) nodes: Nodes,
    pub(super) files: CachedFiles,
    pub(super) priority: Priority,
    pub(super) weight: Weight,
    pub(super) descriptors: Descriptors,
    pub(super) directories: Mutex<Directories>,
    pub(super) log: Log,
    /// The path of the control socket, if there is one.
    pub(super) control: OnceLock<PathBuf>,
    pub(super) notifier: OnceLock<Notifier>,
    pub(super) teller: Arc<Teller>,
    /// For what the threads that end requests find to be done.
    pub(super) aside: Aside,
    pub(super) negotiated: OnceLock<Negotiated>,
}

impl Passthrough {
    /// The tree below `root`, which is at `source`, with its data in `engine`, or in the kernel's
    /// page cache. Its files use no more than their shares of this process's descriptors.
    pub(super) fn new(
        (engine, keeper): (Arc<Engine>, Option<Arc<KernelKeeper>>),
        root: OwnedFd,
        source: PathBuf,
        shares: Shares,
        priority: Priority,
    ) -> Result<Self, Errno> {
        let aside =
            Aside::start().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        Ok(Self {
            nodes: Nodes::new(root, source, shares.known)?,
            files: CachedFiles::new(engine, keeper),
            priority,
            weight: Weight::default(),
            descriptors: Descriptors::new(shares.users, rustix::process::geteuid().as_raw()),
            directories: Mutex::default(),
            log: Log::default(),
            control: OnceLock::new(),
            notifier: OnceLock::new(),
            teller: Arc::default(),
            aside,
            negotiated: OnceLock::new(),
        })
    }

    /// Requests useful features from the kernel. If it has a lower limit, that limit applies.
    pub(super) fn agree(&self, config: &mut KernelConfig, wants_ring: bool) {
        let wanted = [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_POSIX_ACL,
            InitFlags::FUSE_DONT_MASK,
        ];
        let negotiated = Negotiated::agree(config, REQUEST_BYTES, &wanted, wants_ring);
        let _ = self.negotiated.set(negotiated);
    }

    /// The inode number that programs see: the lower one, except for files of devices mounted
    /// below.
    pub(super) fn shown_number(&self, stat: &Stat) -> u64 {
        match self.nodes.id_of(stat) {
            ROOT => stat.st_ino,
            id => id,
        }
    }

    pub(super) fn statfs(&self, id: u64) -> Result<StatVfs, Errno> {
        let place = self.nodes.place(&self.nodes.get(id)?)?;
        rustix::fs::fstatvfs(&*place)
    }

    /// Whether the file system of a file has room for data.
    pub(super) fn has_room(&self, id: u64) -> bool {
        self.statfs(id).is_ok_and(|stat| stat.f_bavail > 0)
    }

    /// The number of files has changed: adjusts the size of the cache.
    pub(super) fn weigh(&self) {
        self.weight.note(&self.nodes, &self.files);
    }

    /// Logs a failure, once, if an operator should know.
    pub(super) fn complain(&self, what: &'static str, id: u64, errno: Errno) {
        if let Ok(node) = self.nodes.get(id) {
            self.log.note(what, &self.nodes.path_of(&node), errno);
        }
    }

    /// A file's names have changed, and possibly its class.
    pub(super) fn judge_again(&self, node: &Node) {
        let contents = node.contents();
        if let Some(used) = contents.as_ref().and_then(|contents| contents.in_use()) {
            let class = self.priority.class_of(&self.nodes, node);
            let engine = self.files.engine();
            engine.set_classes(&[(used.of().volume(), class)], false);
        }
    }

    /// Designated directories may have been removed, renamed or replaced: follows, and logs what has changed.
    pub(super) fn look_at_designated(&self) {
        let Ok(root) = self.nodes.place(self.nodes.root()) else {
            return;
        };
        let changes = self.priority.look_again(&root);
        for change in &changes {
            match change {
                Change::Came(path) => {
                    let path = path.display();
                    info!(%path, "{path}: a directory has come to this protected path, and is protected");
                }
                Change::Moved { from, to } => {
                    let (from, to) = (from.display(), to.display());
                    warn!(%from, %to, "{from}: this protected directory is {to} now; it stays protected");
                }
                Change::Removed(path) => {
                    let path = path.display();
                    warn!(%path, "{path}: this protected directory was removed, and its files are not protected any more");
                }
            }
        }
        if !changes.is_empty() {
            self.judge_all_again(false);
        }
    }

    /// The designated directories have changed, and possibly the class of any file.
    pub(super) fn judge_all_again(&self, at_once: bool) {
        let (mut classes, mut in_use) = (Vec::new(), Vec::new());
        for node in self.nodes.with_contents() {
            if node.kind != FileType::RegularFile {
                continue;
            }
            let contents = node.contents();
            if let Some(used) = contents.as_ref().and_then(|contents| contents.in_use()) {
                let class = self.priority.class_of(&self.nodes, &node);
                classes.push((used.of().volume(), class));
                in_use.push(used);
            }
        }
        self.files.engine().set_classes(&classes, at_once);
    }
}
