//! What the files compiled here find in place of `std::sync`.

pub use loom::sync::atomic;
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
pub use loom::thread::yield_now;
pub use loom::thread_local;
pub use std::sync::{PoisonError, TryLockError};

use loom::sync;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, TryLockResult};
use std::time::Duration;

/// Loom's, whose guard knows what it is of.
#[derive(Debug)]
pub struct Mutex<T>(sync::Mutex<T>);

/// Holds a [`Mutex`].
pub struct MutexGuard<'a, T> {
    of: &'a Mutex<T>,
    /// None only while it waits.
    held: Option<sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// One that nobody holds.
    pub fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits for it.
    ///
    /// # Errors
    ///
    /// None: what panics ends the model.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let held = self.0.lock().ok();
        Ok(MutexGuard { of: self, held })
    }

    /// Does not wait.
    ///
    /// # Errors
    ///
    /// Somebody holds it.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(held) => Ok(MutexGuard {
                of: self,
                held: Some(held),
            }),
            Err(_) => Err(TryLockError::WouldBlock),
        }
    }
}

const HELD: &str = "a guard that does not wait holds its lock";

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect(HELD)
    }
}

/// Loom's, whose waits may end in time.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// One that nobody waits for.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits until it is notified.
    ///
    /// # Errors
    ///
    /// None.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let held = guard.held.take().expect(HELD);
        guard.held = self.0.wait(held).ok();
        Ok(guard)
    }

    /// The time is over at once, or after others have run.
    ///
    /// # Errors
    ///
    /// None.
    pub fn wait_timeout<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        _time: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        guard.held = None;
        guard.held = guard.of.0.lock().ok();
        Ok((guard, ()))
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }
}
