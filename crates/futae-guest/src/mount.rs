//! A mount from its start to its end.

use crate::MountError;
use crate::file::VolumeFile;
use crate::kept_by_kernel::{KernelKeeper, Running};
use crate::mapped::Teller;
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

/// Default number of threads that take requests from the kernel. With two, a single reader is half
/// as fast as with three (lab/results/2026-11-22-fuse-transports.md).
const THREADS_DEFAULT: usize = 3;

/// The kernel's read-ahead if it caches: whole requests.
const READAHEAD_KIB: u32 = 1024;
/// One page: with a read-ahead of 0 the kernel would request each page separately.
pub(crate) const NO_READAHEAD_KIB: u32 = 4;

/// A volume shown as a file.
#[derive(Clone, Debug)]
pub struct ShownFile {
    /// The volume of the engine.
    pub volume: VolumeId,
    /// Name of the file.
    pub name: String,
}

/// Options of a mount of volumes.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// An empty directory.
    pub mountpoint: PathBuf,
    /// The name of the source in the list of mounts.
    pub source: String,
    /// Lets the kernel's page cache hold the file as well. Reads that hit there are several times
    /// faster, but the engine does not see them, and the data is in memory twice.
    pub kernel_cache: bool,
    /// Counts adjacent reads of up to this many bytes as one access to a block, since the kernel
    /// splits long requests of applications. 0: counts each read.
    pub join_reads_bytes: u64,
    /// Number of threads that take requests from the kernel; `None`: the default.
    pub threads: Option<usize>,
    /// The transport of requests from the kernel.
    pub transport: TransportChoice,
    /// Who may open the files; `None`: only the mounting user. A user other than root needs
    /// `user_allow_other` in `/etc/fuse.conf` for it.
    pub access: Option<FileAccess>,
}

/// Mounted volumes. Dropping the mount detaches it; [`unmount`](Self::unmount) ends it properly.
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
    /// [`MountError`]; nothing stays mounted.
    pub fn start(
        engine: &Arc<Engine>,
        shown: &[ShownFile],
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        Self::start_kept_by(None, engine, shown, options)
    }

    /// Mounts the volumes with the kernel's page cache, `pages`, as the keeper of the blocks: one
    /// block is one page. The kernel answers hits there itself, and `pages` reports them. No other
    /// mount may use the engine.
    ///
    /// # Errors
    ///
    /// [`MountError`]; nothing stays mounted.
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

    /// Prepares to watch the page cache of a mount of these volumes, once it is mounted.
    ///
    /// # Errors
    ///
    /// What is missing, and how to provide it.
    pub fn watch(engine: &Engine, shown: &[ShownFile]) -> Result<Watch, String> {
        let files = file_pages(engine, shown);
        Watch::load(pages_of(&files)).map_err(|error| format!("{error:#}"))
    }

    /// The same, and copies pages as they leave the page cache, to demote them.
    ///
    /// # Errors
    ///
    /// As [`watch`](Self::watch), or the kernel does not allow reads of its memory.
    pub fn watch_copying(engine: &Engine, shown: &[ShownFile]) -> Result<Watch, String> {
        let files = file_pages(engine, shown);
        Watch::load_copying(pages_of(&files)).map_err(|error| format!("{error:#}"))
    }

    /// Memory that [`watch`](Self::watch) needs, in bytes.
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
        // Absolute, so that unmounting works from any working directory.
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
        let teller = Arc::new(Teller::default());
        let directory = VolumeDirectory {
            files: names.zip(files.iter().cloned()).collect(),
            epoch: SystemTime::now(),
            kernel_cache: options.kernel_cache || keeper.is_some(),
            keeper: keeper.clone(),
            teller: Arc::clone(&teller),
            access: options.access,
            negotiated: Arc::clone(&answer),
            begins: Beginning::Device,
        };
        let config = config(options, files.iter().all(|file| file.read_only));
        let (mounted, notifier) =
            Mounted::start(&directory, &mountpoint, &config, options.transport)?;
        teller.start(notifier.clone()).map_err(refused)?;
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
            // Read-ahead would bring pages that no request has asked for, on which the policy would
            // decide.
            set_readahead(&mountpoint, NO_READAHEAD_KIB);
            let root = std::fs::metadata(&mountpoint)?;
            // The kernel accepts pages only for files that it knows.
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

    /// The paths of the files, in the given order.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// The directory of the files.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// The features that the kernel agreed to.
    #[must_use]
    pub fn negotiated(&self) -> Negotiated {
        self.negotiated
    }

    /// The longest read or write request from the kernel so far, in bytes.
    #[must_use]
    pub fn longest_request_bytes(&self) -> u32 {
        let longest = self.files.iter().map(|file| file.longest_request_bytes());
        longest.max().unwrap_or_default()
    }

    /// Whether the mount has ended, for example by `umount`.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.mounted.is_over()
    }

    /// Ends the mount and writes everything to stable storage. A mount that stays in use for two
    /// seconds is detached; writes of its users in the next three seconds are still accepted.
    ///
    /// # Errors
    ///
    /// [`MountError::Unmount`], or [`MountError::Flush`] if the store failed at the end.
    pub fn unmount(mut self) -> Result<Unmounted, MountError> {
        drop(self.keeping.take());
        let ended = self.mounted.end()?;
        // All of them, even if some fail.
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
        kind(),
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

/// The option by which a mount has the type `fuse.futae`. Without it mount(8) takes the source of a mount for a command, and runs it at a remount.
pub(crate) fn kind() -> MountOption {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy();
    if knows_subtypes(&release) {
        // fuser gives `Subtype` to fusermount3 only, not to the kernel.
        MountOption::CUSTOM("subtype=futae".into())
    } else {
        MountOption::Subtype("futae".into())
    }
}

/// Whether a kernel of this release takes the option `subtype`: since Linux 5.5. Earlier ones refuse to mount with it.
fn knows_subtypes(release: &str) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok());
    let version: (Option<u32>, Option<u32>) = (next(), next());
    version >= (Some(5), Some(5))
}

/// Sets the kernel's read-ahead. Only root may; without it reads are correct but slower.
pub(crate) fn set_readahead(mountpoint: &Path, kib: u32) {
    let Ok(metadata) = std::fs::metadata(mountpoint) else {
        return;
    };
    let device = metadata.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    drop(std::fs::write(setting, kib.to_string()));
}

/// The default name of a source's file: the last component of its path, or `disk` if it has none.
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

#[cfg(test)]
mod tests {
    use super::knows_subtypes;

    #[test]
    fn subtypes_are_known_since_linux_5_5() {
        for release in ["5.5.0", "5.10.0-28-amd64", "6.1", "10.0-rc1"] {
            assert!(knows_subtypes(release), "{release}");
        }
        for release in ["4.18.0-553.el8", "5.4.0", "5", ""] {
            assert!(!knows_subtypes(release), "{release}");
        }
    }
}
