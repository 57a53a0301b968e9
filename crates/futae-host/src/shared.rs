//! What the threads of a server share.

use crate::budget::Budget;
use crate::export::ExportTable;
use crate::feed::Feeds;
use crate::kept_clients::Parting;
use crate::options::ServerOptions;
use crate::pulse::Pulse;
use crate::registry::Registry;
use crate::tls::Tls;
use rustix::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// State shared by all threads of a server.
pub(crate) struct Shared {
    pub(crate) exports: Arc<ExportTable>,
    /// Locked while an export is changed, added to the table or removed.
    pub(crate) changing: Mutex<()>,
    /// Locked while an export is added, from before its source is opened; taken before `changing`.
    pub(crate) adding: Mutex<()>,
    /// The exports with sockets of their own, and whether a socket serves all exports.
    pub(crate) gated: (Vec<String>, bool),
    pub(crate) registry: Arc<Registry>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) options: ServerOptions,
    pub(crate) tls: Option<Tls>,
    pub(crate) started: Instant,
    /// The heartbeat, if one is configured.
    pub(crate) pulse: Option<Pulse>,
    /// Taken when the server stops.
    pub(crate) feeds: Mutex<Option<Feeds>>,
    /// If clients are kept when the server stops: takes them.
    pub(crate) parting: Option<Arc<Parting>>,
    /// Becomes and stays readable when the server stops.
    pub(crate) stop: OwnedFd,
}

impl Shared {
    /// The feeds, until the server stops.
    pub(crate) fn feeds(&self) -> MutexGuard<'_, Option<Feeds>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
