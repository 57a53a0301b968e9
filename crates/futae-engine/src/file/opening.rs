//! An image is opened, past the page cache and through it, and locked.

use super::end::End;
use super::incoming::{self, Possession};
use super::{holder, length, lock};
use crate::SetupError;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// An image that is open.
pub struct Opened {
    pub size_bytes: u64,
    pub end: End,
    pub direct: Option<Arc<File>>,
    pub buffered: Arc<File>,
    pub possession: Arc<Possession>,
}

/// Opens a regular file or block device. If its guest is `incoming`, another process may have it locked.
pub fn open(path: &Path, read_only: bool, incoming: bool) -> Result<Opened, SetupError> {
    let refused = |problem: String| SetupError::Open {
        path: path.to_owned(),
        problem,
    };
    let access = if read_only {
        OFlags::RDONLY
    } else {
        OFlags::RDWR
    };
    length::check_kind(path).map_err(refused)?;
    let open = |extra| rustix::fs::open(path, access | OFlags::CLOEXEC | extra, Mode::empty());
    let buffered = open(OFlags::empty()).map_err(|errno| refused(in_words(errno)))?;
    let stat = rustix::fs::fstat(&buffered).map_err(|errno| refused(errno.to_string()))?;
    let file_type = FileType::from_raw_mode(stat.st_mode);
    let size_bytes = length::of_opened(&buffered).map_err(refused)?;
    if !read_only {
        length::check_writable(&buffered).map_err(refused)?;
    }
    let direct = open(OFlags::DIRECT).ok();
    // A write that the kernel has not completed keeps its descriptor open, even after this
    // process was killed. The lock on that descriptor therefore protects the image until the
    // write has landed.
    let locked: &OwnedFd = direct.as_ref().unwrap_or(&buffered);
    let possession = if incoming {
        let fd = locked.try_clone();
        let fd = fd.map_err(|error| refused(error.to_string()))?;
        incoming::take(fd, path)?
    } else {
        lock::lock(locked, read_only).map_err(|_| refused(holder::in_use(&buffered)))?;
        Arc::new(Possession::taken())
    };
    Ok(Opened {
        size_bytes,
        end: match file_type {
            FileType::RegularFile => End::fixed(size_bytes),
            _ => End::free(),
        },
        direct: direct.map(|fd| Arc::new(File::from(fd))),
        buffered: Arc::new(File::from(buffered)),
        possession,
    })
}

fn in_words(errno: Errno) -> String {
    match errno {
        Errno::NOENT => "no such file; give the path of a disk image or block device".to_owned(),
        Errno::ACCESS | Errno::PERM => format!("{errno}; run as a user who may open it"),
        Errno::ROFS => "is on a read-only file system; export it read-only".to_owned(),
        _ => errno.to_string(),
    }
}
