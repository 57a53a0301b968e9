//! The stop of connections that the next server goes on with.

use super::record::{KeptClient, Record};
use super::unread::Unread;
use crate::registry::Place;
use futae_nbd::RequestRules;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Tells connections to stop between two requests, and takes those that have.
pub(crate) struct Parting {
    has_begun: AtomicBool,
    /// Becomes and stays readable when it begins.
    bell: OwnedFd,
    clients: Mutex<Vec<KeptClient>>,
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

    /// Keeps a client that has stopped between two requests; `unread` are its bytes of requests to come.
    pub(crate) fn keep(
        &self,
        place: &Place,
        export: (&str, [u8; 16]),
        rules: &RequestRules,
        unread: Unread,
    ) -> io::Result<()> {
        let client = KeptClient {
            socket: place.link.socket.try_clone()?,
            record: Record::new(&place.link.gate, export, rules, unread),
        };
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.push(client);
        Ok(())
    }

    pub(crate) fn take(&self) -> Vec<KeptClient> {
        std::mem::take(&mut *self.clients.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
