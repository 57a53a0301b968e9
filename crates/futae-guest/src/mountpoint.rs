//! Checks before mounting, and unmounting.

use crate::MountError;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

const FUSE_DEVICE: &str = "/dev/fuse";
/// The largest number of dead mounts stacked on one mountpoint.
const STALE_MOUNTS_MAX: usize = 8;

/// Checks whether a mount is possible here. Removes a dead mount on the mountpoint, i.e. one whose
/// process was killed.
///
/// # Errors
///
/// [`MountError::Mountpoint`] or [`MountError::NoFuse`] says what prevents the mount.
pub fn check_mountpoint(path: &Path) -> Result<(), MountError> {
    let unusable = |problem: String| MountError::Mountpoint {
        path: path.to_owned(),
        problem,
    };
    remove_stale(path)?;
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => unusable("there is no such directory; create it first".into()),
        _ => unusable(error.to_string()),
    })?;
    if !metadata.is_dir() {
        return Err(unusable(
            "is not a directory; choose an empty directory".into(),
        ));
    }
    let mut entries = fs::read_dir(path).map_err(|error| unusable(error.to_string()))?;
    if entries.next().is_some() {
        return Err(unusable("is not empty; choose an empty directory".into()));
    }
    check_fuse()
}

fn check_fuse() -> Result<(), MountError> {
    let Err(error) = OpenOptions::new().read(true).write(true).open(FUSE_DEVICE) else {
        return Ok(());
    };
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => {
            "load the module (modprobe fuse), or give the container the device \
             (--device /dev/fuse --cap-add SYS_ADMIN)"
        }
        io::ErrorKind::PermissionDenied => {
            "run as root, or let this user open it and install fusermount3"
        }
        _ => "load the module (modprobe fuse)",
    };
    Err(MountError::NoFuse(format!(
        "{FUSE_DEVICE}: {error}; {remedy}"
    )))
}

/// Removes mounts whose process has exited.
fn remove_stale(path: &Path) -> Result<(), MountError> {
    // While the mount is being torn down, the error is the second one.
    let dead = [Errno::NOTCONN, Errno::CONNABORTED].map(|errno| Some(errno.raw_os_error()));
    for _ in 0..STALE_MOUNTS_MAX {
        // The kernel may know the attributes of the root still, and answer for the dead process.
        match fs::metadata(path).and_then(|_| File::open(path)) {
            Err(error) if dead.contains(&error.raw_os_error()) => {}
            _ => return Ok(()),
        }
        if let Err(error) = detach(path) {
            let problem = format!(
                "a dead mount is in the way and cannot be removed ({error}); run: umount -l {}",
                path.display()
            );
            return Err(MountError::Mountpoint {
                path: path.to_owned(),
                problem,
            });
        }
    }
    Ok(())
}

/// Unmounts; fails with `EBUSY` while something in the mount is in use.
pub(crate) fn unmount(path: &Path) -> io::Result<()> {
    release(path, UnmountFlags::NOFOLLOW, &["-u", "-q"])
}

/// Detaches the mount from the tree now; it ends when it is no longer in use.
pub(crate) fn detach(path: &Path) -> io::Result<()> {
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    release(path, flags, &["-u", "-q", "-z"])
}

/// Unmounts with the system call as root, otherwise with the set-uid helper.
fn release(path: &Path, flags: UnmountFlags, options: &[&str]) -> io::Result<()> {
    match rustix::mount::unmount(path, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => {
            let mut helper = Command::new("fusermount3");
            helper
                .args(options)
                .arg("--")
                .arg(path)
                .stdin(Stdio::null());
            let output = helper
                .output()
                .map_err(|error| io::Error::other(format!("fusermount3: {error}")))?;
            if output.status.success() {
                return Ok(());
            }
            Err(Errno::BUSY.into())
        }
        Err(errno) => Err(errno.into()),
    }
}
