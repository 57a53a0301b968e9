//! Maps failures of the cache to error numbers for programs.

use fuser::Errno;
use futae_engine::{IoError, IoErrorKind};

/// The errno for a program. Every failure of the store is an I/O error.
pub(crate) fn errno(error: &IoError) -> Errno {
    match error.kind {
        IoErrorKind::OutOfRange => Errno::EINVAL,
        IoErrorKind::ReadOnly => Errno::EROFS,
        IoErrorKind::NoSpace => Errno::ENOSPC,
        IoErrorKind::Unsupported => Errno::EOPNOTSUPP,
        IoErrorKind::Store | IoErrorKind::Shutdown => Errno::EIO,
    }
}
