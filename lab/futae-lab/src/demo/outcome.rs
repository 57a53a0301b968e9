//! What came of it: measured, and predicted.

use super::stage::Counted;
use super::way::{Transport, Way};
use super::{BLOCK_BYTES, GUESTS, GuestsPlan};
use futae_engine::{EngineStatus, HandedDownStatus};
use futae_sim::{LevelSpec, SimulationSpec, WriteMode, simulate};
use futae_terminal::failure::Failure;
use serde::Serialize;

/// Hit ratios as fractions, and reads of the store in blocks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Of the page caches.
    pub upper_hit: Option<f64>,
    /// Of the lower cache, of what the page caches missed; none without a lower cache.
    pub lower_hit: Option<f64>,
    /// Of both together.
    pub combined_hit: Option<f64>,
    /// Blocks read from the store, in total.
    pub store_reads: u64,
    /// Of these, those that a guest waited for.
    pub demand_reads: u64,
    /// Of these, those for notices.
    pub notice_reads: u64,
}

/// What the simulator makes of a way.
pub struct Prediction;

/// One way.
#[derive(Clone, Debug, Serialize)]
pub struct GuestsRun {
    /// Which.
    pub way: Way,
    /// Who reports what the page caches evict: `none` or `agent`.
    pub feed: &'static str,
    /// The lower policy; none without a cache of futae's.
    pub policy: Option<&'static str>,
    /// Measured.
    #[serde(flatten)]
    pub measured: Figures,
    /// Blocks whose eviction was reported.
    pub notices: u64,
    /// Blocks that came with their data and were kept.
    pub demotions: u64,
    /// Blocks whose data were refused, since they were not what the cache last served or was given.
    pub refused: u64,
    /// Blocks with data that entered and were compared with the store.
    pub compared: u64,
    /// Those of them that were wrong.
    pub wrong: u64,
    /// Reads of all guests per second.
    pub guest_reads_per_second: f64,
    /// Memory of each guest.
    pub memory_mib: u32,
    /// Blocks that a page cache held of its disk in the end, on average.
    pub page_cache_blocks: u32,
    /// By simulation, with page caches of that size.
    pub predicted: Figures,
}

/// The whole demonstration.
#[derive(Clone, Debug, Serialize)]
pub struct GuestsReport {
    /// One for each way.
    pub runs: Vec<GuestsRun>,
    /// Guests.
    pub guests: u32,
    /// The guests' kernel.
    pub kernel: String,
    /// How the guests reached the disks of a server.
    pub disk: Transport,
    /// How the blocks were chosen.
    pub choice: String,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of each guest's disk.
    pub image_blocks: u64,
    /// Slots of the lower cache, or the same memory used otherwise.
    pub lower_blocks: u32,
    /// Reads of each guest before counting began.
    pub warmup_requests: u64,
    /// Reads of each guest that were counted.
    pub requests: u64,
    /// The seed of the reads.
    pub seed: u64,
    /// The version of futae.
    pub version: &'static str,
}

fn ratio(hits: u64, requests: u64) -> Option<f64> {
    (requests > 0).then(|| hits as f64 / requests as f64)
}

impl Prediction {
    /// Simulates reads like these, for page caches of a size.
    pub fn simulate(plan: &GuestsPlan, way: Way, upper_blocks: u32) -> Result<Figures, Failure> {
        let level = |policy: &str, blocks: u32| -> Result<LevelSpec, Failure> {
            Ok(format!("{policy}:{blocks}blocks").parse()?)
        };
        let mut levels = vec![level(way.simulated_upper(), upper_blocks)?];
        let mut links = Vec::new();
        if let Some(policy) = way.simulated_policy() {
            levels.push(level(policy, plan.lower_blocks)?);
            links.push(way.link());
        }
        // The last level is shared; a page cache without a level below is not, and all are alike.
        let (guests, alike) = match levels.len() {
            1 => (1, u64::from(GUESTS)),
            _ => (GUESTS, 1),
        };
        let all = |each: u64| Some(each.saturating_mul(u64::from(guests)));
        let spec = SimulationSpec {
            levels,
            links,
            write_mode: WriteMode::WriteThrough,
            guests,
            workload: plan.workload().parse()?,
            block_bytes: BLOCK_BYTES,
            seed: plan.seed,
            warmup_requests: all(plan.warmup),
            requests: all(plan.reads),
        };
        let report = simulate(&spec, &mut |_| {})?;
        let run = &report.runs[0];
        Ok(Figures {
            upper_hit: run.levels[0].hit_ratio,
            lower_hit: run.levels.get(1).and_then(|level| level.hit_ratio),
            combined_hit: run.combined_hit_ratio,
            store_reads: alike * (run.store_reads + run.notice_reads),
            demand_reads: alike * run.store_reads,
            notice_reads: alike * run.notice_reads,
        })
    }
}

impl Figures {
    /// What was counted from one moment to the next.
    fn measured(way: Way, requests: u64, (before, after): &(Counted, Counted)) -> Self {
        let disk_reads = after.disk_reads - before.disk_reads;
        let upper_hits = requests.saturating_sub(disk_reads);
        let (store_reads, notice_reads, hits) = match (&before.engine, &after.engine) {
            (Some(before), Some(after)) => {
                let lower = after.counters.since(&before.counters);
                // Blocks that are compared with the store are read for that alone.
                let compared = |status: &EngineStatus| status.handed_down.handed_down_compared;
                let read = after.store_read_blocks - before.store_read_blocks;
                let read = read.saturating_sub(compared(after) - compared(before));
                let for_notices = after.notice_reads - before.notice_reads;
                (read, for_notices, lower.hits)
            }
            _ if way == Way::Direct => (disk_reads, 0, 0),
            _ => {
                let read = after.image_reads - before.image_reads;
                (read, 0, disk_reads.saturating_sub(read))
            }
        };
        let has_lower = way != Way::Direct;
        Self {
            upper_hit: ratio(upper_hits, requests),
            lower_hit: ratio(hits, disk_reads).filter(|_| has_lower),
            combined_hit: ratio(upper_hits + hits, requests),
            store_reads,
            demand_reads: store_reads.saturating_sub(notice_reads),
            notice_reads,
        }
    }
}

impl GuestsRun {
    /// Puts what was counted from one moment to the next beside what was expected.
    pub fn new(
        plan: &GuestsPlan,
        way: Way,
        measured: &(Counted, Counted),
        page_cache_blocks: u32,
        predicted: Figures,
    ) -> Self {
        let requests = plan.reads.saturating_mul(u64::from(GUESTS));
        let (before, after) = measured;
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let handed_down = match (&before.engine, &after.engine) {
            (Some(before), Some(after)) => {
                let lower = after.counters.since(&before.counters);
                (lower.notices_in, lower.demotions_in)
            }
            _ => (0, 0),
        };
        let checked = |counted: &Counted| {
            let status = counted.engine.as_ref().map(|engine| engine.handed_down);
            status.unwrap_or_default()
        };
        let (from, to) = (checked(before), checked(after));
        let refused = |at: &HandedDownStatus| {
            at.handed_down_unknown + at.handed_down_different + at.handed_down_busy
        };
        Self {
            way,
            feed: if way == Way::Exclusive {
                "agent"
            } else {
                "none"
            },
            policy: way.served_policy(),
            measured: Figures::measured(way, requests, measured),
            notices: handed_down.0,
            demotions: handed_down.1,
            refused: refused(&to) - refused(&from),
            compared: to.handed_down_compared - from.handed_down_compared,
            wrong: to.handed_down_wrong - from.handed_down_wrong,
            guest_reads_per_second: requests as f64 / seconds,
            memory_mib: way.memory_mib(plan),
            page_cache_blocks,
            predicted,
        }
    }
}

impl GuestsReport {
    /// The report of finished runs.
    pub fn new(plan: &GuestsPlan, kernel: String, runs: Vec<GuestsRun>) -> Self {
        Self {
            runs,
            guests: GUESTS,
            kernel,
            disk: plan.transport,
            choice: plan.choice.clone(),
            block_bytes: BLOCK_BYTES,
            image_blocks: plan.image_blocks,
            lower_blocks: plan.lower_blocks,
            warmup_requests: plan.warmup,
            requests: plan.reads,
            seed: plan.seed,
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}
