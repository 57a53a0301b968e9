//! The upper cache, in front of applications: a FUSE mount that shows volumes of an
//! [`Engine`](futae_engine::Engine), each as one file of the volume's size.
//!
//! Every read and write becomes a request to the engine, and the thread that completes it sends the
//! answer. The number of requests in flight is thus up to the applications. The file bypasses the
//! kernel's page cache, which would only hold the same blocks a second time; `mmap`, `O_DIRECT` and
//! loop devices work nevertheless. The file's size cannot change, and no other file can be created
//! in the mount.
//!
//! This crate knows neither NBD nor image formats: the engine's store does.

mod aside;
mod errno;
mod error;
mod file;
mod kept_by_kernel;
mod lock;
mod mapped;
mod mount;
mod mountpoint;
mod negotiated;
mod one_read;
mod passthrough;
mod ring;
mod session;
mod spare_threads;
mod split_reads;
mod under_way;
#[cfg(test)]
mod until;
mod volume_data;
mod volume_directory;

pub use error::MountError;
pub use futae_page_cache::Watch;
pub use mount::{Mount, MountOptions, ShownFile, default_file_name};
pub use mountpoint::check_mountpoint;
pub use negotiated::{Negotiated, Transport};
pub use passthrough::{
    FileTable, PageCacheUse, Recalled, TreeHandle, TreeMount, TreeOptions, control_attribute,
};
pub use session::{TransportChoice, Unmounted};
pub use volume_directory::FileAccess;
