//! Where a file of a fixed size ends now: another program may cut it while it is in use.
//!
//! A write beyond the end would make the file longer again, and what was cut away would read as zeroes. So each write
//! asks for the size first, which costs much less than the write; reads notice by themselves, since they come short.
//! Only another program makes the file as long as it was.

use rustix::fs::fstat;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::{error, info};

/// The end of a file as it was seen last.
pub struct End {
    seen: AtomicU64,
    /// The size that a regular file is to have.
    wanted: Option<AtomicU64>,
}

impl End {
    /// Of a regular file that had this many bytes when it was opened.
    pub fn fixed(size_bytes: u64) -> Self {
        Self {
            seen: AtomicU64::new(size_bytes),
            wanted: Some(AtomicU64::new(size_bytes)),
        }
    }

    /// Of a device, or of a file that may become longer and shorter.
    pub fn free() -> Self {
        Self {
            seen: AtomicU64::new(u64::MAX),
            wanted: None,
        }
    }

    /// The file is longer from now on.
    pub fn move_to(&self, size_bytes: u64) {
        if let Some(wanted) = &self.wanted {
            wanted.store(size_bytes, Ordering::Relaxed);
            self.seen.store(size_bytes, Ordering::Relaxed);
        }
    }

    /// Looks at the size, and says so if the file has become shorter or is whole again.
    pub fn look(&self, file: &File, path: &Path) {
        let Some(wanted) = &self.wanted else {
            return;
        };
        let wanted = wanted.load(Ordering::Relaxed);
        let Ok(about) = fstat(file) else {
            return; // Then nothing is known, and the operation itself will fail.
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

    /// Refuses a range that is not all there any more.
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
