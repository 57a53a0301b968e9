//! Every metric: its name, its kind, its unit, what it means and how its value is taken.

use crate::snapshot::{OneExport, Snapshot};
use Kind::{Counter, Gauge};
use futae_control::EngineReport;
use futae_host::{FeedReport, ServerStatus};

/// Whether a value only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Whole(u64),
    Real(f64),
    /// Not known yet; the series is left out.
    Unknown,
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<Option<f64>> for Value {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Self::Unknown, Self::Real)
    }
}

/// A metric of one kind of thing.
pub(crate) struct Metric<T: ?Sized> {
    /// Without `futae_` before it, and without `_total` behind it.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
    pub(crate) value: fn(&T) -> Value,
}

impl<T: ?Sized> Metric<T> {
    /// The name as a program that scrapes sees it.
    pub(crate) fn full_name(&self) -> String {
        let end = match self.kind {
            Counter => "_total",
            Gauge => "",
        };
        format!("futae_{}{end}", self.name)
    }
}

const fn metric<T: ?Sized>(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&T) -> Value,
) -> Metric<T> {
    Metric {
        name,
        kind,
        help,
        value,
    }
}

/// Of every program. Labels: `level`.
pub(crate) const PROGRAM: &[Metric<Snapshot>] = &[metric(
    "uptime_seconds",
    Gauge,
    "Time since the start",
    |it| Value::Real(it.uptime_seconds),
)];

/// Of a server. Labels: `level`.
pub(crate) const SERVER: &[Metric<ServerStatus>] = &[
    metric("connections", Gauge, "Connections now", |it| {
        it.connections.into()
    }),
    metric(
        "handshakes",
        Gauge,
        "Connections that have not chosen an export yet",
        |it| it.handshakes.into(),
    ),
    metric(
        "demotion_connections",
        Gauge,
        "Connections that may hand evicted blocks down",
        |it| it.demotion_clients.into(),
    ),
    metric(
        "connections_accepted",
        Counter,
        "Connections accepted",
        |it| it.accepted.into(),
    ),
    metric(
        "connections_turned_away",
        Counter,
        "Connections closed at once, at a limit",
        |it| it.turned_away.into(),
    ),
    metric(
        "connections_dismissed",
        Counter,
        "Connections ended to make room for peers with fewer",
        |it| it.dismissed.into(),
    ),
    metric(
        "connections_stalled",
        Counter,
        "Connections ended because they held memory that others waited for",
        |it| it.stalled_connections.into(),
    ),
    metric(
        "protocol_errors",
        Counter,
        "Connections ended because the peer broke the protocol",
        |it| it.protocol_errors.into(),
    ),
    metric("client_requests", Counter, "Requests received", |it| {
        it.traffic.requests.into()
    }),
    metric("client_replies", Counter, "Replies sent", |it| {
        it.traffic.replies.into()
    }),
    metric(
        "client_requests_refused",
        Counter,
        "Requests answered with an error before a cache saw them",
        |it| it.traffic.refused_requests.into(),
    ),
    metric(
        "demotions_misshapen",
        Counter,
        "Demotions with a wrong range, or to a read-only export",
        |it| it.traffic.misshapen_demotions.into(),
    ),
    metric(
        "buffer_limit_bytes",
        Gauge,
        "Memory that all connections together may take, --buffer-memory",
        |it| it.buffer_memory_bytes.into(),
    ),
    metric(
        "buffer_bytes",
        Gauge,
        "Memory that all connections together take",
        |it| it.buffer_bytes.into(),
    ),
    metric(
        "buffer_peak_bytes",
        Gauge,
        "The most that they took",
        |it| it.buffer_bytes_peak.into(),
    ),
    metric(
        "buffer_waiting_connections",
        Gauge,
        "Connections whose next request waits for memory",
        |it| it.buffer_waiters.into(),
    ),
];

/// Of a cache. Labels: `level`, `cache`, `policy`.
pub(crate) const CACHE: &[Metric<EngineReport>] = &[
    metric("cache_capacity_bytes", Gauge, "Size of the cache", |it| {
        (it.engine.capacity_blocks * it.engine.block_bytes).into()
    }),
    metric(
        "cache_resident_bytes",
        Gauge,
        "Size of the blocks in the cache",
        |it| (it.engine.resident_blocks * it.engine.block_bytes).into(),
    ),
    metric(
        "cache_dirty_bytes",
        Gauge,
        "Size of the blocks that the store does not have yet",
        |it| (it.engine.dirty_blocks * it.engine.block_bytes).into(),
    ),
    metric(
        "cache_dirty_limit_bytes",
        Gauge,
        "Size of dirty blocks at which writers wait; 0 under write-through",
        |it| (it.engine.dirty_max_blocks * it.engine.block_bytes).into(),
    ),
    metric("cache_requests", Counter, "Blocks asked for", |it| {
        it.engine.counters.requests.into()
    }),
    metric(
        "cache_hits",
        Counter,
        "Blocks asked for that were in the cache",
        |it| it.engine.counters.hits.into(),
    ),
    metric(
        "cache_misses",
        Counter,
        "Blocks asked for that were not in the cache",
        |it| it.engine.counters.misses.into(),
    ),
    metric(
        "cache_admissions",
        Counter,
        "Blocks placed, however they came",
        |it| it.engine.counters.admissions.into(),
    ),
    metric(
        "cache_evictions",
        Counter,
        "Blocks given up to make room",
        |it| it.engine.counters.evictions.into(),
    ),
    metric(
        "cache_invalidations",
        Counter,
        "Blocks dropped by TRIM, WRITE_ZEROES and failed writes",
        |it| it.engine.counters.invalidations.into(),
    ),
    metric(
        "cache_demotions_in",
        Counter,
        "Blocks handed down to this cache",
        |it| it.engine.counters.demotions_in.into(),
    ),
    metric(
        "cache_demotions_out",
        Counter,
        "Blocks that this cache handed down",
        |it| it.engine.counters.demotions_out.into(),
    ),
    metric(
        "cache_demotions_refused",
        Counter,
        "Blocks handed down that were not believed",
        |it| it.engine.demotions_refused.into(),
    ),
    metric(
        "cache_demotions_declined",
        Counter,
        "Blocks handed down that the policy did not keep",
        |it| it.engine.counters.demotions_declined.into(),
    ),
    metric(
        "cache_demoted_in_bytes",
        Counter,
        "Data handed down to this cache",
        |it| it.engine.bytes_demoted_in.into(),
    ),
    metric(
        "cache_demoted_out_bytes",
        Counter,
        "Data that this cache handed down",
        |it| it.engine.bytes_demoted_out.into(),
    ),
    metric(
        "cache_notices_in",
        Counter,
        "Blocks that an agent or a client said are evicted above",
        |it| it.engine.counters.notices_in.into(),
    ),
    metric(
        "cache_notices_dropped",
        Counter,
        "Blocks of notices that were dropped, since too many waited",
        |it| it.engine.notices_dropped.into(),
    ),
    metric(
        "cache_handed_down_verified",
        Counter,
        "Blocks handed down whose data was as the cache last knew it",
        |it| it.engine.handed_down.handed_down_verified.into(),
    ),
    metric(
        "cache_handed_down_different",
        Counter,
        "Blocks handed down whose data was different: forged, stale or torn",
        |it| it.engine.handed_down.handed_down_different.into(),
    ),
    metric(
        "cache_handed_down_unknown",
        Counter,
        "Blocks handed down of which no hash was known",
        |it| it.engine.handed_down.handed_down_unknown.into(),
    ),
    metric(
        "cache_read_bytes",
        Counter,
        "Data answered to readers",
        |it| it.engine.bytes_read.into(),
    ),
    metric(
        "cache_written_bytes",
        Counter,
        "Data taken from writers",
        |it| it.engine.bytes_written.into(),
    ),
    metric(
        "cache_store_reads",
        Counter,
        "Read operations sent to stores",
        |it| it.engine.store_reads.into(),
    ),
    metric(
        "cache_store_writes",
        Counter,
        "Write operations sent to stores",
        |it| it.engine.store_writes.into(),
    ),
    metric(
        "cache_store_read_bytes",
        Counter,
        "Data read from stores",
        |it| it.engine.bytes_store_read.into(),
    ),
    metric(
        "cache_store_written_bytes",
        Counter,
        "Data written to stores",
        |it| it.engine.bytes_store_written.into(),
    ),
    metric(
        "cache_notice_read_blocks",
        Counter,
        "Blocks read from stores because of a notice",
        |it| it.engine.notice_reads.into(),
    ),
    metric(
        "cache_preload_read_blocks",
        Counter,
        "Blocks read from stores because the policy asked for them",
        |it| it.engine.preload_reads.into(),
    ),
    metric(
        "cache_write_backs",
        Counter,
        "Writes to stores that brought dirty blocks there",
        |it| it.engine.write_backs.into(),
    ),
    metric(
        "cache_write_back_errors",
        Counter,
        "Write-backs that failed; their blocks stay dirty",
        |it| it.engine.write_back_errors.into(),
    ),
    metric(
        "cache_throttled_writes",
        Counter,
        "Writes that waited since too much was dirty",
        |it| it.engine.throttled_writes.into(),
    ),
    metric(
        "cache_errors",
        Counter,
        "Requests that failed, and reads from stores that failed",
        |it| it.engine.errors.into(),
    ),
];

/// Of an export, or a file of a mount. Labels: `level`, `cache`, `export`, `class`.
pub(crate) const EXPORT: &[Metric<OneExport>] = &[
    metric("export_size_bytes", Gauge, "Size of the export", |it| {
        it.volume.size_bytes.into()
    }),
    metric(
        "export_connections",
        Gauge,
        "Connections that use the export",
        |it| {
            it.export
                .as_ref()
                .map_or(Value::Unknown, |export| export.connections.into())
        },
    ),
    metric(
        "export_blind",
        Gauge,
        "1: an exclusive cache, and nobody tells what is evicted above",
        |it| {
            it.export
                .as_ref()
                .map_or(Value::Unknown, |export| export.is_blind.into())
        },
    ),
    metric(
        "export_unclean",
        Gauge,
        "1: an earlier server lost writes, and no FLUSH has failed because of it yet",
        |it| it.volume.unclean.into(),
    ),
    metric("export_requests", Counter, "Blocks asked for", |it| {
        it.volume.requests.into()
    }),
    metric(
        "export_hits",
        Counter,
        "Blocks asked for that were in the cache",
        |it| it.volume.hits.into(),
    ),
    metric(
        "export_misses",
        Counter,
        "Blocks asked for that were not in the cache",
        |it| it.volume.misses.into(),
    ),
    metric("export_demotions_in", Counter, "Blocks handed down", |it| {
        it.volume.demotions_in.into()
    }),
    metric(
        "export_notices_in",
        Counter,
        "Blocks that an agent or a client said are evicted above",
        |it| it.volume.notices_in.into(),
    ),
    metric(
        "export_handed_down_different",
        Counter,
        "Blocks handed down whose data was different",
        |it| it.volume.handed_down_different.into(),
    ),
    metric(
        "export_store_reads",
        Counter,
        "Read operations sent to the store",
        |it| it.volume.store_reads.into(),
    ),
    metric(
        "export_store_detours",
        Counter,
        "Store operations past O_DIRECT or io_uring",
        |it| it.volume.store_detours.into(),
    ),
    metric("export_errors", Counter, "Requests that failed", |it| {
        it.volume.errors.into()
    }),
    metric(
        "export_dirty_bytes",
        Gauge,
        "Size of the blocks that the store does not have yet",
        |it| (it.volume.dirty_blocks * it.block_bytes).into(),
    ),
    metric(
        "export_store_read_seconds",
        Gauge,
        "Time of a read from the store, by the block: a moving average",
        |it| seconds(it.volume.read_micros),
    ),
    metric(
        "export_store_read_p99_seconds",
        Gauge,
        "Time that 99 of 100 reads take at most, by the block",
        |it| seconds(it.volume.read_micros_p99),
    ),
    metric(
        "export_store_write_seconds",
        Gauge,
        "Time of a write to the store, by the block: a moving average",
        |it| seconds(it.volume.write_micros),
    ),
    metric(
        "export_store_write_p99_seconds",
        Gauge,
        "Time that 99 of 100 writes take at most, by the block",
        |it| seconds(it.volume.write_micros_p99),
    ),
];

/// Of the agent in a guest. Labels: `level`, `export`, `guest`.
pub(crate) const AGENT: &[Metric<FeedReport>] = &[
    metric(
        "agent_connected",
        Gauge,
        "1: an agent is connected and speaks",
        |it| it.agent.connected.into(),
    ),
    metric(
        "agent_last_frame_seconds",
        Gauge,
        "Time since its last message",
        |it| it.agent.last_frame_seconds.into(),
    ),
    metric(
        "agent_evicted_ranges",
        Counter,
        "Ranges of evicted pages on the disk that is the export",
        |it| it.agent.ranges.into(),
    ),
    metric(
        "agent_evicted_bytes",
        Counter,
        "Data in these ranges",
        |it| it.agent.bytes.into(),
    ),
    metric(
        "agent_refused_ranges",
        Counter,
        "Ranges that were not taken, those of other disks included",
        |it| it.agent.refused_ranges.into(),
    ),
    metric(
        "agent_other_disk_ranges",
        Counter,
        "Ranges of other disks of the guest",
        |it| it.agent.other_disk_ranges.into(),
    ),
    metric(
        "agent_untold_pages",
        Counter,
        "Evicted pages that the agent could not tell of",
        |it| it.agent.untold_pages.into(),
    ),
    metric(
        "agent_broken_frames",
        Counter,
        "Messages that were damaged or unknown",
        |it| it.agent.broken_frames.into(),
    ),
];

fn seconds(micros: Option<f64>) -> Value {
    micros.map(|micros| micros / 1e6).into()
}
