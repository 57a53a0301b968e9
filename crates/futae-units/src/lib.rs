//! Sizes and durations as command lines write them.
//!
//! Nothing in this crate knows caches or traces.

mod duration;
mod size;

pub use duration::{DurationError, parse_duration};
pub use size::{
    BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, SIMULATED_BLOCK_BYTES_MIN, Size, SizeError, parse_block_bytes,
};
