//! One piece of file I/O, by either way of doing it.

use crate::IoBuf;
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::sync::Arc;

/// What to do with a file.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Fill the buffer.
    Read,
    /// Write the buffer, onto stable storage if `fua`.
    Write {
        /// Answer only when the data is on stable storage.
        fua: bool,
    },
    /// Bring written data onto stable storage.
    Flush,
    /// The same for the file's attributes as well.
    Sync,
    /// Change how a range is allocated.
    Allocate(FallocateFlags),
}

/// A piece of work on a file.
pub struct Job {
    pub file: Arc<File>,
    pub work: Work,
    pub offset: u64,
    pub length: u64,
    pub buffer: IoBuf,
    pub done: Box<dyn FnOnce(std::io::Result<IoBuf>) + Send>,
}

/// The error of a file that has become shorter than it was.
pub fn ends_early() -> Error {
    Error::new(
        ErrorKind::UnexpectedEof,
        "the file has become shorter than it was when opened",
    )
}
