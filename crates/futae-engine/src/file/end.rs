//! The current end of a fixed-size file: another program may truncate it while it is in use.
//!
//! A write beyond the end would extend the file again, and the truncated part would read as zeroes.
//! Each write therefore checks the size first, which costs much less than the write. Reads detect
//! truncation themselves, as short reads. futae never restores the length; only another program
//! can.

use rustix::fs::fstat;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::{error, info};

/// The last known end of a file.
pub struct End {
    seen: AtomicU64,
    /// The size that a regular file should have.
    wanted: Option<AtomicU64>,
}

impl End {
    /// For a regular file that had this many bytes when it was opened.
    pub fn fixed(size_bytes: u64) -> Self {
        Self {
            seen: AtomicU64::new(size_bytes),
            wanted: Some(AtomicU64::new(size_bytes)),
        }
    }

    /// For a device, or for a file whose size may change.
    pub fn free() -> Self {
        Self {
            seen: AtomicU64::new(u64::MAX),
            wanted: None,
        }
    }

    /// The file has become longer.
    pub fn move_to(&self, size_bytes: u64) {
        if let Some(wanted) = &self.wanted {
            wanted.store(size_bytes, Ordering::Relaxed);
            self.seen.store(size_bytes, Ordering::Relaxed);
        }
    }

    /// Checks the size, and logs if the file has been truncated or has its full length again.
    pub fn look(&self, file: &File, path: &Path) {
        let Some(wanted) = &self.wanted else {
            return;
        };
        let wanted = wanted.load(Ordering::Relaxed);
        let Ok(about) = fstat(file) else {
            return; // The size is unknown; the operation itself will fail.
        };
        let now = wanted.min(about.st_size as u64);
        if now == self.seen.load(Ordering::Relaxed) {
            return;
        }
        let before = self.seen.swap(now, Ordering::Relaxed);
        let path = path.display();
        if now < before {
            error!(
                "{path}: another program has cut it to {now} bytes; what lay behind that fails until it has {wanted} \
                 bytes again"
            );
        } else if now == wanted && now > before {
            info!("{path}: has {wanted} bytes again");
        }
    }

    /// Refuses a range that is not entirely within the file any more.
    pub fn check(&self, offset: u64, length: u64) -> Result<(), Error> {
        let end = self.seen.load(Ordering::Relaxed);
        if offset.saturating_add(length) <= end {
            return Ok(());
        }
        let message =
            format!("the file has been cut to {end} bytes by another program; restore it");
        Err(Error::new(ErrorKind::UnexpectedEof, message))
    }
}
