//! A FUSE session from its start to its end, for any file system.

use crate::mountpoint::{detach, unmount};
use crate::ring::{Beginning, Offer, Rings, Running, Served, offer};
use crate::{MountError, Transport};
use fuser::{BackgroundSession, Config, Notifier, Session};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::retry_on_intr;
use std::io;
use std::mem::{ManuallyDrop, replace};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long ending a mount waits for its users before it is detached.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a detached mount may take to end.
const DETACHED_TIMEOUT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of threads for requests that bypass rings. They are few, but each may wait: one more
/// thread than the smallest number.
const BESIDE_RINGS_THREADS: usize = 2;

/// The result of ending a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmounted {
    /// It was in use, and was detached from the tree.
    pub was_busy: bool,
    /// It is still in use; its users' operations fail once this process exits.
    pub is_in_use: bool,
}

/// The requested transport of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// Rings if the kernel supports them, otherwise `/dev/fuse`.
    #[default]
    Auto,
    /// `/dev/fuse`.
    Device,
    /// Rings; mounting fails without them.
    Ring,
}

/// A running session. Dropping it detaches the mount.
pub(crate) struct Mounted {
    mountpoint: PathBuf,
    /// The connection to the kernel, which ends with the mount.
    connection: OwnedFd,
    /// The number of the mounted file system.
    device: Option<(u32, u32)>,
    /// Is not dropped: fuser 0.18 would then unmount what is at the mountpoint, even if this mount has ended and another one
    /// is there. (It takes the connection for one that is alive when the kernel says that it is not; cberner/fuser#703.)
    /// What is not freed by this is its descriptor of the connection.
    session: ManuallyDrop<BackgroundSession>,
    /// Waits for the threads of the rings.
    rings: Option<JoinHandle<()>>,
    transport: Transport,
    /// This mount was to be removed from the tree, once.
    is_released: bool,
}

impl Mounted {
    /// Mounts a file system at an absolute path, and serves it on threads of its own.
    pub(crate) fn start(
        filesystem: &impl Served,
        mountpoint: &Path,
        config: &Config,
        choice: TransportChoice,
    ) -> Result<(Self, Notifier), MountError> {
        let wanted = match (choice, offer()) {
            (TransportChoice::Device, _) | (TransportChoice::Auto, Offer::Off | Offer::Unknown) => {
                false
            }
            (TransportChoice::Ring, Offer::Off) => return Err(MountError::RingsOff),
            (TransportChoice::Ring, Offer::Unknown) => return Err(MountError::NoRings),
            (TransportChoice::Auto | TransportChoice::Ring, Offer::Yes) => true,
        };
        if wanted {
            match Self::by_ring(filesystem, mountpoint, config)? {
                Ok(mounted) => return Ok(mounted),
                Err(error) if choice == TransportChoice::Ring => {
                    return Err(MountError::Ring(error));
                }
                // If io_uring is not permitted, or a limit was reached, `/dev/fuse` is used.
                Err(_) => {}
            }
        }
        let refused = |error| refused(mountpoint, error);
        let mut asking = filesystem.clone();
        asking.begin_as(Beginning::Device, config.n_threads.unwrap_or(1));
        let session = Session::new(asking, mountpoint, config).map_err(refused)?;
        Self::serve(session, mountpoint, None)
    }

    /// Mounts with rings; the error says why the kernel has none.
    fn by_ring(
        filesystem: &impl Served,
        mountpoint: &Path,
        config: &Config,
    ) -> Result<io::Result<(Self, Notifier)>, MountError> {
        let rings = match Rings::prepare(filesystem, config) {
            Ok(rings) => rings,
            Err(error) => return Ok(Err(error)),
        };
        let mut asking = filesystem.clone();
        asking.begin_as(Beginning::Ring, BESIDE_RINGS_THREADS);
        let mut config = config.clone();
        config.n_threads = Some(BESIDE_RINGS_THREADS);
        let refused = |error| refused(mountpoint, error);
        let session = Session::new(asking.clone(), mountpoint, &config).map_err(refused)?;
        if !asking.has_ring() {
            let error = io::Error::other("the kernel did not agree to it");
            return Ok(Err(error));
        }
        // If this fails, dropping the session unmounts it.
        let running = match rings.start(session.as_fd()) {
            Ok(running) => running,
            Err(error) => return Ok(Err(error)),
        };
        Self::serve(session, mountpoint, Some(running)).map(Ok)
    }

    fn serve(
        session: Session<impl Served>,
        mountpoint: &Path,
        rings: Option<Running>,
    ) -> Result<(Self, Notifier), MountError> {
        let refused = |error| refused(mountpoint, error);
        let notifier = session.notifier();
        let transport = match &rings {
            Some(_) => Transport::Ring,
            None => Transport::Device,
        };
        let connection = session.as_fd().try_clone_to_owned().map_err(refused)?;
        let rings = rings.map(|rings| {
            let thread = thread::Builder::new().name("futae-mount".into());
            thread.spawn(move || rings.join())
        });
        let rings = rings.transpose().map_err(refused)?;
        let session = ManuallyDrop::new(session.spawn().map_err(refused)?);
        let mounted = Self {
            mountpoint: mountpoint.to_owned(),
            connection,
            device: device_at(mountpoint),
            session,
            rings,
            transport,
            is_released: false,
        };
        Ok((mounted, notifier))
    }

    /// The transport of requests.
    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    /// Whether the mount has ended, for example by `umount`.
    pub(crate) fn is_over(&self) -> bool {
        self.session.guard.is_finished() && self.rings.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Whether this mount is at its mountpoint. After it was unmounted or detached from outside, another one may be there.
    fn is_there(&self) -> bool {
        let mut polled = [PollFd::new(&self.connection, PollFlags::empty())];
        let found = retry_on_intr(|| poll(&mut polled, Some(&Timespec::default())));
        let has_ended = found.is_ok() && polled[0].revents().contains(PollFlags::ERR);
        // The number of a file system that has ended may be given again.
        !has_ended && device_at(&self.mountpoint).is_none_or(|it| Some(it) == self.device)
    }

    /// Removes the mount from the tree and waits until its users are gone.
    pub(crate) fn end(&mut self) -> Result<Unmounted, MountError> {
        let was_busy = self.release()?;
        let is_in_use = !self.wait(DETACHED_TIMEOUT);
        Ok(Unmounted {
            was_busy,
            is_in_use,
        })
    }

    /// Removes the mount from the tree; true if it was still in use.
    fn release(&mut self) -> Result<bool, MountError> {
        let failed = |source| MountError::Unmount {
            path: self.mountpoint.clone(),
            source,
        };
        if replace(&mut self.is_released, true) {
            return Ok(false);
        }
        let deadline = Instant::now() + BUSY_TIMEOUT;
        while self.is_there() {
            match unmount(&self.mountpoint) {
                Ok(()) => return Ok(false),
                // It was unmounted from outside.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(false),
                Err(error) if error.kind() != io::ErrorKind::ResourceBusy => {
                    return Err(failed(error));
                }
                Err(_) if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
                Err(_) => {
                    detach(&self.mountpoint).map_err(failed)?;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Waits until the kernel has ended the session; false on timeout.
    fn wait(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while !self.is_over() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(POLL_INTERVAL);
        }
        true
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !replace(&mut self.is_released, true) && self.is_there() {
            // An error here cannot be reported.
            drop(detach(&self.mountpoint));
            self.wait(DETACHED_TIMEOUT);
        }
    }
}

/// The number of the file system at a path, without a request to that file system.
fn device_at(path: &Path) -> Option<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let stat = statx(CWD, path, flags, StatxFlags::empty()).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor))
}

fn refused(mountpoint: &Path, source: io::Error) -> MountError {
    not_permitted(&source).unwrap_or_else(|| MountError::Mount {
        path: mountpoint.to_owned(),
        source,
    })
}

/// The error if this user or container may not mount.
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
