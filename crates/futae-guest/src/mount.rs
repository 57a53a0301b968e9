//! A mount from its start to its end.

use crate::MountError;
use crate::file::VolumeFile;
use crate::kept_by_kernel::{KernelKeeper, Running};
use crate::mountpoint::check_mountpoint;
use crate::negotiated::Negotiated;
use crate::ring::Beginning;
use crate::session::{Mounted, TransportChoice, Unmounted};
use crate::volume_directory::{FILES, FileAccess, VolumeDirectory};
use fuser::{Config, MountOption, SessionACL};
use futae_engine::{Engine, Keeper};
use futae_page_cache::{PAGE_BYTES, Pages, Watch};
use futae_policy::VolumeId;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// Threads that take requests from the kernel, if not said otherwise: with two, one reader alone has
/// half of what it has with three (lab/results/2026-11-22-fuse-transports.md).
const THREADS_DEFAULT: usize = 3;

/// How far the kernel reads ahead where it caches: by whole requests.
const READAHEAD_KIB: u32 = 1024;
/// A page: with none at all the kernel asks for each page by itself.
pub(crate) const NO_READAHEAD_KIB: u32 = 4;

/// A volume as a file.
#[derive(Clone, Debug)]
pub struct ShownFile {
    /// Which volume of the engine.
    pub volume: VolumeId,
    /// Name of the file.
    pub name: String,
}

/// How volumes are mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// An empty directory.
    pub mountpoint: PathBuf,
    /// Name of the source in the list of mounts.
    pub source: String,
    /// Let the kernel's page cache hold the file as well. Reads that hit there are several times
    /// faster, but this cache does not see them, and the data is in memory twice.
    pub kernel_cache: bool,
    /// Count adjacent reads as one access to a block, up to this many bytes: the kernel splits long requests of
    /// applications. 0: count each read.
    pub join_reads_bytes: u64,
    /// Threads that take requests from the kernel; a few, if not given.
    pub threads: Option<usize>,
    /// How requests are to come from the kernel.
    pub transport: TransportChoice,
    /// Who may open the files; only the user that mounts, if not given. A user other than root needs
    /// `user_allow_other` in `/etc/fuse.conf` for it.
    pub access: Option<FileAccess>,
}

/// Mounted volumes. Dropping it detaches the mount; [`unmount`](Self::unmount) ends it properly.
pub struct Mount {
    mountpoint: PathBuf,
    paths: Vec<PathBuf>,
    files: Vec<Arc<VolumeFile>>,
    negotiated: Negotiated,
    /// Ends before the mount does.
    keeping: Option<Running>,
    mounted: Mounted,
}

impl Mount {
    /// Mounts volumes of the engine, each as a file.
    ///
    /// # Errors
    ///
    /// [`MountError`]; nothing is left mounted then.
    pub fn start(
        engine: &Arc<Engine>,
        shown: &[ShownFile],
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        Self::start_kept_by(None, engine, shown, options)
    }

    /// The same for `pages` of the kernel's page cache, which holds the blocks in the engine's place: one block is one page. Reads
    /// that hit there never come here; `pages` tells of them. The engine is to be this mount's alone.
    ///
    /// # Errors
    ///
    /// [`MountError`]; nothing is left mounted then.
    pub fn start_kept_by_kernel(
        pages: Watch,
        engine: &Arc<Engine>,
        shown: &[ShownFile],
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        let volumes: Vec<VolumeId> = shown.iter().map(|shown| shown.volume).collect();
        let keeper = Arc::new(KernelKeeper::of_volumes(pages, &volumes, FILES));
        Self::start_kept_by(Some(keeper), engine, shown, options)
    }

    /// Watches the page cache of a mount of these volumes of the engine, once it is there.
    ///
    /// # Errors
    ///
    /// What is missing for it, and what would mend it.
    pub fn watch(engine: &Engine, shown: &[ShownFile]) -> Result<Watch, String> {
        let files = file_pages(engine, shown);
        Watch::load(pages_of(&files)).map_err(|error| format!("{error:#}"))
    }

    /// The same, and has pages copied as they leave, to be handed down with their data.
    ///
    /// # Errors
    ///
    /// As [`watch`](Self::watch), or the kernel does not let its memory be read.
    pub fn watch_copying(engine: &Engine, shown: &[ShownFile]) -> Result<Watch, String> {
        let files = file_pages(engine, shown);
        Watch::load_copying(pages_of(&files)).map_err(|error| format!("{error:#}"))
    }

    /// Bytes of memory that [`watch`](Self::watch) takes.
    #[must_use]
    pub fn watch_bytes(engine: &Engine, shown: &[ShownFile]) -> u64 {
        Watch::memory_bytes(pages_of(&file_pages(engine, shown)))
    }

    fn start_kept_by(
        keeper: Option<Arc<KernelKeeper>>,
        engine: &Arc<Engine>,
        shown: &[ShownFile],
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        check_names(shown)?;
        check_mountpoint(&options.mountpoint)?;
        let refused = |source| MountError::Mount {
            path: options.mountpoint.clone(),
            source,
        };
        // Absolute, so that it can be unmounted from any working directory.
        let mountpoint = options.mountpoint.canonicalize().map_err(refused)?;
        let file = |shown: &ShownFile| {
            let engine = Arc::clone(engine);
            Arc::new(VolumeFile::new(
                engine,
                shown.volume,
                options.join_reads_bytes,
            ))
        };
        let files: Vec<_> = shown.iter().map(file).collect();
        let names = shown.iter().map(|shown| shown.name.clone().into());
        if let Some(keeper) = &keeper {
            engine.keep_elsewhere(Arc::clone(keeper) as Arc<dyn Keeper>);
        }
        let answer = Arc::new(OnceLock::new());
        let directory = VolumeDirectory {
            files: names.zip(files.iter().cloned()).collect(),
            epoch: SystemTime::now(),
            kernel_cache: options.kernel_cache || keeper.is_some(),
            keeper: keeper.clone(),
            access: options.access,
            negotiated: Arc::clone(&answer),
            begins: Beginning::Device,
        };
        let config = config(options, files.iter().all(|file| file.read_only));
        let (mounted, notifier) =
            Mounted::start(&directory, &mountpoint, &config, options.transport)?;
        let negotiated = answer.get().copied().ok_or_else(|| {
            refused(io::Error::other(
                "the kernel did not begin the FUSE session",
            ))
        })?;
        let negotiated = Negotiated {
            transport: mounted.transport(),
            ..negotiated
        };
        if options.kernel_cache {
            set_readahead(&mountpoint, READAHEAD_KIB);
        }
        let keeping = keeper.map(|keeper| {
            // What nobody asked for would be a page that the policy has decided on.
            set_readahead(&mountpoint, NO_READAHEAD_KIB);
            let root = std::fs::metadata(&mountpoint)?;
            // The kernel is given pages only of files that it knows.
            for file in shown {
                std::fs::metadata(mountpoint.join(&file.name))?;
            }
            keeper.start(engine, notifier, &root)
        });
        let keeping = keeping.transpose().map_err(refused)?;
        let path = |shown: &ShownFile| mountpoint.join(&shown.name);
        Ok(Self {
            paths: shown.iter().map(path).collect(),
            mountpoint,
            files,
            negotiated,
            keeping,
            mounted,
        })
    }

    /// The files, in the order in which they were given.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The directory that they are in.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// What the kernel agreed to.
    #[must_use]
    pub fn negotiated(&self) -> Negotiated {
        self.negotiated
    }

    /// The longest read or write that the kernel has sent so far, in bytes.
    #[must_use]
    pub fn longest_request_bytes(&self) -> u32 {
        let longest = self.files.iter().map(|file| file.longest_request_bytes());
        longest.max().unwrap_or_default()
    }

    /// Whether the mount has ended, for example because somebody ran `umount`.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.mounted.is_over()
    }

    /// Ends the mount and brings everything onto stable storage. A mount that stays in use for
    /// two seconds is detached, and what its users write in another three is still taken.
    ///
    /// # Errors
    ///
    /// [`MountError::Unmount`], or [`MountError::Flush`] if the store failed at the end.
    pub fn unmount(mut self) -> Result<Unmounted, MountError> {
        drop(self.keeping.take());
        let ended = self.mounted.end()?;
        // Each of them, whatever comes of the others.
        let flushed: Vec<_> = self
            .files
            .iter()
            .map(|file| file.flush_and_wait())
            .collect();
        for result in flushed {
            result.map_err(MountError::Flush)?;
        }
        Ok(ended)
    }
}

fn file_pages(engine: &Engine, shown: &[ShownFile]) -> Vec<u64> {
    let pages = |shown: &ShownFile| engine.volume_bytes(shown.volume).div_ceil(PAGE_BYTES);
    shown.iter().map(pages).collect()
}

fn pages_of(files: &[u64]) -> Pages<'_> {
    Pages::Of {
        first_inode: FILES,
        files,
    }
}

fn check_names(shown: &[ShownFile]) -> Result<(), MountError> {
    for (at, file) in shown.iter().enumerate() {
        check_name(&file.name)?;
        if shown[..at].iter().any(|other| other.name == file.name) {
            return Err(MountError::NameTwice {
                name: file.name.clone(),
            });
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), MountError> {
    let odd = matches!(name, "" | "." | "..") || name.len() > 255;
    if odd || name.contains(['/', '\0']) {
        return Err(MountError::Name {
            name: name.chars().take(300).collect(),
        });
    }
    Ok(())
}

fn config(options: &MountOptions, read_only: bool) -> Config {
    let mut config = Config::default();
    // Commas separate mount options.
    let source = options.source.replace(',', "_");
    config.mount_options = vec![
        MountOption::FSName(if source.is_empty() {
            "futae".into()
        } else {
            source
        }),
        MountOption::Subtype("futae".into()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
    ];
    if read_only {
        config.mount_options.push(MountOption::RO);
    }
    if options.access.is_some() {
        config.acl = SessionACL::All;
    }
    config.n_threads = Some(options.threads.unwrap_or(THREADS_DEFAULT).max(1));
    config
}

/// How far the kernel reads ahead. Only root may, and without it reads are right
/// but slower.
pub(crate) fn set_readahead(mountpoint: &Path, kib: u32) {
    let Ok(metadata) = std::fs::metadata(mountpoint) else {
        return;
    };
    let device = metadata.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    drop(std::fs::write(setting, kib.to_string()));
}

/// The file's name for a source: its own last part, or `disk` if it has none.
#[must_use]
pub fn default_file_name(source: &OsStr) -> String {
    let name = Path::new(source).file_name().unwrap_or_default();
    let name = String::from_utf8_lossy(name.as_bytes());
    if check_name(&name).is_ok() {
        name.into_owned()
    } else {
        "disk".into()
    }
}
