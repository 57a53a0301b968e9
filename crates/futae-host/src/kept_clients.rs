//! Clients whose connections outlive the server: it stops each of them between two requests, and the next server goes on there.
//!
//! A client sees a pause. Nothing of a request is lost: what has been received of one that is not complete goes along, and
//! requests that have begun are answered before. Connections over TLS end, since their keys cannot be handed on, and so
//! do those of a cache that demotes and of a virtual machine's disk: these connect again by themselves.

mod record;

use crate::accept::{STACK_BYTES, connection_options};
use crate::budget::Budget;
use crate::connection::{self, ConnectionOptions, Resumed};
use crate::export::Entry;
use crate::peer::Peer;
use crate::registry::Place;
use crate::server::{Server, StopReport};
use crate::tenant::Tenant;
use futae_nbd::RequestRules;
use record::Record;
pub use record::{KeptClient, RecordError};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use tracing::{info, warn};

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

/// What has been received of requests that have not been carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unread {
    /// Bytes of requests, from the beginning of one, behind those to be skipped.
    pub(crate) bytes: Vec<u8>,
    /// Bytes to come before them that belong to a request that was refused.
    pub(crate) skip_bytes: usize,
}

impl Server {
    /// Stops the server as [`Self::stop`] does, and keeps the clients with
    /// [`ServerOptions::keeps_clients`](crate::ServerOptions::keeps_clients) whose connections another server can go on with
    /// ([`Self::go_on_with`]). It keeps none if a volume could not be flushed: clients should see that.
    #[must_use]
    pub fn stop_and_keep(mut self) -> (StopReport, Vec<KeptClient>) {
        if let Some(parting) = &self.shared.parting {
            parting.begin();
        }
        let report = self.wind_down();
        let parting = self.shared.parting.as_ref();
        let clients = parting.map_or_else(Vec::new, |parting| parting.take());
        if report.flush_errors.is_empty() {
            (report, clients)
        } else {
            (report, Vec::new())
        }
    }

    /// Goes on with the clients of an earlier server. A client whose address or export is not there any longer, or is not as it was
    /// described to the client, loses its connection; the log says why. Returns how many are served.
    pub fn go_on_with(&self, clients: Vec<KeptClient>) -> usize {
        let mut served = 0;
        for client in clients {
            let peer = Peer::of(&client.socket, client.record.gate.starts_with("tcp:"));
            let export = client.record.export.clone();
            match self.go_on(client, peer) {
                Ok(()) => served += 1,
                Err(why) => {
                    warn!(%peer, export, "client {peer} of the previous server lost its connection: {why}");
                }
            }
        }
        if served > 0 {
            info!("serving {served} clients of the previous server");
        }
        served
    }

    fn go_on(&self, client: KeptClient, peer: Peer) -> Result<(), String> {
        let KeptClient { socket, record } = client;
        let found = self.find_again(&record);
        if found.is_err() {
            // The process that handed it over may hold a copy.
            let _ = shutdown(&socket, Shutdown::Both);
        }
        let (tenant, entry) = found?;
        let shared = &self.shared;
        let place = shared.registry.admit(
            socket,
            peer,
            &record.gate.as_str().into(),
            shared.options.handshakes_max(),
        );
        if shared.parting.is_some() {
            // The server may stop before its thread has begun.
            place.link.parts();
        }
        let resumed = Resumed {
            entry,
            rules: record.rules(),
            names: Vec::new(),
            unread: record.unread,
        };
        let options = connection_options(shared, None);
        let budget = Arc::clone(&shared.budget);
        let thread = Builder::new()
            .name("connection".into())
            .stack_size(STACK_BYTES);
        let serve = move || look_after(&tenant, resumed, &budget, &place, &options);
        let started = thread.spawn(serve);
        started
            .map(drop)
            .map_err(|error| format!("no thread for it: {error}"))
    }

    /// The socket's exports and the client's export, if all is as the client was told.
    fn find_again(&self, record: &Record) -> Result<(Tenant, Entry), String> {
        let (gate, export) = (&record.gate, &record.export);
        let mut addresses = self.addresses.iter();
        let at = addresses.position(|address| address.to_string() == *gate);
        let at = at.ok_or_else(|| format!("the server does not listen on {gate} any longer"))?;
        if self.encrypted[at] {
            return Err(format!("clients of {gate} need TLS now"));
        }
        let tenant = self.tenants[at].clone();
        let entry = tenant
            .find(export)
            .ok_or_else(|| format!("export {export} is not served on {gate} any longer"))?;
        let info = entry.info();
        if entry.volume() != Some(record.volume) {
            return Err(format!("export {export} is another disk image"));
        }
        if info.size_bytes != record.size_bytes {
            let (old, new) = (record.size_bytes, info.size_bytes);
            return Err(format!("export {export} had {old} bytes and has {new}"));
        }
        if info.transmission_flags(record.structured_replies) != record.flags() {
            return Err(format!(
                "export {export} has other capabilities than before, or has become read-only or writable"
            ));
        }
        Ok((tenant, entry))
    }
}

fn look_after(
    tenant: &Tenant,
    resumed: Resumed,
    budget: &Arc<Budget>,
    place: &Place,
    options: &ConnectionOptions,
) {
    let end = connection::resume(tenant, resumed, budget, place, options);
    crate::accept::report(end, place, options);
}
