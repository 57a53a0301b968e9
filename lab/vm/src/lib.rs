//! Debian guests in QEMU, for futae's tests and live experiments.
//!
//! A [`Plan`] says what the guest has: a kernel, memory, disks, programs. [`Plan::boot`] starts it,
//! [`Guest::run`] runs shell commands in it. The kernel and busybox are Debian's packages, fetched by
//! `apt-get download` and unpacked into a cache; nothing is installed. The guest has no disk of
//! its own: it runs from an initramfs, which is made for it. It needs no hardware virtualisation and
//! boots in 5 to 20 seconds.
//!
//! Whatever happens to the test, its guest ends: [`Guest`] kills QEMU when it is dropped, the
//! kernel kills QEMU when the thread that booted it dies, and the guest powers itself off when
//! nobody listens any more.
//!
//! ```no_run
//! use futae_machine::{Kernel, Plan};
//!
//! let mut guest = Plan::new(Kernel::Debian61).disk("disk.img").boot()?;
//! assert_eq!(guest.run("blockdev --getsize64 /dev/vda")?.status, 0);
//! # Ok::<(), futae_machine::GuestError>(())
//! ```

#![forbid(unsafe_code)]

mod channel;
mod cpio;
mod error;
mod guest;
mod initramfs;
mod migration;
mod modules;
mod monitor;
mod packages;
mod plan;

pub use error::GuestError;
pub use guest::{Guest, Output};
pub use migration::Moved;
pub use packages::{Kernel, default_cache};
pub use plan::{Disk, HostCache, Plan};
