//! Clients whose connections outlive the server: it stops each of them between two requests, and the next server goes on there.
//!
//! A client sees a pause. Nothing of a request is lost: what has been received of one that is not complete goes along, and
//! requests that have begun are answered before. Connections over TLS end, since their keys cannot be handed on, and so
//! do those of a cache that demotes and of a virtual machine's disk: these connect again by themselves.

mod parting;
mod record;
mod unread;

use crate::accept::{STACK_BYTES, connection_options};
use crate::budget::Budget;
use crate::connection::{self, ConnectionOptions, Resumed};
use crate::export::Entry;
use crate::peer::Peer;
use crate::registry::Place;
use crate::server::{Server, StopReport};
use crate::tenant::Tenant;
use futae_engine::JoinedClient;
pub(crate) use parting::Parting;
pub(crate) use record::Record;
pub use record::{KeptClient, RecordError};
use rustix::net::{Shutdown, shutdown};
use std::sync::Arc;
use std::thread::Builder;
use tracing::{info, warn};
pub(crate) use unread::Unread;

impl Server {
    /// Stops the server as [`Self::stop`] does, and keeps the clients with
    /// [`ServerOptions::keeps_clients`](crate::ServerOptions::keeps_clients) whose connections another server can go on with
    /// ([`Self::go_on_with`]). It keeps no client that has yet to learn of a failed flush, and none if
    /// a volume could not be flushed: clients should see that.
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
        let export = &entry.export;
        let resumed = Resumed {
            joined: JoinedClient::join(&export.engine, export.volume),
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
