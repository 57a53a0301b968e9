//! Claims to rings: one thread at a time serves a ring in a guest's memory.
//!
//! A frontend can connect again while the session of its earlier connection still waits for the
//! cache. If both sessions served the queue, its requests would be executed twice, both would write
//! to the used ring, and one would consume the notifications for the other. So the thread of a queue
//! waits until no other thread of this process serves the same ring.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The claimed rings of all sessions. Sessions of different servers in one process may share a
/// guest, so there is one list for the process.
static CLAIMED: Mutex<Vec<RingPlace>> = Mutex::new(Vec::new());
/// Signalled when a claim ends, and by [`wake`].
static CHANGED: Condvar = Condvar::new();

/// Where a used ring is, whatever address a frontend gives it: the file that holds the guest's
/// memory, and the offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingPlace {
    device: u64,
    inode: u64,
    offset: u64,
}

impl RingPlace {
    pub(crate) fn new(file: &Metadata, offset: u64) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            offset,
        }
    }

    /// The place this many bytes behind this one.
    pub(crate) fn behind(self, bytes: u64) -> Self {
        Self {
            offset: self.offset.saturating_add(bytes),
            ..self
        }
    }
}

fn claimed() -> MutexGuard<'static, Vec<RingPlace>> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to serve a ring, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim(RingPlace);

impl Claim {
    /// Waits until no other claim to the ring exists. Returns `None` as soon as `must_stop` is true;
    /// call [`wake`] after that has changed.
    pub(crate) fn obtain(place: RingPlace, must_stop: impl Fn() -> bool) -> Option<Self> {
        let mut all = claimed();
        while all.contains(&place) {
            if must_stop() {
                return None;
            }
            all = CHANGED.wait(all).unwrap_or_else(PoisonError::into_inner);
        }
        all.push(place);
        Some(Self(place))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut all = claimed();
        if let Some(at) = all.iter().position(|&place| place == self.0) {
            all.swap_remove(at);
        }
        CHANGED.notify_all();
    }
}

/// Has every waiting thread ask again whether it must stop.
pub(crate) fn wake() {
    // With the lock, so that no thread is between its question and its sleep.
    let _all = claimed();
    CHANGED.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn one_at_a_time_has_a_ring_and_who_must_stop_does_not_wait() {
        let file = tempfile::tempfile().expect("a file");
        let place = RingPlace::new(&file.metadata().expect("it is there"), 4096);
        let first = Claim::obtain(place, || false).expect("nobody has it");
        assert!(Claim::obtain(place, || true).is_none(), "it is taken");
        let beside = Claim::obtain(place.behind(8), || false);
        assert!(beside.is_some(), "another ring of the same guest");
        let must_stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiting = || Claim::obtain(place, || must_stop.load(SeqCst)).is_some();
            let waits = scope.spawn(waiting);
            must_stop.store(true, SeqCst);
            wake();
            assert!(!waits.join().expect("no panic"), "it was told to stop");
            must_stop.store(false, SeqCst);
            let waits = scope.spawn(waiting);
            drop(first);
            assert!(waits.join().expect("no panic"), "its turn has come");
        });
    }
}
