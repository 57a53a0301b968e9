//! What is asked of a cache: requests, from seeded synthetic workloads and from trace files.
//!
//! A [`WorkloadSpec`] is what a user writes (`zipf(1.0):10GiB`); its [`Generator`] draws an endless
//! stream of [`BlockRequest`]s from a seed, the same on every machine. A [`Request`] is one record
//! of a trace, in bytes; a block size turns it into block requests.
//!
//! Nothing in this crate knows caches.

mod request;
mod size;
mod stream;
mod workload;

pub use request::{Request, RequestKind};
pub use size::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, SIMULATED_BLOCK_BYTES_MIN, Size, SizeError, parse_block_bytes,
};
pub use stream::{BlockRequest, BlockStream};
pub use workload::{
    Generator, Workload, WorkloadError, WorkloadErrorKind, WorkloadSpec, workloads,
};
