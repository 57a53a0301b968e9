//! What the files compiled here find in place of `std::sync`.

pub use loom::sync::atomic;
pub use loom::sync::atomic::{Ordering, fence};
pub use loom::sync::{Mutex, MutexGuard};
pub use loom::thread::yield_now;
pub use std::sync::{PoisonError, TryLockError};
