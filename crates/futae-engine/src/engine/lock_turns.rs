//! The engine's lock, and how work of many steps gives way to others between two of them.
//!
//! A mutex may be taken again by the thread that has just let it go, before those that wait for it have
//! woken up. So a thread that goes on with a long request waits until one of them has had its turn.

use super::state::State;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The state, and who waits for it.
pub struct LockTurns {
    state: Mutex<State>,
    /// Threads that wait.
    waiting: AtomicUsize,
    /// How often it was taken; changed by the one who has it only.
    taken: AtomicU64,
}

impl LockTurns {
    /// The lock of `state`.
    pub fn new(state: State) -> Self {
        Self {
            state: Mutex::new(state),
            waiting: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
        }
    }

    /// Takes the lock.
    pub fn lock(&self) -> MutexGuard<'_, State> {
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

    /// Between two steps, without the lock: lets one of those who wait have it first.
    pub fn give_way(&self) {
        let taken = self.taken.load(Ordering::Acquire);
        while self.waiting.load(Ordering::Acquire) > 0
            && self.taken.load(Ordering::Acquire) == taken
        {
            std::thread::yield_now();
        }
    }
}
