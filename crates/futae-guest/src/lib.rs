//! The upper cache where applications meet it: a FUSE mount that shows volumes of an
//! [`Engine`](futae_engine::Engine), each as one file of the volume's size.
//!
//! Every read and write becomes a request to the engine, and its answer is sent from whatever
//! thread completes it, so as many requests are in flight as applications start. The file is
//! opened past the kernel's page cache, which would only hold the same blocks a second time;
//! `mmap`, `O_DIRECT` and loop devices work on it all the same. The file's size cannot change and
//! nothing else can be made in the mount.
//!
//! This crate knows neither NBD nor image formats: the engine's store does.

mod errno;
mod error;
mod file;
mod kept_by_kernel;
mod mount;
mod mountpoint;
mod negotiated;
mod one_read;
mod passthrough;
mod ring;
mod session;
mod split_reads;
mod volume_directory;

pub use error::MountError;
pub use futae_page_cache::Watch;
pub use mount::{Mount, MountOptions, ShownFile, default_file_name};
pub use mountpoint::check_mountpoint;
pub use negotiated::{Negotiated, Transport};
pub use passthrough::{PageCacheUse, TreeHandle, TreeMount, TreeOptions, control_attribute};
pub use session::{TransportChoice, Unmounted};
pub use volume_directory::FileAccess;
