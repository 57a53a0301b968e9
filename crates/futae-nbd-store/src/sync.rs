//! What threads wait on and keep for themselves, in one place: `tests/interleavings` compiles the file that uses it with a model of
//! it, and goes through the orders in which threads can run.

pub use std::sync::atomic::{AtomicU64, Ordering};
pub use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
pub use std::thread_local;
