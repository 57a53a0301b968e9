//! Locality as a cache at each level sees it: the amount of other data requested before a block is
//! requested again (Sugimoto and Yamaguchi 2015, section 3.1, figures 3 and 4).
//!
//! The *re-access interval* of a request is the number of bytes of the other requests, at the same
//! level, between it and the previous request for the same block. Below an LRU cache no block is
//! requested again soon: its re-access density is about 0 up to a *gap* ([`Intervals::gap_bytes`],
//! [`theory::shortest_gap`](crate::theory::shortest_gap)), and a lower LRU or FIFO cache smaller
//! than the gap has no hits.

mod intervals;
mod study;
mod taps;
#[cfg(test)]
mod tests;

pub use intervals::{BINS_MAX, Bin, Bins, GAP_THRESHOLD, Intervals};
pub use study::{Study, StudyError, Summary, end_bytes};
pub use taps::Tap;
