//! The length of a file or device.

use super::sector;
use rustix::fs::{FileType, SeekFrom};
use std::os::fd::AsFd;

/// Bytes of a regular file or block device; an error sentence if it is neither, or does not allow
/// I/O in pages.
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
