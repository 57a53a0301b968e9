//! How long a file or device is, and what comes of one that another program has made longer.

use super::{Inner, sector};
use crate::{IoError, IoErrorKind};
use rustix::fs::{FileType, SeekFrom};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

/// Bytes of a regular file or block device; a sentence if it is neither, or cannot be read in pages.
pub fn of(file: impl AsFd) -> Result<u64, String> {
    let stat = rustix::fs::fstat(&file).map_err(|errno| errno.to_string())?;
    let file_type = FileType::from_raw_mode(stat.st_mode);
    let size_bytes = match file_type {
        FileType::RegularFile => stat.st_size as u64,
        FileType::BlockDevice => {
            rustix::fs::seek(&file, SeekFrom::End(0)).map_err(|errno| errno.to_string())?
        }
        _ => return Err("is neither a regular file nor a block device".to_owned()),
    };
    sector::check(&file, file_type, size_bytes)?;
    Ok(size_bytes)
}

impl Inner {
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Takes over a greater length.
    pub(super) fn look_again(&self) -> Result<u64, IoError> {
        let (path, before) = (self.path.display(), self.size_bytes());
        let failed =
            |problem: String| IoError::new(IoErrorKind::Unsupported, format!("{path}: {problem}"));
        let after = of(&*self.buffered).map_err(failed)?;
        if after < before {
            let problem = format!(
                "has {after} bytes, fewer than the {before} that it had; make it as long again, or longer"
            );
            return Err(failed(problem));
        }
        self.size_bytes.store(after, Ordering::Relaxed);
        self.end.move_to(after);
        Ok(after)
    }
}
