//! Proof that a server is alive, for a watchdog: every thread that accepts connections still goes
//! around its loop, and every cache still releases its lock.

use futae_engine::Engine;
use rustix::event::Timespec;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Receives proofs that a server is alive.
#[derive(Clone)]
pub struct Heartbeat {
    every: Duration,
    hear: Arc<dyn Fn() + Send + Sync>,
}

impl Heartbeat {
    /// `hear` is called at least once in `every` while the server is alive, sometimes more often,
    /// by the threads that accept connections.
    pub fn new(every: Duration, hear: impl Fn() + Send + Sync + 'static) -> Self {
        let hear = Arc::new(hear);
        Self { every, hear }
    }
}

impl fmt::Debug for Heartbeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heartbeat")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

/// Which accepting threads have reported since the last heartbeat.
pub(crate) struct Pulse {
    heartbeat: Heartbeat,
    seen: Mutex<Vec<bool>>,
}

impl Pulse {
    pub(crate) fn new(heartbeat: Heartbeat, acceptors: usize) -> Self {
        let seen = Mutex::new(vec![false; acceptors]);
        Self { heartbeat, seen }
    }

    /// How long an accepting thread may wait before it reports.
    pub(crate) fn wait(&self) -> Timespec {
        Timespec::try_from(self.heartbeat.every / 2).unwrap_or_default()
    }

    /// An accepting thread reports. The last one takes the lock of every cache, then calls the
    /// heartbeat.
    pub(crate) fn shows_up(&self, acceptor: usize, engines: impl FnOnce() -> Vec<Arc<Engine>>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = seen.get_mut(acceptor) {
            *seen = true;
        }
        if seen.contains(&false) {
            return;
        }
        seen.fill(false);
        drop(seen);
        for engine in engines() {
            let _ = engine.dirty_blocks();
        }
        (self.heartbeat.hear)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn one_thread_that_is_stuck_ends_the_pulse() {
        let heard = Arc::new(AtomicU32::new(0));
        let hear = {
            let heard = Arc::clone(&heard);
            move || {
                heard.fetch_add(1, Ordering::Relaxed);
            }
        };
        let pulse = Pulse::new(Heartbeat::new(Duration::from_secs(1), hear), 2);
        for _ in 0..3 {
            pulse.shows_up(0, Vec::new);
        }
        assert_eq!(heard.load(Ordering::Relaxed), 0);
        pulse.shows_up(1, Vec::new);
        assert_eq!(heard.load(Ordering::Relaxed), 1);
        pulse.shows_up(1, Vec::new);
        assert_eq!(heard.load(Ordering::Relaxed), 1);
    }
}
