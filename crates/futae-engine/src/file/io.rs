//! One way to do file I/O: by io_uring, or by a few threads where the kernel refuses it.

use super::threads::Threads;
use super::uring::Uring;
use crate::IoBuf;
use rustix::fs::FallocateFlags;
use std::fs::File;
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

/// Where jobs are done.
pub enum Io {
    /// By the kernel, asynchronously.
    Uring(Uring),
    /// By threads of our own.
    Threads(Threads),
}

impl Io {
    /// io_uring if the kernel has it.
    pub fn new() -> Self {
        Uring::new().map_or_else(|_| Self::Threads(Threads::new()), Self::Uring)
    }

    /// Whether the kernel does the work.
    pub fn is_uring(&self) -> bool {
        matches!(self, Self::Uring(_))
    }

    /// For reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Uring(_) => "io_uring",
            Self::Threads(_) => "threads, no io_uring here",
        }
    }

    /// Starts a job and returns soon.
    pub fn start(&self, job: Job) {
        match self {
            Self::Uring(uring) => uring.start(job),
            Self::Threads(threads) => threads.start(job),
        }
    }
}
