//! What failures are called: by the kernel below, by the cache, and to the kernel above.

use fuser::Errno as FuseErrno;
use futae_engine::{IoError, IoErrorKind};
use rustix::io::Errno;

/// A failed request as the kernel below or the cache calls it.
pub(crate) fn errno_of(error: &IoError) -> Errno {
    let known = error.os_error.map(Errno::from_raw_os_error);
    known.unwrap_or(match error.kind {
        IoErrorKind::OutOfRange => Errno::FBIG,
        IoErrorKind::ReadOnly => Errno::ROFS,
        IoErrorKind::NoSpace => Errno::NOSPC,
        IoErrorKind::Unsupported => Errno::OPNOTSUPP,
        IoErrorKind::Store | IoErrorKind::Shutdown => Errno::IO,
    })
}

pub(crate) fn fuse(errno: Errno) -> FuseErrno {
    FuseErrno::from_i32(errno.raw_os_error())
}

/// Whether this process, or the machine, has no descriptors left.
pub(crate) fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE)
}
