//! What the threads of a server share, and its status.

use crate::budget::Budget;
use crate::export::ExportTable;
use crate::feed::Feeds;
use crate::kept_clients::Parting;
use crate::options::ServerOptions;
use crate::pulse::Pulse;
use crate::registry::{Phase, Registry};
use crate::status::{ExportReport, ServerStatus};
use crate::tls::Tls;
use futae_control::EngineReport;
use futae_engine::Engine;
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
