//! Errors of requests, and of setting up a cache.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The kind of a request's failure. Each front end maps it to an error that its caller expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// The range is not within the volume.
    OutOfRange,
    /// The volume may not be written.
    ReadOnly,
    /// The store has no room left.
    NoSpace,
    /// The store does not support the operation.
    Unsupported,
    /// The store, or the connection to it, failed.
    Store,
    /// The cache is being shut down.
    Shutdown,
}

impl IoErrorKind {
    /// The corresponding errno, which is also the number that NBD sends.
    #[must_use]
    pub fn errno(self) -> i32 {
        match self {
            Self::OutOfRange => 22,  // EINVAL
            Self::ReadOnly => 1,     // EPERM
            Self::NoSpace => 28,     // ENOSPC
            Self::Unsupported => 95, // ENOTSUP
            Self::Store => 5,        // EIO
            Self::Shutdown => 108,   // ESHUTDOWN
        }
    }
}

/// A failed request: its kind, and a sentence that names the store and the range. It can be cloned,
/// since several requests may wait for one failed store operation.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct IoError {
    /// For callers to act on.
    pub kind: IoErrorKind,
    /// For people to read.
    pub message: Arc<str>,
    /// The operating system's error number, if there is one.
    pub os_error: Option<i32>,
}

impl IoError {
    /// An error of `kind` with a sentence that names what failed.
    #[must_use]
    pub fn new(kind: IoErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: Arc::from(message.into()),
            os_error: None,
        }
    }

    /// The operating system's error while `what` was done.
    #[must_use]
    pub fn os(what: &str, error: &io::Error) -> Self {
        let kind = match error.raw_os_error() {
            Some(27) => IoErrorKind::OutOfRange,       // EFBIG
            Some(28 | 122) => IoErrorKind::NoSpace,    // ENOSPC, EDQUOT
            Some(95 | 38) => IoErrorKind::Unsupported, // ENOTSUP, ENOSYS
            Some(1 | 30) => IoErrorKind::ReadOnly,     // EPERM, EROFS
            _ => IoErrorKind::Store,
        };
        Self {
            os_error: error.raw_os_error(),
            ..Self::new(kind, format!("{what}: {error}"))
        }
    }
}

/// Why a cache or a store could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The store cannot be opened.
    #[error("{}: {problem}", path.display())]
    Open {
        /// Which file or device.
        path: PathBuf,
        /// What is wrong, and what the user can do.
        problem: String,
    },
    /// The policy string names no policy or a wrong parameter.
    #[error(transparent)]
    Policy(#[from] futae_policy::SpecError),
    /// The policy needs to know future requests.
    #[error("policy {0:?} needs to know the future and runs in the simulator only; choose another")]
    NeedsFuture(String),
    /// A size is invalid.
    #[error("{0}")]
    Size(String),
    /// Memory for the cache cannot be allocated.
    #[error("no memory for a cache of {bytes} bytes; choose a smaller --cache")]
    Memory {
        /// Requested bytes.
        bytes: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// The decision log cannot be written.
    #[error("decision log {}: cannot be written", path.display())]
    Log {
        /// Its path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The operating system provides no random bytes for a key.
    #[error("cannot draw a key: {0}")]
    Key(io::Error),
    /// Too many volumes for one cache.
    #[error("a cache serves at most 65,535 volumes")]
    TooManyVolumes,
}
