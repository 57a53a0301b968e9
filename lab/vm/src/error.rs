//! Why there is no guest, or no answer from it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a guest could not be booted, or did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// A program or package that is not here; a test that gets this is skipped, with the reason.
    #[error("no guests here: {0}")]
    Missing(String),
    /// Something around the guest failed.
    #[error("{what}")]
    Host {
        /// What could not be done.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// A file that should go into the guest, or a disk of it, is not there.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its memory does not hold the programs and files that it starts with, so one of them is cut off.
    #[error(
        "{memory_mib} MiB of memory do not hold what the guest starts with, so a file in it is cut off: give the guest more memory or fewer \
         files"
    )]
    TooSmall {
        /// The guest's memory, in MiB.
        memory_mib: u32,
    },
    /// The guest ended while it was needed.
    #[error("the guest ended during `{during}`; what it said last:\n{log}")]
    Ended {
        /// What it was doing.
        during: String,
        /// The end of its console and of what QEMU said.
        log: String,
    },
    /// The guest was killed because [`Plan::stopped`](crate::Plan::stopped) was set.
    #[error("the guest was killed during `{during}`, as everything was to stop")]
    Stopped {
        /// What it was doing.
        during: String,
    },
    /// The guest took too long, and was killed.
    #[error(
        "the guest was killed: its time of {limit:?} was over during `{during}`; what it said \
         last:\n{log}"
    )]
    TimedOut {
        /// What it was doing.
        during: String,
        /// How long it was allowed to live.
        limit: Duration,
        /// The end of its console and of what QEMU said.
        log: String,
    },
}

impl GuestError {
    /// Whether there can be no guests on this machine, as opposed to one that failed.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }
}

/// Says what could not be done.
pub fn host(what: impl Into<String>) -> impl FnOnce(io::Error) -> GuestError {
    let what = what.into();
    move |source| GuestError::Host { what, source }
}

/// Says which file it was.
pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> GuestError {
    let path = path.into();
    move |source| GuestError::File { path, source }
}
