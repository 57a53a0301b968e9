//! Why a mount failed, or did not end cleanly.

use futae_engine::IoError;
use std::io;
use std::path::PathBuf;

/// The error, in a sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mountpoint cannot be used.
    #[error("mountpoint {}: {problem}", path.display())]
    Mountpoint {
        /// The mountpoint.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The source directory cannot be shown.
    #[error("{}: {problem}", path.display())]
    Source {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A directory cannot be protected.
    #[error("{}: {problem}", path.display())]
    Protect {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// This machine or user cannot mount FUSE file systems.
    #[error("{0}")]
    NoFuse(String),
    /// `--transport ring`, but FUSE over io_uring is disabled.
    #[error(
        "this kernel has FUSE over io_uring, but it is off; as root: \
         echo Y > /sys/module/fuse/parameters/enable_uring (or leave out --transport ring)"
    )]
    RingsOff,
    /// `--transport ring`, but the kernel does not support FUSE over io_uring.
    #[error(
        "this kernel has no FUSE over io_uring (no /sys/module/fuse/parameters/enable_uring); \
         it came with Linux 6.14: leave out --transport ring"
    )]
    NoRings,
    /// `--transport ring`, but setting up FUSE over io_uring failed.
    #[error("FUSE over io_uring: {0}; leave out --transport ring to mount without it")]
    Ring(#[source] io::Error),
    /// The file's name cannot be one.
    #[error("{name:?} is no file name; choose another with --name")]
    Name {
        /// The name.
        name: String,
    },
    /// Two files have the same name.
    #[error("two files are named {name:?}; give one of them another name")]
    NameTwice {
        /// The name.
        name: String,
    },
    /// The kernel refused to mount.
    #[error("cannot mount at {}", path.display())]
    Mount {
        /// The mountpoint.
        path: PathBuf,
        /// The error of the kernel or fusermount3.
        source: io::Error,
    },
    /// The mount could not be ended.
    #[error(
        "cannot unmount {} (umount -l {} detaches it)", path.display(), path.display()
    )]
    Unmount {
        /// The mountpoint.
        path: PathBuf,
        /// The error of the kernel or fusermount3.
        source: io::Error,
    },
    /// The mount ended, but the last writes may not be on stable storage.
    #[error("unmounted, but the last writes may be lost")]
    Flush(#[source] IoError),
    /// The mount ended, but files of a tree could not be written back.
    #[error(
        "unmounted, but the last writes to {} are lost ({others} other files likewise)",
        path.display()
    )]
    Settle {
        /// One of the files.
        path: PathBuf,
        /// How many others.
        others: usize,
        /// The error of the lower file system.
        source: io::Error,
    },
}
