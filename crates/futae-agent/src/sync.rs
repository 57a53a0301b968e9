//! The fences of memory that a host reads, in one place: `tests/interleavings` compiles the files that use it with a model of it, and
//! goes through the orders in which threads can run.

pub use std::sync::atomic::{Ordering, fence};
