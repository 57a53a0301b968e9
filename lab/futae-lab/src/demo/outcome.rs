//! What came of it: measured, and predicted.

use super::plan::{BLOCK_BYTES, GUESTS, GuestsPlan};
use super::stage::Counted;
use super::way::{Transport, Way};
use futae_engine::{DemotionStatus, EngineStatus};
use futae_sim::run::guest_seed;
use futae_sim::{LevelSpec, SimulationSpec, WriteMode, simulate};
use futae_terminal::failure::Failure;
use serde::Serialize;

/// Hit ratios as fractions, and reads of the store in blocks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Reads of the guests that the page caches answered, of all their reads.
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
pub struct Prediction {
    figures: Figures,
    /// Operations of all guests that were reads: the guests do the same ones.
    reads: u64,
}

/// What is known of the guests of a run.
pub struct Guests {
    /// Their kernel.
    pub kernel: String,
    /// Blocks that a page cache held in the end, on average.
    pub page_cache_blocks: u32,
}

/// One way.
#[derive(Clone, Debug, Serialize)]
pub struct GuestsRun {
    /// Which.
    pub way: Way,
    /// The guests' kernel.
    pub kernel: String,
    /// How the guests reached their disks, if a server had them.
    pub disk: Option<Transport>,
    /// How the blocks were chosen.
    pub choice: String,
    /// What each operation of the store took longer, in microseconds.
    pub store_latency_us: u64,
    /// Who reports what the page caches evict: `none` or `agent`.
    pub feed: &'static str,
    /// The lower policy; none without a cache of futae's.
    pub policy: Option<&'static str>,
    /// Measured.
    #[serde(flatten)]
    pub measured: Figures,
    /// Blocks whose eviction was told of without their data.
    pub notices: u64,
    /// Of the evicted blocks that were told of, those that came with their data; none if no agent told.
    pub with_data: Option<f64>,
    /// Blocks that came with their data and were kept.
    pub demotions: u64,
    /// Blocks whose data were refused, since they were not what the cache last served or was given.
    pub refused: u64,
    /// Blocks with data that entered and were compared with the store.
    pub compared: u64,
    /// Those of them that were wrong.
    pub wrong: u64,
    /// Operations of all guests per second.
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
    /// The guests' kernel, in the first run.
    pub kernel: String,
    /// How the guests reached the disks of a server, in the first run.
    pub disk: Transport,
    /// How the blocks were chosen, in the first run.
    pub choice: String,
    /// The share of writes.
    pub writes: f64,
    /// Whether the guests read and wrote a file.
    pub files: bool,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of each guest's disk.
    pub image_blocks: u64,
    /// Slots of the lower cache, or the same memory used otherwise.
    pub lower_blocks: u32,
    /// Operations of each guest before counting began.
    pub warmup_requests: u64,
    /// Operations of each guest that were counted.
    pub requests: u64,
    /// The seed of the operations.
    pub seed: u64,
    /// The version of futae.
    pub version: &'static str,
}

fn ratio(hits: u64, requests: u64) -> Option<f64> {
    (requests > 0).then(|| hits as f64 / requests as f64)
}

impl Prediction {
    /// Simulates the same operations, for page caches of a size.
    pub fn simulate(plan: &GuestsPlan, way: Way, upper_blocks: u32) -> Result<Self, Failure> {
        let level = |policy: &str, blocks: u32| -> Result<LevelSpec, Failure> {
            Ok(format!("{policy}:{blocks}blocks").parse()?)
        };
        let mut levels = vec![level(way.simulated_upper(), upper_blocks)?];
        let mut links = Vec::new();
        if let Some(policy) = way.simulated_policy() {
            levels.push(level(policy, plan.lower_blocks)?);
            links.push(way.link());
        }
        let spec = |guests: u32, seed: u64| -> Result<SimulationSpec, Failure> {
            let all = |each: u64| Some(each.saturating_mul(u64::from(guests)));
            Ok(SimulationSpec {
                levels: levels.clone(),
                links: links.clone(),
                // The guests' kernels write back, and what they evict is clean by then.
                write_mode: WriteMode::WriteBack,
                guests,
                workload: plan.workload().parse()?,
                block_bytes: BLOCK_BYTES,
                seed,
                warmup_requests: all(plan.warmup),
                requests: all(plan.reads),
            })
        };
        // The last level is shared, and a page cache is not.
        let specs = match way.has_lower() {
            true => vec![spec(GUESTS, plan.seed)?],
            false => {
                let seeds = (0..u64::from(GUESTS)).map(|guest| guest_seed(plan.seed, guest));
                seeds.map(|seed| spec(1, seed)).collect::<Result<_, _>>()?
            }
        };
        let (mut reads, mut upper, mut lower) = (0, 0, 0);
        let (mut demand_reads, mut notice_reads) = (0, 0);
        for spec in &specs {
            let report = simulate(spec, &mut |_| {})?;
            let run = &report.runs[0];
            let served = |level: usize| run.served.get(level).map_or(0, |served| served.reads);
            reads += run.reads;
            upper += served(0);
            lower += if way.has_lower() { served(1) } else { 0 };
            demand_reads += run.store_reads;
            notice_reads += run.notice_reads;
        }
        let figures = Figures {
            upper_hit: ratio(upper, reads),
            lower_hit: ratio(lower, reads - upper).filter(|_| way.has_lower()),
            combined_hit: ratio(upper + lower, reads),
            store_reads: demand_reads + notice_reads,
            demand_reads,
            notice_reads,
        };
        Ok(Self { figures, reads })
    }
}

impl Figures {
    /// What was counted from one moment to the next, in which the guests did this many reads.
    fn measured(way: Way, reads: u64, (before, after): &(Counted, Counted)) -> Self {
        let disk_reads = after.disk_reads - before.disk_reads;
        let (store_reads, notice_reads) = match (&before.engine, &after.engine) {
            (Some(before), Some(after)) => {
                // Blocks that are compared with the store are read for that alone.
                let compared = |status: &EngineStatus| status.demotions.demotions_compared;
                let read = after.store_read_blocks - before.store_read_blocks;
                let read = read.saturating_sub(compared(after) - compared(before));
                (read, after.notice_reads - before.notice_reads)
            }
            _ if way.has_lower() => (after.image_reads - before.image_reads, 0),
            _ => (disk_reads, 0),
        };
        let demand_reads = store_reads.saturating_sub(notice_reads);
        let (upper, lower) = (
            reads.saturating_sub(disk_reads),
            disk_reads.saturating_sub(demand_reads),
        );
        Self {
            upper_hit: ratio(upper, reads),
            lower_hit: ratio(lower, disk_reads).filter(|_| way.has_lower()),
            combined_hit: ratio(upper + lower, reads),
            store_reads,
            demand_reads,
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
        guests: Guests,
        predicted: Prediction,
    ) -> Self {
        let requests = plan.reads.saturating_mul(u64::from(GUESTS));
        let (before, after) = measured;
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let demotions = match (&before.engine, &after.engine) {
            (Some(before), Some(after)) => {
                let lower = after.counters.since(&before.counters);
                (lower.notices_in, lower.demotions_in)
            }
            _ => (0, 0),
        };
        let checked = |counted: &Counted| {
            let status = counted.engine.as_ref().map(|engine| engine.demotions);
            status.unwrap_or_default()
        };
        let (from, to) = (checked(before), checked(after));
        let refused =
            |at: &DemotionStatus| at.demotions_unknown + at.demotions_different + at.demotions_busy;
        let came =
            |at: &DemotionStatus| at.demotions_verified + at.demotions_resident + refused(at);
        let (refused, came) = (refused(&to) - refused(&from), came(&to) - came(&from));
        // What is refused is taken for a notice.
        let notices = demotions.0.saturating_sub(refused);
        Self {
            way,
            kernel: guests.kernel,
            disk: way.served_policy().map(|_| plan.transport),
            choice: plan.choice.clone(),
            store_latency_us: plan.store_latency.as_micros() as u64,
            feed: if way == Way::Exclusive {
                "agent"
            } else {
                "none"
            },
            policy: way.served_policy(),
            measured: Figures::measured(way, predicted.reads, measured),
            notices,
            with_data: ratio(came, came + notices),
            demotions: demotions.1,
            refused,
            compared: to.demotions_compared - from.demotions_compared,
            wrong: to.demotions_wrong - from.demotions_wrong,
            guest_reads_per_second: requests as f64 / seconds,
            memory_mib: plan.memory_mib(way),
            page_cache_blocks: guests.page_cache_blocks,
            predicted: predicted.figures,
        }
    }
}

impl GuestsReport {
    /// The report of finished runs.
    pub fn new(plan: &GuestsPlan, runs: Vec<GuestsRun>) -> Self {
        Self {
            kernel: runs
                .first()
                .map_or_else(String::new, |run| run.kernel.clone()),
            runs,
            guests: GUESTS,
            disk: plan.transport,
            choice: plan.choice.clone(),
            writes: plan.writes,
            files: plan.files,
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
