//! Results in the form in which they are written for other programs.

use super::counts::Window;
use super::facts::TraceFacts;
use super::latency::{AccessTimes, Latency};
use crate::link::Link;
use crate::machine::Served;
use crate::queueing::{Latencies, Times};
use crate::write_back::WriteMode;
use futae_policy::Counters;
use serde::Serialize;

/// The output of `futae sim --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// One for each hierarchy.
    pub runs: Vec<Run>,
    /// What asked: the traces or workloads, one for each guest, or one that all guests have a copy of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// The seed of all runs.
    pub seed: u64,
    /// A digest of all requests, including the warm-up: equal digests mean equal requests.
    pub trace_digest: String,
    /// Facts about the traces, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceFacts>,
    /// The version of futae.
    pub version: &'static str,
}

impl Report {
    /// A report without facts about traces.
    pub(super) fn of(runs: Vec<Run>, seed: u64, trace_digest: String) -> Self {
        Self {
            runs,
            sources: Vec::new(),
            seed,
            trace_digest,
            trace: None,
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// The results of one hierarchy. All counts exclude the warm-up.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Top down.
    pub levels: Vec<LevelResult>,
    /// The links between the levels, top down.
    pub links: Vec<Link>,
    /// When written data went to the store.
    pub write_mode: WriteMode,
    /// Requests that some level served, per request; `None` without requests.
    pub combined_hit_ratio: Option<f64>,
    /// Requests that no level served, per request.
    pub miss_ratio: Option<f64>,
    /// Bytes of those requests, per byte requested. Each request has its own length if a request is
    /// one block whatever its length; otherwise all blocks are equal.
    pub byte_miss_ratio: Option<f64>,
    /// Reads that no level served, per read.
    pub read_miss_ratio: Option<f64>,
    /// Requests that were reads.
    pub reads: u64,
    /// Requests that were writes.
    pub writes: u64,
    /// Where the requests were served: at each level, top down, and last by the store.
    pub served: Vec<Served>,
    /// The same by guest, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_guest: Vec<GuestResult>,
    /// Bounds for the best caches of these sizes, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Bounds>,
    /// The results over time, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<WindowResult>,
    /// Latencies, if requested.
    #[serde(flatten)]
    pub access_times: Option<AccessTimes>,
    /// Latencies with queueing, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latencies: Option<Latencies>,
    /// What came of each guest's requests in time, in a closed loop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pace_by_guest: Vec<GuestPace>,
    /// Reads that no level served.
    pub store_reads: u64,
    /// Writes that reached the store: all of them under write-through; under write-back those that
    /// every level bypassed, and evicted dirty blocks.
    pub store_writes: u64,
    /// Dirty blocks that the levels evicted and wrote down; 0 under write-through.
    pub dirty_evictions: u64,
    /// Dirty blocks in the levels at the end.
    pub dirty_blocks: u64,
    /// Dirty blocks in the levels when counting began.
    pub dirty_blocks_at_start: u64,
    /// The writes among the requests by the level that accepted them, top down, the store last.
    pub writes_taken: Vec<u64>,
    /// Reads to fill a level after an eviction notice, not included in `store_reads`.
    pub notice_reads: u64,
    /// Reads of blocks that policies requested themselves, not included in `store_reads`.
    pub preload_reads: u64,
    /// Requests counted.
    pub requests: u64,
    /// Requests before counting began.
    pub warmup_requests: u64,
    /// Size of a block.
    pub block_bytes: u64,
    /// Guests.
    pub guests: u32,
    /// Blocks that the requests can be for, of all guests together.
    pub footprint_blocks: u64,
    /// Wall-clock time, including the warm-up.
    pub seconds: f64,
}

/// Bounds on the requests per request served by the levels down to each one, top down.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// The result of levels that are each optimal for the requests that reach them (OPT-LB).
    pub lower: Vec<Option<f64>>,
    /// The limit for any caches of these sizes (OPT-UB).
    pub upper: Vec<Option<f64>>,
}

/// The results of one window.
#[derive(Clone, Debug, Serialize)]
pub struct WindowResult {
    /// Its start, in counted requests.
    pub begin_requests: u64,
    /// Its start, in seconds from the first request of all; `None` for windows of equally many
    /// requests.
    pub begin_seconds: Option<f64>,
    /// Its requests.
    pub requests: u64,
    /// Where they were served: at each level, top down, and last by the store.
    pub served: Vec<Served>,
    /// Requests that some level served, per request; `None` without requests.
    pub combined_hit_ratio: Option<f64>,
    /// The hit ratio of each level, top down; `None` for a level without requests.
    pub hit_ratios: Vec<Option<f64>>,
    /// Reads from the store, including those for notices and preloads.
    pub store_reads: u64,
    /// Writes to the store.
    pub store_writes: u64,
}

impl Run {
    /// Adds the latencies of the requests under `latency`.
    pub fn set_latency(&mut self, latency: &Latency) {
        self.access_times = Some(latency.access_times(&self.served, &self.writes_taken));
    }

    /// Adds the latencies of requests that waited for each other.
    pub fn set_latencies(&mut self, latencies: Latencies) {
        let all = &latencies.all;
        self.access_times = Some(AccessTimes {
            mean_access_seconds: all.mean_seconds,
            p50_access_seconds: all.p50_seconds,
            p90_access_seconds: all.p90_seconds,
            p99_access_seconds: all.p99_seconds,
        });
        self.latencies = Some(latencies);
    }

    /// Sets the windows of the run, and the starts of windows by time.
    pub fn set_windows(&mut self, windows: &[Window], begins: Option<Vec<f64>>) {
        let mut begin = 0;
        let result = |(at, window): (usize, &Window)| {
            let requests = window.requests();
            let store = window.served.last().map_or(0, |at| at.reads + at.writes);
            begin += requests;
            WindowResult {
                begin_requests: begin - requests,
                begin_seconds: begins.as_ref().and_then(|begins| begins.get(at).copied()),
                requests,
                served: window.served.clone(),
                combined_hit_ratio: (requests > 0)
                    .then(|| (requests - store) as f64 / requests as f64),
                hit_ratios: window.counters.iter().map(Counters::hit_ratio).collect(),
                store_reads: window.store_reads,
                store_writes: window.store_writes,
            }
        };
        self.windows = windows.iter().enumerate().map(result).collect();
    }
}

/// The results of one guest.
#[derive(Clone, Debug, Serialize)]
pub struct GuestResult {
    /// The guest, from 0.
    pub guest: u32,
    /// The trace or the workload.
    pub source: String,
    /// The capacities of its own levels, top down, without the shared one.
    pub capacities_blocks: Vec<u64>,
    /// Requests counted.
    pub requests: u64,
    /// Requests that were reads.
    pub reads: u64,
    /// Requests that were writes.
    pub writes: u64,
    /// Where they were served: at each level, top down, and last by the store.
    pub served: Vec<Served>,
    /// Requests that some level served, per request; `None` without requests.
    pub combined_hit_ratio: Option<f64>,
    /// Requests that no level served, per request.
    pub miss_ratio: Option<f64>,
    /// Bytes of those requests, per byte asked for.
    pub byte_miss_ratio: Option<f64>,
    /// Reads that no level served, per read.
    pub read_miss_ratio: Option<f64>,
}

/// The results of one level; for a level that each guest has, the sum.
#[derive(Clone, Debug, Serialize)]
pub struct LevelResult {
    /// The policy, as written.
    pub policy: String,
    /// The capacity in blocks of the level, or of each guest's copy; of copies that differ, the
    /// largest.
    pub capacity_blocks: u64,
    /// The number of copies: one per guest, or one shared.
    pub copies: u32,
    /// The capacity in blocks of all copies together.
    pub all_copies_blocks: u64,
    /// Its counters.
    #[serde(flatten)]
    pub counters: Counters,
    /// Hits per request; `None` without requests.
    pub hit_ratio: Option<f64>,
    /// Writes that found their block dirty; 0 under write-through, as for the following
    /// fields.
    pub overwrites: u64,
    /// Dirty blocks that were evicted and written down.
    pub dirty_evictions: u64,
    /// Blocks that are dirty at the end.
    pub dirty_blocks: u64,
    /// The choices of a policy that chooses among others, in order, with reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policy_changes: Vec<String>,
}

/// What came of one guest's requests in a closed loop. Counts exclude the warm-up. A request is one
/// of the trace, of one or several blocks; it is answered with its last block.
#[derive(Clone, Debug, Serialize)]
pub struct GuestPace {
    /// The guest, from 0.
    pub guest: u32,
    /// Latencies of its requests.
    pub times: Times,
    /// When its last request was answered, in seconds from the first request of all guests, warm-up
    /// included.
    pub finish_seconds: f64,
    /// Its requests per second from its first to its last answer; `None` if that takes no time.
    pub requests_per_second: Option<f64>,
    /// Requests that the recording sent before the previous one was answered, as far as it has
    /// latencies. They follow that answer at once here.
    pub overlapped_requests: u64,
}
