//! The length of a file or device.

use super::sector;
use rustix::fs::{FileType, SeekFrom, Stat};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// Bytes of a regular file or block device; an error sentence if it is neither, is empty, or does not allow
/// I/O in pages.
pub fn of_opened(file: impl AsFd) -> Result<u64, String> {
    match of(file)? {
        0 => Err("is empty; give it a size first (truncate -s SIZE)".to_owned()),
        size_bytes => Ok(size_bytes),
    }
}

/// An error sentence if a block device refuses writes, which its opening for writing does not show.
pub fn check_writable(file: impl AsFd) -> Result<(), String> {
    let stat = rustix::fs::fstat(&file).map_err(|errno| errno.to_string())?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return Ok(());
    }
    let (major, minor) = (
        rustix::fs::major(stat.st_rdev),
        rustix::fs::minor(stat.st_rdev),
    );
    // Without sysfs the first write shows it.
    let says = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    match says.is_ok_and(|says| says.trim() == "1") {
        true => Err("is a read-only device; export it read-only".to_owned()),
        false => Ok(()),
    }
}

/// Bytes now of a file that was opened at `path` and had `before`; an error sentence if it has fewer, or if another
/// file has taken its place there, of which nobody reads here.
pub fn again(file: &File, path: &Path, before: u64) -> Result<u64, String> {
    let (ours, there) = (rustix::fs::fstat(file), rustix::fs::stat(path));
    if let (Ok(ours), Ok(there)) = (ours, there)
        && which(&ours) != which(&there)
    {
        return Err(
            "is another file now than the one that is served; remove the export and add it again to serve the new one"
                .to_owned(),
        );
    }
    let after = of(file)?;
    if after < before {
        return Err(format!(
            "has {after} bytes, fewer than the {before} that it had; make it as long again, or longer"
        ));
    }
    Ok(after)
}

/// What tells files, or devices, from each other.
fn which(stat: &Stat) -> (u64, u64) {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => (stat.st_rdev, 0),
        _ => (stat.st_dev, stat.st_ino),
    }
}

/// As [`of_opened`], of the file at a path.
pub fn of_path(path: &Path) -> Result<u64, String> {
    check_kind(path)?;
    of_opened(File::open(path).map_err(|error| error.to_string())?)
}

/// An error sentence if a path is of a kind, such as a pipe, whose opening may wait for ever. What cannot be looked at, and a
/// directory, cannot be opened either, and `open` says why.
pub fn check_kind(path: &Path) -> Result<(), String> {
    let kind = rustix::fs::stat(path).map(|stat| FileType::from_raw_mode(stat.st_mode));
    match kind {
        Ok(FileType::RegularFile | FileType::BlockDevice | FileType::Directory) | Err(_) => Ok(()),
        Ok(_) => Err(OTHER_KIND.to_owned()),
    }
}

const OTHER_KIND: &str = "is neither a regular file nor a block device";

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
        _ => return Err(OTHER_KIND.to_owned()),
    };
    sector::check(&file, file_type, size_bytes)?;
    Ok(size_bytes)
}
