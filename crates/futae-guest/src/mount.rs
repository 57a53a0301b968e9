//! A mount from its start to its end.

use crate::MountError;
use crate::file::VolumeFile;
use crate::mountpoint::check_mountpoint;
use crate::negotiated::Negotiated;
use crate::ring::Beginning;
use crate::session::{Mounted, TransportChoice, Unmounted};
use crate::volume_directory::{FileAccess, VolumeDirectory};
use fuser::{Config, MountOption, SessionACL};
use futae_engine::Engine;
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
        let answer = Arc::new(OnceLock::new());
        let directory = VolumeDirectory {
            files: names.zip(files.iter().cloned()).collect(),
            epoch: SystemTime::now(),
            kernel_cache: options.kernel_cache,
            access: options.access,
            negotiated: Arc::clone(&answer),
            begins: Beginning::Device,
        };
        let config = config(options, files.iter().all(|file| file.read_only));
        let (mounted, _) = Mounted::start(&directory, &mountpoint, &config, options.transport)?;
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
            raise_readahead(&mountpoint);
        }
        let path = |shown: &ShownFile| mountpoint.join(&shown.name);
        Ok(Self {
            paths: shown.iter().map(path).collect(),
            mountpoint,
            files,
            negotiated,
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

/// Lets the kernel read ahead by whole requests. Only root may, and without it reads are right
/// but slower.
fn raise_readahead(mountpoint: &Path) {
    let Ok(metadata) = std::fs::metadata(mountpoint) else {
        return;
    };
    let device = metadata.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    drop(std::fs::write(setting, "1024"));
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
