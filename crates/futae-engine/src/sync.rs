//! What threads wait on and hand on to each other, in one place: `tests/interleavings` compiles the files that use it with a model
//! of it, and goes through the orders in which threads can run.

pub use std::sync::atomic;
pub use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
pub use std::thread::yield_now;
