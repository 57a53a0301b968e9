//! What a guest has.

use crate::packages::{Kernel, default_cache};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How QEMU opens a disk image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostCache {
    /// Past the host's page cache (`cache=none`).
    None,
    /// Through the host's page cache (`cache=writeback`).
    Writeback,
}

/// What is behind a disk of the guest: `/dev/vda`, `/dev/vdb` and so on, in the order in which they
/// were added.
#[derive(Clone, Debug)]
pub enum Disk {
    /// A raw image, or a block device.
    Image {
        /// Where it is.
        path: PathBuf,
        /// Whether the host's page cache holds it.
        cache: HostCache,
    },
    /// An NBD export, which QEMU's own client reads.
    Nbd {
        /// Such as `nbd+unix:///disk?socket=futae.sock`.
        uri: String,
    },
    /// A vhost-user-blk device, to which QEMU connects anew when it is hung up. The guest's memory is then shared with it.
    VhostUser {
        /// The device's unix socket.
        socket: PathBuf,
    },
}

impl From<&str> for Disk {
    fn from(path: &str) -> Self {
        PathBuf::from(path).into()
    }
}

impl From<PathBuf> for Disk {
    fn from(path: PathBuf) -> Self {
        Self::Image {
            path,
            cache: HostCache::None,
        }
    }
}

/// A guest that is not running yet.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) kernel: Kernel,
    pub(crate) memory_mib: u32,
    pub(crate) preallocate: bool,
    pub(crate) balloon: bool,
    pub(crate) reports_free_pages: bool,
    pub(crate) movable: bool,
    pub(crate) disks: Vec<Disk>,
    pub(crate) ports: Vec<(String, PathBuf)>,
    pub(crate) files: BTreeMap<String, PathBuf>,
    pub(crate) modules: Vec<String>,
    pub(crate) limit: Duration,
    pub(crate) cache: PathBuf,
    pub(crate) stopped: Arc<AtomicBool>,
}

impl Plan {
    /// A guest of 512 MiB without disks, which may live for three minutes.
    #[must_use]
    pub fn new(kernel: Kernel) -> Self {
        let modules = ["virtio_pci", "virtio_console", "virtio_blk"];
        Self {
            kernel,
            memory_mib: 512,
            preallocate: false,
            balloon: false,
            reports_free_pages: false,
            movable: false,
            disks: Vec::new(),
            ports: Vec::new(),
            files: BTreeMap::new(),
            modules: modules.map(str::to_owned).into(),
            limit: Duration::from_secs(180),
            cache: default_cache(),
            stopped: Arc::default(),
        }
    }

    /// How much memory it has.
    #[must_use]
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Takes all of its memory from the host at the start, so that what the host uses later is
    /// its page cache.
    #[must_use]
    pub fn preallocated(mut self) -> Self {
        self.preallocate = true;
        self
    }

    /// Gives it a balloon, which [`Guest::monitor`](crate::Guest::monitor) can fill.
    #[must_use]
    pub fn balloon(mut self) -> Self {
        self.balloon = true;
        self.module("virtio_balloon")
    }

    /// Has the balloon give the host the pages that the guest frees.
    #[must_use]
    pub fn free_page_reporting(mut self) -> Self {
        self.reports_free_pages = true;
        self.balloon()
    }

    /// So that [`Guest::migrate`](crate::Guest::migrate) can move it, with a little more memory; see there.
    #[must_use]
    pub fn movable(mut self) -> Self {
        self.movable = true;
        self
    }

    /// Adds a disk: `/dev/vda` first.
    #[must_use]
    pub fn disk(mut self, disk: impl Into<Disk>) -> Self {
        self.disks.push(disk.into());
        self
    }

    /// Adds a virtual serial port of this name, which QEMU connects to the unix socket at `path`, and
    /// again when it is hung up. In the guest it is among `/sys/class/virtio-ports`.
    #[must_use]
    pub fn port(mut self, name: &str, path: impl Into<PathBuf>) -> Self {
        self.ports.push((name.to_owned(), path.into()));
        self
    }

    /// Puts a file of the host at `place` in the guest; a program brings its libraries along.
    #[must_use]
    pub fn file(mut self, place: &str, path: impl Into<PathBuf>) -> Self {
        self.files.insert(place.to_owned(), path.into());
        self
    }

    /// Loads a kernel module and those that it needs, such as `fuse`.
    #[must_use]
    pub fn module(mut self, name: &str) -> Self {
        self.modules.push(name.to_owned());
        self
    }

    /// How long the guest may live, boot included; then it is killed.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Where packages are kept.
    #[must_use]
    pub fn cache(mut self, place: impl Into<PathBuf>) -> Self {
        self.cache = place.into();
        self
    }

    /// Once this flag is set, the guest is killed instead of being waited for.
    #[must_use]
    pub fn stopped(mut self, flag: Arc<AtomicBool>) -> Self {
        self.stopped = flag;
        self
    }
}
