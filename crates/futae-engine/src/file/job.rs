//! One file operation, for either executor.

use crate::IoBuf;
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::sync::Arc;

/// The kind of operation.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Fill the buffer.
    Read,
    /// Write the buffer, to stable storage if `fua`.
    Write {
        /// Answer only when the data is on stable storage.
        fua: bool,
    },
    /// Flush written data to stable storage.
    Flush,
    /// The same, with all of the file's attributes.
    Sync,
    /// Change how a range is allocated.
    Allocate(FallocateFlags),
}

/// One file operation.
pub struct Job {
    pub file: Arc<File>,
    pub work: Work,
    pub offset: u64,
    pub length: u64,
    pub buffer: IoBuf,
    pub done: Box<dyn FnOnce(std::io::Result<IoBuf>) + Send>,
}

/// The error for a file that has become shorter.
pub fn ends_early() -> Error {
    Error::new(
        ErrorKind::UnexpectedEof,
        "the file has become shorter than it was when opened",
    )
}
