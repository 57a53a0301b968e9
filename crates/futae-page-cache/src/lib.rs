//! The kernel's page cache of one file system, watched by eBPF through memory that the kernel and this process share.
//!
//! [`Watch`] tells which pages are there, which were read since somebody looked, and which have left. Its programs live on the
//! page cache's own tracepoints (Linux 6.12 and later). [`kernel`] is what every loader of eBPF programs in futae needs.

#[cfg(futae_has_bpf)]
pub mod bases;
#[cfg(futae_has_bpf)]
mod cold;
pub mod kernel;
#[cfg(futae_has_bpf)]
mod mapped;
#[cfg(futae_has_bpf)]
mod numbering;
#[cfg(futae_has_bpf)]
mod numbers;
mod pages;
#[cfg(futae_has_bpf)]
mod shared;
mod thin;
#[cfg(futae_has_bpf)]
mod watch;
#[cfg(not(futae_has_bpf))]
#[path = "watch_absent.rs"]
mod watch;

pub use pages::{Event, Pages};
pub use watch::Watch;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
