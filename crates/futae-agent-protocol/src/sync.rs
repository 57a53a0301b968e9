//! The fences of rings in shared memory, in one place: `tests/interleavings` compiles the files that use it with a model of it, and
//! goes through the orders in which threads can run.

pub use std::sync::atomic::{Ordering, fence};
