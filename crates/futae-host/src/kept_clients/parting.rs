//! The stop of connections that the next server goes on with.

use super::record::{KeptClient, Record};
use crate::registry::Place;
use futae_engine::JoinedClient;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::warn;

/// Tells connections to stop between two requests, and takes those that have.
pub(crate) struct Parting {
    has_begun: AtomicBool,
    /// Becomes and stays readable when it begins.
    bell: OwnedFd,
    /// They stay clients of their caches, so that the last flushes can fail for them, too.
    clients: Mutex<Vec<(KeptClient, JoinedClient)>>,
}

impl Parting {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            has_begun: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC)?,
            clients: Mutex::default(),
        })
    }

    pub(crate) fn begin(&self) {
        self.has_begun.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Keeps a client that has stopped between two requests.
    pub(crate) fn keep(
        &self,
        place: &Place,
        record: Record,
        joined: JoinedClient,
    ) -> io::Result<()> {
        let socket = place.link.socket.try_clone()?;
        self.all().push((KeptClient { socket, record }, joined));
        Ok(())
    }

    /// After the last flushes: the clients that are kept. The next server does not know which of them have yet to learn of a
    /// failed flush, so those lose their connections.
    pub(crate) fn take(&self) -> Vec<KeptClient> {
        let clients = std::mem::take(&mut *self.all());
        let (owed, kept): (Vec<_>, Vec<_>) = clients
            .into_iter()
            .partition(|(_, joined)| joined.is_owed_failure());
        for (KeptClient { record, .. }, _) in owed {
            let export = record.export;
            warn!(
                export,
                "a client of export {export} is not kept for the next server: it has yet to learn that a FLUSH failed"
            );
        }
        kept.into_iter().map(|(client, _)| client).collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<(KeptClient, JoinedClient)>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
