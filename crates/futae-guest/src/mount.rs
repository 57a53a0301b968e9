//! A mount from its start to its end.

use crate::MountError;
use crate::file::VolumeFile;
use crate::mountpoint::{check_mountpoint, detach, unmount};
use crate::tree::{Granted, Tree};
use fuser::{Config, MountOption, Session, SessionUnmounter};
use futae_engine::Engine;
use futae_policy::VolumeId;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the end of a mount waits for its users before it is detached under them.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
/// How long a detached mount may take to end.
const DETACHED_PATIENCE: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Threads that take requests from the kernel, if not said otherwise.
const THREADS_DEFAULT: usize = 2;

/// How a volume is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// An empty directory.
    pub mountpoint: PathBuf,
    /// Name of the file in it.
    pub file_name: String,
    /// Name of the source in the list of mounts.
    pub source: String,
    /// Let the kernel's page cache hold the file as well. Reads that hit there are several times
    /// faster, but this cache does not see them, and the data is in memory twice.
    pub kernel_cache: bool,
    /// Count reads that lie next to each other as one access to a block, up to so many bytes:
    /// what the kernel sends of one request of the application. 0: count each.
    pub join_reads_bytes: u64,
    /// Threads that take requests from the kernel; a few, if not given.
    pub threads: Option<usize>,
}

/// How a mount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmounted {
    /// It was in use, and taken out of the tree under its users.
    pub was_busy: bool,
    /// It still is in use; what its users do from now on fails once this process ends.
    pub is_in_use: bool,
}

/// A mounted volume. Dropping it detaches the mount; [`unmount`](Self::unmount) ends it properly.
pub struct Mount {
    mountpoint: PathBuf,
    path: PathBuf,
    file: Arc<VolumeFile>,
    granted: Granted,
    /// Ends the mount, once.
    unmounter: Option<SessionUnmounter>,
    session: Option<JoinHandle<io::Result<()>>>,
}

impl Mount {
    /// Mounts a volume of the engine.
    ///
    /// # Errors
    ///
    /// [`MountError`]; nothing is left mounted then.
    pub fn start(
        engine: Arc<Engine>,
        volume: VolumeId,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        check_name(&options.file_name)?;
        check_mountpoint(&options.mountpoint)?;
        let refused = |source| MountError::Mount {
            path: options.mountpoint.clone(),
            source,
        };
        // Absolute, so that it can be unmounted from any working directory.
        let mountpoint = options.mountpoint.canonicalize().map_err(refused)?;
        let file = Arc::new(VolumeFile::new(engine, volume, options.join_reads_bytes));
        let answer = Arc::new(OnceLock::new());
        let tree = Tree {
            file: Arc::clone(&file),
            name: options.file_name.clone().into(),
            kernel_cache: options.kernel_cache,
            granted: Arc::clone(&answer),
        };
        let config = config(options, file.read_only);
        let mut session = Session::new(tree, &mountpoint, &config)
            .map_err(|error| not_permitted(&error).unwrap_or_else(|| refused(error)))?;
        let unmounter = session.unmount_callable();
        let granted = answer.get().copied().ok_or_else(|| {
            refused(io::Error::other(
                "the kernel did not begin the FUSE session",
            ))
        })?;
        let session = thread::Builder::new()
            .name("futae-mount".into())
            .spawn(move || session.run())
            .map_err(refused)?;
        if options.kernel_cache {
            raise_readahead(&mountpoint);
        }
        Ok(Self {
            path: mountpoint.join(&options.file_name),
            mountpoint,
            file,
            granted,
            unmounter: Some(unmounter),
            session: Some(session),
        })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the kernel agreed to.
    #[must_use]
    pub fn granted(&self) -> Granted {
        self.granted
    }

    /// The longest read or write that the kernel has sent so far, in bytes.
    #[must_use]
    pub fn longest_request_bytes(&self) -> u32 {
        self.file.longest_request_bytes()
    }

    /// Whether the mount has ended, for example because somebody ran `umount`.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.session.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the mount and brings everything onto stable storage. A mount that stays in use for
    /// two seconds is detached, and what its users write in another three is still taken.
    ///
    /// # Errors
    ///
    /// [`MountError::Unmount`], or [`MountError::Flush`] if the store failed at the end.
    pub fn unmount(mut self) -> Result<Unmounted, MountError> {
        let was_busy = self.release()?;
        let is_in_use = !self.wait(DETACHED_PATIENCE);
        self.file.flush_and_wait().map_err(MountError::Flush)?;
        Ok(Unmounted {
            was_busy,
            is_in_use,
        })
    }

    /// Takes the mount out of the tree; true if that had to be done under its users.
    fn release(&mut self) -> Result<bool, MountError> {
        let failed = |source| MountError::Unmount {
            path: self.mountpoint.clone(),
            source,
        };
        let Some(mut unmounter) = self.unmounter.take() else {
            return Ok(false);
        };
        if self.session.as_ref().is_none_or(JoinHandle::is_finished) {
            return Ok(false);
        }
        // It tries once, and never again: what is mounted here later is not ours.
        let mut outcome = unmounter.unmount();
        let deadline = Instant::now() + BUSY_PATIENCE;
        loop {
            match outcome {
                Ok(()) => return Ok(false),
                // Somebody else unmounted it.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(false),
                Err(error) if error.kind() != io::ErrorKind::ResourceBusy => {
                    return Err(failed(error));
                }
                Err(_) if Instant::now() < deadline => {}
                Err(_) => break,
            }
            thread::sleep(POLL_INTERVAL);
            outcome = unmount(&self.mountpoint);
        }
        detach(&self.mountpoint).map_err(failed)?;
        Ok(true)
    }

    /// Waits until the kernel has ended the session; false if it does not in time.
    fn wait(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while !self.is_over() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(POLL_INTERVAL);
        }
        if let Some(session) = self.session.take() {
            // How it ended does not matter any more.
            drop(session.join());
        }
        true
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.unmounter.take().is_some() && !self.is_over() {
            // There is nobody to tell if this fails.
            drop(detach(&self.mountpoint));
            self.wait(DETACHED_PATIENCE);
        }
    }
}

/// The error for a user or container that may not mount.
fn not_permitted(error: &io::Error) -> Option<MountError> {
    let said = error.to_string();
    let said = said.trim_end();
    let known = matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound
    ) || said.contains("fusermount");
    known.then(|| {
        MountError::NoFuse(format!(
            "this user may not mount ({said}); run as root (in a container with --cap-add \
             SYS_ADMIN), or install fusermount3"
        ))
    })
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
