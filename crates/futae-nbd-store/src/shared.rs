//! What the threads of a store share.

use crate::error::ConnectError;
use crate::fence::Fence;
use crate::session::{Errand, Session};
use futae_nbd::client::ClientWish;
use futae_nbd::uri::NbdUri;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// The error of the first FLUSH after writes were lost.
pub(crate) const LOST_WRITES: &str = "the connection was lost after writes were answered and before they \
                           were flushed, so the server may not have them";

/// The state of a store.
pub(crate) struct Shared {
    pub(crate) uri: NbdUri,
    /// The address as text.
    pub(crate) name: Arc<str>,
    pub(crate) wish: ClientWish,
    /// How long callers wait for an answer; zero: until a connection is lost.
    pub(crate) timeout: Duration,
    pub(crate) size_bytes: u64,
    /// The identity of the volume, if the server could tell.
    pub(crate) identity: Option<[u8; 16]>,
    pub(crate) read_only: bool,
    pub(crate) errands: Sender<Errand>,
    pub(crate) current: RwLock<Arc<Session>>,
    pub(crate) fence: Arc<Fence>,
    /// Writes were answered, and the server was started anew before a FLUSH; no FLUSH has told so yet.
    pub(crate) lost_writes: AtomicBool,
    /// The number of the first connection after the last such loss; 0: none was lost.
    pub(crate) lost_writes_before: AtomicU64,
    /// The highest sequence number so far.
    pub(crate) latest: AtomicU64,
    pub(crate) status_requests: AtomicU64,
    /// Hints dropped on earlier connections.
    pub(crate) hints_dropped: AtomicU64,
}

impl Shared {
    pub(crate) fn connect_error(&self, problem: String) -> ConnectError {
        ConnectError::new(&self.name, problem)
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, session: Arc<Session>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        self.hints_dropped
            .fetch_add(current.outbox.hints_dropped(), Ordering::Relaxed);
        *current = session;
    }

    /// What was answered over connections before `generation` may be lost.
    pub(crate) fn note_lost_writes(&self, generation: u64) {
        self.lost_writes_before
            .fetch_max(generation, Ordering::AcqRel);
        self.lost_writes.store(true, Ordering::Release);
    }

    pub(crate) fn lost_writes_before(&self) -> u64 {
        self.lost_writes_before.load(Ordering::Acquire)
    }

    /// Returns whether writes were lost; true only on the first call.
    pub(crate) fn take_lost_writes(&self) -> bool {
        self.lost_writes.swap(false, Ordering::AcqRel)
    }
}
