//! Results, as they are written for other programs.

use super::latency::AccessTimes;
use super::traces::TraceFacts;
use super::{Bounds, Window};
use crate::link::Link;
use crate::machine::Served;
use crate::queueing::Latencies;
use crate::write_back::WriteMode;
use futae_policy::Counters;
use serde::Serialize;

/// What is printed by `futae sim --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// One for each hierarchy.
    pub runs: Vec<Run>,
    /// The seed of all runs.
    pub seed: u64,
    /// Stands for the whole stream of requests, warm-up included: equal digests, equal requests.
    pub trace_digest: String,
    /// What was read, if it was traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceFacts>,
    /// The version of futae.
    pub version: &'static str,
}

/// What came of one hierarchy. All counts are without the warm-up.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Top down.
    pub levels: Vec<LevelResult>,
    /// Between the levels, top down.
    pub links: Vec<Link>,
    /// When written data went to the store.
    pub write_mode: WriteMode,
    /// Requests that some level served, per request; none where there were no requests.
    pub combined_hit_ratio: Option<f64>,
    /// Requests that no level could serve, per request.
    pub miss_ratio: Option<f64>,
    /// Bytes of those requests, per byte asked for: by the length of each request where a request
    /// is one block whatever its length; otherwise all blocks are equal.
    pub byte_miss_ratio: Option<f64>,
    /// Reads that no level could serve, per read.
    pub read_miss_ratio: Option<f64>,
    /// Requests that were reads.
    pub reads: u64,
    /// Requests that were writes.
    pub writes: u64,
    /// Where the requests were served: at each level, top down, and last by the store.
    pub served: Vec<Served>,
    /// The same by guest, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_guest: Vec<GuestResult>,
    /// Between what bounds the best caches of these sizes would be, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Bounds>,
    /// The same over time, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<WindowResult>,
    /// How long requests take, if that was asked for.
    #[serde(flatten)]
    pub access_times: Option<AccessTimes>,
    /// How long reads and writes took that waited for each other, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latencies: Option<Latencies>,
    /// Reads that no level could serve.
    pub store_reads: u64,
    /// Writes that reached the store: all of them under write-through; under write-back those that
    /// every level bypassed, and dirty blocks that were evicted.
    pub store_writes: u64,
    /// Dirty blocks that the levels evicted and so wrote down; none under write-through.
    pub dirty_evictions: u64,
    /// Blocks that the levels hold dirty at the end.
    pub dirty_blocks: u64,
    /// Blocks that they held dirty when counting began.
    pub dirty_blocks_at_start: u64,
    /// The requests that were writes by the level that took them, top down, the store last.
    pub writes_taken: Vec<u64>,
    /// Reads that only filled a level after an eviction notice. They are not in `store_reads`.
    pub notice_reads: u64,
    /// Reads of blocks that policies asked for by themselves. They are not in `store_reads`.
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
    /// Wall-clock time, warm-up included.
    pub seconds: f64,
}

/// What came of the requests of one window.
#[derive(Clone, Debug, Serialize)]
pub struct WindowResult {
    /// Where it begins, in requests that are counted.
    pub begin_requests: u64,
    /// Where it begins, in seconds from the first request of all; none of windows of as many requests.
    pub begin_seconds: Option<f64>,
    /// Its requests.
    pub requests: u64,
    /// Where they were served: at each level, top down, and last by the store.
    pub served: Vec<Served>,
    /// Requests that some level served, per request; none where there were no requests.
    pub combined_hit_ratio: Option<f64>,
    /// The hit ratio of each level, top down; none where it was asked for nothing.
    pub hit_ratios: Vec<Option<f64>>,
    /// Reads from the store, those for notices and preloads included.
    pub store_reads: u64,
    /// Writes to the store.
    pub store_writes: u64,
}

impl Run {
    /// Notes the windows of the run, and where those of time begin.
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

/// What came of the requests of one guest.
#[derive(Clone, Debug, Serialize)]
pub struct GuestResult {
    /// The guest, from 0.
    pub guest: u32,
    /// The trace or the workload.
    pub source: String,
    /// The blocks of its own levels, top down, without the one that is shared.
    pub capacities_blocks: Vec<u64>,
    /// Requests counted.
    pub requests: u64,
    /// Requests that were reads.
    pub reads: u64,
    /// Requests that were writes.
    pub writes: u64,
    /// Where they were served: at each level, top down, and last by the store.
    pub served: Vec<Served>,
    /// Requests that some level served, per request; none where there were no requests.
    pub combined_hit_ratio: Option<f64>,
    /// Requests that no level could serve, per request.
    pub miss_ratio: Option<f64>,
    /// Bytes of those requests, per byte asked for.
    pub byte_miss_ratio: Option<f64>,
    /// Reads that no level could serve, per read.
    pub read_miss_ratio: Option<f64>,
}

/// What came of one level; of a level that each guest has, the sum.
#[derive(Clone, Debug, Serialize)]
pub struct LevelResult {
    /// The policy, as written.
    pub policy: String,
    /// Blocks that it, or each guest's copy of it, can hold; of copies that differ, the largest.
    pub capacity_blocks: u64,
    /// How many of it there are: one for each guest, or one that is shared.
    pub copies: u32,
    /// Its counts.
    #[serde(flatten)]
    pub counters: Counters,
    /// Hits per request; none where there were no requests.
    pub hit_ratio: Option<f64>,
    /// Writes that found their block dirty; none under write-through, as all that follow.
    pub overwrites: u64,
    /// Dirty blocks that were evicted, and written down.
    pub dirty_evictions: u64,
    /// Blocks that are dirty at the end.
    pub dirty_blocks: u64,
    /// What a policy that chooses among others has chosen, in order, with its reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policy_changes: Vec<String>,
}
