//! A directory tree as it is, with the data of its regular files in the cache.
//!
//! | file | holds |
//! | --- | --- |
//! | `filesystem.rs` | requests of the kernel, and their answers |
//! | `direct.rs` | reads and writes among them, which may come another way |
//! | `names.rs`, `attributes.rs`, `directories.rs`, `data.rs` | what they come to |
//! | `node.rs` | the files that the kernel knows of |
//! | `contents.rs`, `lower.rs`, `seen.rs` | the data of a file: a volume of the engine, its store, and what tells our changes of it from others |
//! | `priority.rs` | which files are protected |
//! | `descriptors.rs` | how many files users may have open |
//! | `weight.rs` | what all this takes of the cache's memory |

mod attributes;
mod caller;
mod contents;
mod data;
mod descriptors;
mod direct;
mod directories;
mod filesystem;
mod log;
mod lower;
mod mount;
mod names;
mod node;
mod priority;
mod seen;
mod stat;
mod weight;

pub use attributes::control_attribute;
pub use mount::{PageCacheUse, TreeHandle, TreeMount, TreeOptions};

use crate::granted::Granted;
use contents::CachedFiles;
use descriptors::{Descriptors, Shares};
use fuser::{FileType, InitFlags, KernelConfig, Notifier};
use futae_engine::Engine;
use node::{Node, Nodes};
use priority::Priority;
use rustix::fs::{Stat, StatVfs};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// How long the kernel may believe names and attributes without asking.
pub(crate) const FRESH: Duration = Duration::from_secs(1);

/// Longest request to ask the kernel for, in bytes.
const REQUEST_BYTES: u32 = 1 << 20;

/// A directory that is open, and for which user.
struct OpenDirectory {
    user: u32,
    file: Arc<Mutex<OwnedFd>>,
}

/// Directories that are open.
#[derive(Default)]
pub(crate) struct Directories {
    opened: HashMap<u64, OpenDirectory>,
    next: u64,
}

/// All that is known of a mounted tree.
pub(crate) struct Passthrough {
    nodes: Nodes,
    files: CachedFiles,
    priority: Priority,
    weight: weight::Weight,
    descriptors: Descriptors,
    directories: Mutex<Directories>,
    log: log::Log,
    /// Where the mount takes orders, if it does.
    control: OnceLock<PathBuf>,
    notifier: OnceLock<Notifier>,
    granted: OnceLock<Granted>,
}

impl Passthrough {
    /// The tree below `root`, which is at `source`. Its files take no more than their shares of
    /// this process's descriptors.
    fn new(
        engine: Arc<Engine>,
        root: OwnedFd,
        source: PathBuf,
        shares: Shares,
        priority: Priority,
    ) -> Result<Self, Errno> {
        Ok(Self {
            nodes: Nodes::new(root, source, shares.known)?,
            files: CachedFiles::new(engine),
            priority,
            weight: weight::Weight::default(),
            descriptors: Descriptors::new(shares.users, rustix::process::geteuid().as_raw()),
            directories: Mutex::default(),
            log: log::Log::default(),
            control: OnceLock::new(),
            notifier: OnceLock::new(),
            granted: OnceLock::new(),
        })
    }

    /// Asks the kernel for what helps. Each is a wish: where it has a lower limit, that is taken.
    fn agree(&self, config: &mut KernelConfig, wants_ring: bool) {
        let wanted = [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_POSIX_ACL,
            InitFlags::FUSE_DONT_MASK,
        ];
        let granted = Granted::agree(config, REQUEST_BYTES, &wanted, wants_ring);
        let _ = self.granted.set(granted);
    }

    /// The inode number that programs see: the lower one, but for files of devices mounted below.
    fn shown_number(&self, stat: &Stat) -> u64 {
        match self.nodes.id_of(stat) {
            node::ROOT => stat.st_ino,
            id => id,
        }
    }

    fn statfs(&self, id: u64) -> Result<StatVfs, Errno> {
        let place = self.nodes.place(&self.nodes.get(id)?)?;
        rustix::fs::fstatvfs(&*place)
    }

    /// Files have come or gone: the cache has less or more beside it.
    fn weigh(&self) {
        self.weight.note(&self.nodes, &self.files);
    }

    /// Says what went wrong, once, if an operator should know.
    fn complain(&self, what: &str, id: u64, errno: Errno) {
        if let Ok(node) = self.nodes.get(id) {
            self.log.note(what, &self.nodes.path_of(&node), errno);
        }
    }

    /// A file's names have changed: so may its class.
    fn judge_again(&self, node: &Node) {
        if let Some(contents) = node.contents().filter(|contents| !contents.is_gone()) {
            let class = self.priority.class_of(&self.nodes, node);
            let engine = self.files.engine();
            engine.set_classes(&[(contents.volume(), class)], false);
        }
    }

    /// What is designated has changed: so may the class of any file.
    fn judge_all_again(&self, at_once: bool) {
        let mut classes = Vec::new();
        for node in self.nodes.with_contents() {
            if node.kind != FileType::RegularFile {
                continue;
            }
            if let Some(contents) = node.contents().filter(|contents| !contents.is_gone()) {
                let class = self.priority.class_of(&self.nodes, &node);
                classes.push((contents.volume(), class));
            }
        }
        self.files.engine().set_classes(&classes, at_once);
    }
}
