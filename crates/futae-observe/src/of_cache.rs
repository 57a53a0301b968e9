//! Every metric of a cache and of an export: its name, its kind, its unit, what it means and how its value is taken.

use crate::metric::Kind::{Counter, Gauge};
use crate::metric::{Durations, Metric, Value, metric};
use crate::snapshot::OneExport;
use futae_control::EngineReport;
use futae_host::RateReport;

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
    metric(
        "cache_buffer_bytes",
        Gauge,
        "Memory of the buffers of reads from stores and of write-backs",
        |it| it.engine.buffer_bytes.into(),
    ),
    metric(
        "cache_loading_bytes",
        Gauge,
        "Size of the blocks that have a place and not yet their data",
        |it| (it.engine.loading_blocks * it.engine.block_bytes).into(),
    ),
    metric("cache_requests", Counter, "Blocks requested", |it| {
        it.engine.counters.requests.into()
    }),
    metric(
        "cache_hits",
        Counter,
        "Requested blocks that were in the cache",
        |it| it.engine.counters.hits.into(),
    ),
    metric(
        "cache_misses",
        Counter,
        "Requested blocks that were not in the cache",
        |it| it.engine.counters.misses.into(),
    ),
    metric(
        "cache_admissions",
        Counter,
        "Blocks placed, by any kind of access",
        |it| it.engine.counters.admissions.into(),
    ),
    metric(
        "cache_evictions",
        Counter,
        "Blocks evicted to make room",
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
        "Blocks demoted to this cache",
        |it| it.engine.counters.demotions_in.into(),
    ),
    metric(
        "cache_demotions_out",
        Counter,
        "Blocks that this cache demoted",
        |it| it.engine.counters.demotions_out.into(),
    ),
    metric(
        "cache_demotions_refused",
        Counter,
        "Demoted blocks that were refused",
        |it| it.engine.demotions_refused.into(),
    ),
    metric(
        "cache_demotions_declined",
        Counter,
        "Blocks demoted that the policy did not keep",
        |it| it.engine.counters.demotions_declined.into(),
    ),
    metric(
        "cache_demoted_in_bytes",
        Counter,
        "Data demoted to this cache",
        |it| it.engine.bytes_demoted_in.into(),
    ),
    metric(
        "cache_demoted_out_bytes",
        Counter,
        "Data that this cache demoted",
        |it| it.engine.bytes_demoted_out.into(),
    ),
    metric(
        "cache_notices_in",
        Counter,
        "Blocks whose eviction above an agent or a client reported",
        |it| it.engine.counters.notices_in.into(),
    ),
    metric(
        "cache_notices_dropped",
        Counter,
        "Blocks of notices that were dropped because too many waited",
        |it| it.engine.notices_dropped.into(),
    ),
    metric(
        "cache_notices_pending_blocks",
        Gauge,
        "Blocks of notices that wait for a decision or are being read",
        |it| it.engine.notices_pending_blocks.into(),
    ),
    metric(
        "cache_demotions_verified",
        Counter,
        "Blocks demoted whose data was as the cache last knew it",
        |it| it.engine.demotions.demotions_verified.into(),
    ),
    metric(
        "cache_demotions_different",
        Counter,
        "Blocks demoted whose data was different: forged, stale or torn",
        |it| it.engine.demotions.demotions_different.into(),
    ),
    metric(
        "cache_demotions_unknown",
        Counter,
        "Blocks demoted of which no hash was known",
        |it| it.engine.demotions.demotions_unknown.into(),
    ),
    metric(
        "cache_memory_found_blocks",
        Gauge,
        "Blocks that were found in the memory file at the start",
        |it| it.engine.memory.memory_found_blocks.into(),
    ),
    metric(
        "cache_memory_verified_blocks",
        Counter,
        "Blocks found in the memory file whose hash was right at their first request",
        |it| it.engine.memory.memory_verified_blocks.into(),
    ),
    metric(
        "cache_memory_refused_blocks",
        Counter,
        "Blocks found in the memory file that had another hash, and were read from the store",
        |it| it.engine.memory.memory_refused_blocks.into(),
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
        "Blocks read from stores because the policy or --state requested them",
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
        "Writes that waited because too much was dirty",
        |it| it.engine.throttled_writes.into(),
    ),
    metric(
        "cache_errors",
        Counter,
        "Requests that failed, and reads from stores that failed",
        |it| it.engine.errors.into(),
    ),
];

/// The limits of an export of a server, and what they held back.
fn rates(one: &OneExport) -> Option<&RateReport> {
    one.export.as_ref().map(|export| &export.rates)
}

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
        "export_requests_limit",
        Gauge,
        "Limit on requests per second, iops=",
        |it| rates(it).and_then(|rates| rates.iops_limit).into(),
    ),
    metric(
        "export_bandwidth_limit_bytes",
        Gauge,
        "Limit on bytes per second, bandwidth=",
        |it| {
            rates(it)
                .and_then(|rates| rates.bandwidth_limit_bytes)
                .into()
        },
    ),
    metric(
        "export_delayed_requests",
        Counter,
        "Requests that waited for their turn at these limits",
        |it| rates(it).map(|rates| rates.delayed_requests).into(),
    ),
    metric(
        "export_delayed_seconds",
        Counter,
        "Total time that they waited",
        |it| rates(it).map(|rates| rates.delayed_seconds).into(),
    ),
    metric(
        "export_weight",
        Gauge,
        "Weight of the export among the requests in flight, weight=",
        |it| {
            rates(it)
                .and_then(|rates| rates.weight.map(u64::from))
                .into()
        },
    ),
    metric(
        "export_held_requests",
        Counter,
        "Requests that waited because as many were in flight as --requests-max allows",
        |it| rates(it).map(|rates| rates.held_requests).into(),
    ),
    metric(
        "export_blind",
        Gauge,
        "1: an exclusive cache, and no client or agent reports evictions above",
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
    metric("export_requests", Counter, "Blocks requested", |it| {
        it.volume.requests.into()
    }),
    metric(
        "export_hits",
        Counter,
        "Requested blocks that were in the cache",
        |it| it.volume.hits.into(),
    ),
    metric(
        "export_misses",
        Counter,
        "Requested blocks that were not in the cache",
        |it| it.volume.misses.into(),
    ),
    metric("export_demotions_in", Counter, "Blocks demoted", |it| {
        it.volume.demotions_in.into()
    }),
    metric(
        "export_notices_in",
        Counter,
        "Blocks whose eviction above an agent or a client reported",
        |it| it.volume.notices_in.into(),
    ),
    metric(
        "export_demotions_different",
        Counter,
        "Blocks demoted whose data was different",
        |it| it.volume.demotions_different.into(),
    ),
    metric(
        "export_store_reads",
        Counter,
        "Read operations sent to the store",
        |it| it.volume.store_reads.into(),
    ),
    metric(
        "export_store_buffered_fallbacks",
        Counter,
        "Store operations past O_DIRECT or io_uring",
        |it| it.volume.store_buffered_fallbacks.into(),
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
        "export_resident_bytes",
        Gauge,
        "Size of its blocks in the cache",
        |it| (it.volume.resident_blocks * it.block_bytes).into(),
    ),
    metric(
        "double_cached_bytes",
        Gauge,
        "Size of the blocks in the cache that clients also read and whose eviction they have not reported",
        |it| it.volume.double_cached_bytes.into(),
    ),
    metric(
        "export_store_read_seconds",
        Gauge,
        "Time of a read from the store per block: a moving average",
        |it| seconds(it.volume.read_micros),
    ),
    metric(
        "export_store_read_p99_seconds",
        Gauge,
        "99th percentile of the time of a read per block",
        |it| seconds(it.volume.read_micros_p99),
    ),
    metric(
        "export_store_write_seconds",
        Gauge,
        "Time of a write to the store per block: a moving average",
        |it| seconds(it.volume.write_micros),
    ),
    metric(
        "export_store_write_p99_seconds",
        Gauge,
        "99th percentile of the time of a write per block",
        |it| seconds(it.volume.write_micros_p99),
    ),
];

/// How long requests for an export took. Labels: those of an export, and `operation`.
pub(crate) const DURATIONS: &[Durations<OneExport>] = &[
    Durations {
        name: "export_request_duration_seconds",
        help: "Time of a request of a client, from when it was taken to its answer",
        value: |it| &it.volume.latencies,
    },
    Durations {
        name: "export_store_duration_seconds",
        help: "Time of an operation of the store, of any number of blocks",
        value: |it| &it.volume.store_latencies,
    },
];

/// How long requests for the files of a tree took. Labels: those of a cache, and `operation`.
pub(crate) const TREE_DURATIONS: &[Durations<EngineReport>] = &[
    Durations {
        name: "tree_request_duration_seconds",
        help: "Time of a request for a file of a tree, from when it was taken to its answer",
        value: |it| &it.engine.tree_latencies,
    },
    Durations {
        name: "tree_store_duration_seconds",
        help: "Time of an operation on a file of the source, however many blocks it has",
        value: |it| &it.engine.tree_store_latencies,
    },
];

fn seconds(micros: Option<f64>) -> Value {
    micros.map(|micros| micros / 1e6).into()
}
