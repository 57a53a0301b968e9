//! The status of a server.

use crate::FeedReport;
use crate::feed::Feeds;
use crate::rate::RateReport;
use crate::registry::Phase;
use crate::shared::Shared;
use crate::traffic::Traffic;
use futae_control::EngineReport;
use futae_engine::Engine;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The status of a server at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerStatus {
    /// The version of futae.
    pub version: String,
    /// Time since the start, in seconds.
    pub uptime_seconds: f64,
    /// Connections now, those in their handshake included.
    pub connections: u64,
    /// Connections still in their handshake.
    pub handshakes: u64,
    /// Connections that may demote.
    pub demotion_clients: u64,
    /// Connections ever accepted.
    pub accepted: u64,
    /// Connections closed at once because there were too many.
    pub turned_away: u64,
    /// Connections ended to make room for peers that had fewer.
    #[serde(default)]
    pub dismissed: u64,
    /// Connections that ended because the peer violated the protocol or did not finish its
    /// handshake.
    pub protocol_errors: u64,
    /// The most recent violation.
    pub last_protocol_error: Option<String>,
    /// The largest number of bytes that all connections together may make the server hold.
    #[serde(default)]
    pub buffer_memory_bytes: u64,
    /// Bytes held now: payloads, requests, replies, and the allotment of each connection.
    #[serde(default)]
    pub buffer_bytes: u64,
    /// The maximum so far.
    #[serde(default)]
    pub buffer_bytes_peak: u64,
    /// Connections that wait for room for their next request.
    #[serde(default)]
    pub buffer_waiters: u64,
    /// Connections ended because they held memory that others waited for, and moved no bytes.
    #[serde(default)]
    pub stalled_connections: u64,
    /// Traffic of all connections.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// The caches.
    pub engines: Vec<EngineReport>,
    /// The exports.
    pub exports: Vec<ExportReport>,
    /// The feeds from agents in guests.
    #[serde(default)]
    pub feeds: Vec<FeedReport>,
}

/// One export of a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExportReport {
    /// Its name.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Connections that use it now.
    pub connections: u64,
    /// Whether the cache is blind for it: its policy depends on the guest's evictions, and neither
    /// an agent nor a client reports them.
    #[serde(default)]
    pub is_blind: bool,
    /// Its limits of requests and bytes per second, and how many requests they delayed.
    #[serde(flatten)]
    pub rates: RateReport,
}

impl Shared {
    /// The current status.
    pub(crate) fn status(&self) -> ServerStatus {
        let (phases, totals) = self.registry.survey();
        let using = |wanted: &str| {
            let uses = |phase: &&Phase| matches!(phase, Phase::Transmission { export, .. } if export == wanted);
            phases.iter().filter(uses).count() as u64
        };
        let demoting = |wanted: &str| {
            let does = |phase: &Phase| matches!(phase, Phase::Transmission { export, demotes: true } if export == wanted);
            phases.iter().any(does)
        };
        let feeds = self.feeds();
        let held = self.budget.held();
        let demotes = |phase: &&Phase| matches!(phase, Phase::Transmission { demotes: true, .. });
        let busy = |phase: &&Phase| matches!(phase, Phase::Transmission { .. });
        let entries = self.exports.entries();
        let own = entries.iter().filter(|entry| entry.is_export());
        let exports = own.map(|entry| (entry, &entry.export));
        let exports = exports.map(|(entry, export)| ExportReport {
            rates: entry.rates(),
            name: export.name.clone(),
            size_bytes: export.engine.volume_bytes(export.volume),
            read_only: export.is_read_only(),
            connections: using(&export.name),
            is_blind: export.engine.policy().lives_on_demotions()
                && !demoting(&export.name)
                && !feeds.as_ref().is_some_and(|feeds| feeds.sees(&export.name)),
        });
        let engines = self.exports.engines();
        let engines = engines.iter().map(|engine| EngineReport {
            exports: self.names_on(engine),
            engine: engine.status(),
        });
        ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            connections: phases.len() as u64,
            handshakes: (phases.len() - phases.iter().filter(busy).count()) as u64,
            demotion_clients: phases.iter().filter(demotes).count() as u64,
            accepted: totals.accepted,
            turned_away: totals.turned_away,
            dismissed: totals.dismissed,
            protocol_errors: totals.protocol_errors,
            last_protocol_error: totals.last_protocol_error,
            buffer_memory_bytes: held.budget,
            buffer_bytes: held.now,
            buffer_bytes_peak: held.peak,
            buffer_waiters: held.waiting,
            stalled_connections: held.stalled,
            traffic: totals.traffic,
            engines: engines.collect(),
            exports: exports.collect(),
            feeds: feeds.as_ref().map(Feeds::reports).unwrap_or_default(),
        }
    }

    fn names_on(&self, engine: &Arc<Engine>) -> Vec<String> {
        let all = self.exports.all().into_iter();
        let on_it = all.filter(|export| Arc::ptr_eq(&export.engine, engine));
        on_it.map(|export| export.name).collect()
    }
}
