//! File I/O: by io_uring, or by a few threads if the kernel refuses it.

use super::job::Job;
use super::threads::Threads;
use super::uring::Uring;

/// The executor of jobs.
pub enum Io {
    /// By the kernel, asynchronously.
    Uring(Uring),
    /// By threads of our own.
    Threads(Threads),
}

impl Io {
    /// Uses io_uring if the kernel supports it.
    pub fn new() -> Self {
        Uring::new().map_or_else(|_| Self::Threads(Threads::new()), Self::Uring)
    }

    /// Whether io_uring is in use.
    pub fn is_uring(&self) -> bool {
        matches!(self, Self::Uring(_))
    }

    /// Its name, for reports.
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
