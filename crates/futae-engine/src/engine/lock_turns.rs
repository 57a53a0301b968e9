//! The engine's lock, with fairness for work of many steps.
//!
//! The thread that releases a mutex can take it again before the threads that wait for it have
//! woken up. Between two steps a long request therefore waits until one of those threads has had
//! the lock.

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError, TryLockError, yield_now};

/// The state and its lock, and the number of waiting threads.
pub struct LockTurns<T> {
    state: Mutex<T>,
    /// Number of waiting threads.
    waiting: AtomicUsize,
    /// Number of acquisitions; only the holder of the lock changes it.
    taken: AtomicU64,
}

impl<T> LockTurns<T> {
    /// The lock of `state`.
    pub fn new(state: T) -> Self {
        Self {
            state: Mutex::new(state),
            waiting: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
        }
    }

    /// Takes the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.waiting.fetch_add(1, Ordering::AcqRel);
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                self.waiting.fetch_sub(1, Ordering::AcqRel);
                state
            }
        };
        let taken = self.taken.load(Ordering::Relaxed);
        self.taken.store(taken.wrapping_add(1), Ordering::Release);
        state
    }

    /// Called between two steps, without the lock: lets a waiting thread take it first.
    pub fn give_way(&self) {
        let taken = self.taken.load(Ordering::Acquire);
        while self.waiting.load(Ordering::Acquire) > 0
            && self.taken.load(Ordering::Acquire) == taken
        {
            yield_now();
        }
    }
}
