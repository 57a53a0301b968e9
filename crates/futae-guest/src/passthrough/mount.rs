//! A mounted tree from its start to its end.

use super::deleted;
use super::descriptors::Shares;
use super::front::Front;
use super::place::magic;
use super::priority::Priority;
use super::state::Passthrough;
use super::weight::FileTable;
use crate::aside::Aside;
use crate::kept_by_kernel::{KernelKeeper, Running, watched_pages};
use crate::mount::{NO_READAHEAD_KIB, kind, set_readahead};
use crate::ring::Beginning;
use crate::session::{Mounted, TransportChoice, Unmounted};
use crate::spare_threads::SpareThreads;
use crate::{MountError, Negotiated, check_mountpoint};
use fuser::{Config, MountOption, SessionACL};
use futae_engine::{Engine, Keeper};
use futae_page_cache::{Pages, Watch};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Default number of threads that take requests from the kernel.
const THREADS_DEFAULT: usize = 4;

/// Options of a mounted tree.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    /// The source directory.
    pub source: PathBuf,
    /// An empty directory.
    pub mountpoint: PathBuf,
    /// Directories in the source whose files are protected.
    pub protect: Vec<PathBuf>,
    /// Whether the files in directories below those are protected as well.
    pub recursive: bool,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Number of threads that take requests from the kernel; `None`: the default.
    pub threads: Option<usize>,
    /// The transport of requests from the kernel.
    pub transport: TransportChoice,
}

/// A mounted tree. Dropping it detaches the mount; [`unmount`](Self::unmount) ends it properly.
pub struct TreeMount {
    handle: Arc<TreeHandle>,
    /// Ends before the mount does.
    keeping: Option<Running>,
    mounted: Mounted,
    /// Ends after the mount: the kernel may have it wait for a request.
    _deleted: Aside,
}

/// Use of the page cache of the file system below a tree, by unaligned reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCacheUse {
    /// Bytes read and written.
    pub bytes: u64,
    /// Ranges of files that were written and then dropped from the page cache.
    pub ranges_swept: u64,
}

/// A handle for orders to a mounted tree.
pub struct TreeHandle {
    mountpoint: PathBuf,
    source: PathBuf,
    root: OwnedFd,
    tree: Arc<Passthrough>,
}

impl TreeMount {
    /// Mounts a directory, with the data of its files in `engine`.
    ///
    /// The process then creates files with the modes that callers request, so its own `umask` is
    /// set to 0.
    ///
    /// # Errors
    ///
    /// [`MountError`]; nothing stays mounted.
    pub fn start(engine: Arc<Engine>, options: &TreeOptions) -> Result<Self, MountError> {
        Self::start_kept_by(None, engine, options)
    }

    /// Mounts the directory with the kernel's page cache, `pages`, as the keeper of the blocks: one
    /// block is one page. The kernel answers hits there itself, and `pages` reports them.
    ///
    /// # Errors
    ///
    /// [`MountError`]; nothing stays mounted.
    pub fn start_kept_by_kernel(
        pages: Watch,
        engine: Arc<Engine>,
        options: &TreeOptions,
    ) -> Result<Self, MountError> {
        let keeper = Arc::new(KernelKeeper::of_tree(
            pages,
            engine.wanted_bytes() / engine.block_bytes(),
        ));
        engine.keep_elsewhere(Arc::clone(&keeper) as Arc<dyn Keeper>);
        Self::start_kept_by(Some(keeper), engine, options)
    }

    /// Prepares to watch the page cache of a tree with this cache, once it is mounted.
    ///
    /// # Errors
    ///
    /// What is missing, and how to provide it.
    pub fn watch(engine: &Engine) -> Result<Watch, String> {
        Watch::load(pages_of(engine)).map_err(|error| format!("{error:#}"))
    }

    fn start_kept_by(
        keeper: Option<Arc<KernelKeeper>>,
        engine: Arc<Engine>,
        options: &TreeOptions,
    ) -> Result<Self, MountError> {
        let unusable = |problem: String| MountError::Source {
            path: options.source.clone(),
            problem,
        };
        let source = options.source.canonicalize();
        let source = source.map_err(|error| unusable(error.to_string()))?;
        check_mountpoint(&options.mountpoint)?;
        let refused = |error| MountError::Mount {
            path: options.mountpoint.clone(),
            source: error,
        };
        let mountpoint = options.mountpoint.canonicalize().map_err(refused)?;
        let open = || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(&source, flags, Mode::empty())
        };
        let told = |errno: Errno| unusable(errno.to_string());
        let (root, root_again) = (open().map_err(told)?, open().map_err(told)?);
        std::fs::metadata(magic(&root)).map_err(|error| {
            unusable(format!(
                "a tree is reached through /proc, mount that first ({error})"
            ))
        })?;
        let priority = Priority::new(options.recursive);
        for directory in &options.protect {
            // Relative to the shell's working directory, or from the root on.
            let here = directory.canonicalize().ok();
            let here = here.filter(|path| path.starts_with(&source));
            let path = inside(&source, &mountpoint, here.as_deref().unwrap_or(directory))?;
            priority
                .protect(&root, &path)
                .map_err(|errno| unprotectable(directory, errno))?;
        }
        let shares = Shares::raise(engine.status().capacity_blocks * engine.block_bytes());
        let (cache, kept_by) = (Arc::clone(&engine), keeper.clone());
        let tree = Passthrough::new(
            (cache, kept_by),
            root_again,
            source.clone(),
            shares,
            priority,
        );
        let tree = Arc::new(tree.map_err(told)?);
        rustix::process::umask(Mode::empty());
        let front = Front {
            tree: Arc::clone(&tree),
            begins: Beginning::Device,
            spare: SpareThreads::new(0),
        };
        let config = config(&source, options);
        let (mounted, notifier) = Mounted::start(&front, &mountpoint, &config, options.transport)?;
        let _ = tree.notifier.set(notifier.clone());
        tree.teller.start(notifier.clone()).map_err(refused)?;
        let deleted = deleted::start(&tree, notifier.clone()).map_err(refused)?;
        let keeping = keeper.map(|keeper| {
            // Read-ahead would bring pages that no request has asked for, on which the policy would
            // decide.
            set_readahead(&mountpoint, NO_READAHEAD_KIB);
            let root = std::fs::metadata(&mountpoint)?;
            keeper.start(&engine, notifier, &root)
        });
        let keeping = keeping.transpose().map_err(refused)?;
        let handle = Arc::new(TreeHandle {
            mountpoint,
            source,
            root,
            tree,
        });
        Ok(Self {
            handle,
            keeping,
            mounted,
            _deleted: deleted,
        })
    }

    /// Its mountpoint.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.handle.mountpoint
    }

    /// The features that the kernel agreed to.
    #[must_use]
    pub fn negotiated(&self) -> Option<Negotiated> {
        let negotiated = self.handle.tree.negotiated.get()?;
        Some(Negotiated {
            transport: self.mounted.transport(),
            ..*negotiated
        })
    }

    /// A handle for orders and queries.
    #[must_use]
    pub fn handle(&self) -> Arc<TreeHandle> {
        Arc::clone(&self.handle)
    }

    /// Whether the mount has ended, for example by `umount`.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.mounted.is_over()
    }

    /// Ends the mount. Dirty data has then been written to the lower file system, which may hold
    /// unsynced data.
    ///
    /// # Errors
    ///
    /// [`MountError::Unmount`], or [`MountError::Settle`] if files could not be written back.
    pub fn unmount(mut self) -> Result<Unmounted, MountError> {
        drop(self.keeping.take());
        let ended = self.mounted.end()?;
        let failed = self.handle.tree.files.settle_all();
        match failed.first() {
            None => Ok(ended),
            Some((path, errno)) => Err(MountError::Settle {
                path: path.clone(),
                others: failed.len() - 1,
                source: (*errno).into(),
            }),
        }
    }
}

impl TreeHandle {
    pub(super) fn tree(&self) -> &Passthrough {
        &self.tree
    }

    /// The source directory, by where it really is.
    #[must_use]
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// Publishes the path of the control socket, in an attribute of the mount's root.
    pub fn set_control(&self, path: PathBuf) {
        let _ = self.tree.control.set(path);
    }

    /// Protects the files directly in a directory. The path is in the mount, in the source, or
    /// relative to the root of either. With `at_once` their blocks change class now, not at their
    /// next use.
    ///
    /// # Errors
    ///
    /// [`MountError::Protect`] if it is no directory of the tree.
    pub fn protect(&self, directory: &Path, at_once: bool) -> Result<(), MountError> {
        let path = inside(&self.source, &self.mountpoint, directory)?;
        let done = self.tree.priority.protect(&self.root, &path);
        done.map_err(|errno| unprotectable(directory, errno))?;
        self.tree.judge_all_again(at_once);
        Ok(())
    }

    /// Ends the protection of a directory.
    ///
    /// # Errors
    ///
    /// [`MountError::Protect`] if it is no directory of the tree, or was not protected.
    pub fn unprotect(&self, directory: &Path) -> Result<(), MountError> {
        let path = inside(&self.source, &self.mountpoint, directory)?;
        let done = self.tree.priority.unprotect(&self.root, &path);
        if !done.map_err(|errno| unprotectable(directory, errno))? {
            return Err(MountError::Protect {
                path: directory.to_owned(),
                problem: "is not protected".to_owned(),
            });
        }
        self.tree.judge_all_again(false);
        Ok(())
    }

    /// How much data of the lower files went through the lower page cache because it could not
    /// bypass it.
    #[must_use]
    pub fn page_cache(&self) -> PageCacheUse {
        let io = self.tree.files.io();
        PageCacheUse {
            bytes: io.bytes_through_page_cache(),
            ranges_swept: io.ranges_swept(),
        }
    }

    /// The current paths of the protected directories.
    #[must_use]
    pub fn protected(&self) -> Vec<String> {
        self.tree.look_at_designated();
        self.tree.priority.paths()
    }

    /// Paths from the root on for which protection was asked for and where no directory is now. The next one there is
    /// protected.
    #[must_use]
    pub fn protected_absent(&self) -> Vec<String> {
        self.tree.priority.absent(&self.root)
    }

    /// The table of the tree's files.
    #[must_use]
    pub fn file_table(&self) -> FileTable {
        FileTable::of(&self.tree.nodes, &self.tree.files)
    }
}

fn pages_of(engine: &Engine) -> Pages<'static> {
    Pages::AtMost(watched_pages(engine.wanted_bytes() / engine.block_bytes()))
}

/// The path of a directory relative to the root.
fn inside(source: &Path, mountpoint: &Path, directory: &Path) -> Result<PathBuf, MountError> {
    if directory.is_relative() {
        return Ok(directory.to_owned());
    }
    if let Ok(path) = directory.strip_prefix(mountpoint) {
        return Ok(path.to_owned());
    }
    if let Ok(path) = directory.strip_prefix(source) {
        return Ok(path.to_owned());
    }
    let real = directory.canonicalize();
    let outside = |problem: String| MountError::Protect {
        path: directory.to_owned(),
        problem,
    };
    let real = real.map_err(|error| outside(error.to_string()))?;
    let path = real
        .strip_prefix(source)
        .or_else(|_| real.strip_prefix(mountpoint));
    path.map(Path::to_owned)
        .map_err(|_| outside(format!("is not in {}", source.display())))
}

fn unprotectable(directory: &Path, errno: Errno) -> MountError {
    let problem = match errno {
        Errno::XDEV => "leads out of the tree".to_owned(),
        Errno::NOTDIR => "is not a directory; name the directory whose files to protect".to_owned(),
        Errno::NOENT => "there is no such directory in the tree".to_owned(),
        _ => errno.to_string(),
    };
    MountError::Protect {
        path: directory.to_owned(),
        problem,
    }
}

fn config(source: &Path, options: &TreeOptions) -> Config {
    let mut config = Config::default();
    // Commas separate mount options.
    let name = source.display().to_string().replace(',', "_");
    config.mount_options = vec![
        MountOption::FSName(name),
        kind(),
        MountOption::DefaultPermissions,
    ];
    if options.read_only {
        config.mount_options.push(MountOption::RO);
    }
    // Other users are allowed only if root mounts: the kernel then checks their permissions.
    if rustix::process::geteuid().is_root() {
        config.acl = SessionACL::All;
    }
    config.n_threads = Some(options.threads.unwrap_or(THREADS_DEFAULT).max(1));
    config
}
