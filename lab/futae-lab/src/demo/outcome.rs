//! What came of it: measured, and predicted.

use super::stage::Counted;
use super::{BLOCK_BYTES, GUESTS, GuestsPlan, MEMORY_MIB};
use futae_sim::{LevelSpec, Link, SimulationSpec, WriteMode, simulate};
use futae_terminal::failure::Failure;
use futae_terminal::table::{Table, count, percent};
use serde::Serialize;

/// The order of the lower cache, blind and told: that of `futae serve --feed`.
const LOWER: &str = "exclusive(keep_served=true)";
/// That of the page cache, as the simulator has it.
const UPPER: &str = "linux";

/// Hit ratios as fractions, and reads of the store in blocks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Of the page caches.
    pub upper_hit: Option<f64>,
    /// Of the lower cache, of what the page caches missed.
    pub lower_hit: Option<f64>,
    /// Of both together.
    pub combined_hit: Option<f64>,
    /// Blocks read from the store, in total.
    pub store_reads: u64,
    /// Of these, those that somebody waited for.
    pub demand_reads: u64,
    /// Of these, those for notices.
    pub notice_reads: u64,
}

/// Blind, or told.
#[derive(Clone, Debug, Serialize)]
pub struct GuestsRun {
    /// Who tells what the page caches evict: `none` or `agent`.
    pub feed: &'static str,
    /// The lower policy.
    pub policy: &'static str,
    /// Measured.
    #[serde(flatten)]
    pub measured: Figures,
    /// Blocks that were told to have been evicted.
    pub notices: u64,
    /// Reads of all guests per second.
    pub reads_per_second: f64,
    /// Blocks that a page cache held of its disk in the end, on average.
    pub page_cache_blocks: u32,
    /// By simulation, with page caches of that size.
    pub predicted: Figures,
}

/// The whole demonstration.
#[derive(Clone, Debug, Serialize)]
pub struct GuestsReport {
    /// Blind, then told.
    pub runs: Vec<GuestsRun>,
    /// Guests.
    pub guests: u32,
    /// The guests' kernel.
    pub kernel: String,
    /// Memory of each guest.
    pub memory_mib: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of each guest's disk.
    pub image_blocks: u64,
    /// Slots of the lower cache.
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

impl Figures {
    /// What the simulator makes of reads like these, for page caches of a size.
    pub fn simulate(plan: &GuestsPlan, is_told: bool, upper_blocks: u32) -> Result<Self, Failure> {
        let level = |policy: &str, blocks: u32| -> Result<LevelSpec, Failure> {
            Ok(format!("{policy}:{blocks}blocks").parse()?)
        };
        let link = if is_told { Link::Notice } else { Link::None };
        let bytes = plan.image_blocks * BLOCK_BYTES;
        let all = |each: u64| Some(each.saturating_mul(u64::from(GUESTS)));
        let spec = SimulationSpec {
            levels: vec![
                level(UPPER, upper_blocks)?,
                level(LOWER, plan.lower_blocks)?,
            ],
            links: vec![link],
            write_mode: WriteMode::WriteThrough,
            guests: GUESTS,
            workload: format!("uniform:{bytes}").parse()?,
            block_bytes: BLOCK_BYTES,
            seed: plan.seed,
            warmup_requests: all(plan.warmup),
            requests: all(plan.reads),
        };
        let report = simulate(&spec, &mut |_| {})?;
        let run = &report.runs[0];
        Ok(Self {
            upper_hit: run.levels[0].hit_ratio,
            lower_hit: run.levels[1].hit_ratio,
            combined_hit: run.combined_hit_ratio,
            store_reads: run.store_reads + run.notice_reads,
            demand_reads: run.store_reads,
            notice_reads: run.notice_reads,
        })
    }
}

impl GuestsRun {
    /// Puts what was counted from one moment to the next beside what was expected.
    pub fn new(
        plan: &GuestsPlan,
        feed: &'static str,
        (before, after): &(Counted, Counted),
        page_cache_blocks: u32,
        predicted: Figures,
    ) -> Self {
        let lower = after.lower.counters.since(&before.lower.counters);
        let read = after.lower.store_read_blocks - before.lower.store_read_blocks;
        let notice_reads = after.lower.notice_reads - before.lower.notice_reads;
        let requests = plan.reads.saturating_mul(u64::from(GUESTS));
        let upper_hits = requests.saturating_sub(lower.requests);
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        Self {
            feed,
            policy: LOWER,
            measured: Figures {
                upper_hit: ratio(upper_hits, requests),
                lower_hit: ratio(lower.hits, lower.requests),
                combined_hit: ratio(upper_hits + lower.hits, requests),
                store_reads: read,
                demand_reads: read.saturating_sub(notice_reads),
                notice_reads,
            },
            notices: lower.notices_in,
            reads_per_second: requests as f64 / seconds,
            page_cache_blocks,
            predicted,
        }
    }
}

type OfRatios = fn(&Figures) -> Option<f64>;
type OfCounts = fn(&Figures) -> u64;

impl GuestsReport {
    /// The report of finished runs.
    pub fn new(plan: &GuestsPlan, kernel: String, runs: Vec<GuestsRun>) -> Self {
        Self {
            runs,
            guests: GUESTS,
            kernel,
            memory_mib: MEMORY_MIB,
            block_bytes: BLOCK_BYTES,
            image_blocks: plan.image_blocks,
            lower_blocks: plan.lower_blocks,
            warmup_requests: plan.warmup,
            requests: plan.reads,
            seed: plan.seed,
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    /// The report for people.
    pub fn render(&self) -> String {
        let mib = |blocks: u64| (blocks * self.block_bytes) >> 20;
        let caches = self.runs.iter().map(|run| {
            let held = mib(u64::from(run.page_cache_blocks));
            format!("{held} MiB")
        });
        let caches = caches.collect::<Vec<_>>().join(" and ");
        let mut text = format!(
            "{} guests with Linux {} in {} MiB, each of which reads its disk of {} MiB at random by {} bytes:\n\
             {} reads each after {} of warm-up, first blind, then with an agent in each guest\n\
             page caches of {caches} each, lower cache {} MiB for both guests, {LOWER}\n\n",
            self.guests,
            self.kernel,
            self.memory_mib,
            mib(self.image_blocks),
            self.block_bytes,
            count(self.requests),
            count(self.warmup_requests),
            mib(u64::from(self.lower_blocks)),
        );
        let mut table = Table::new(["", "feed", "live", "predicted"]);
        let mut rows = |name: &str, show: &dyn Fn(&Figures) -> String| {
            for (at, run) in self.runs.iter().enumerate() {
                let name = if at == 0 { name } else { "" };
                let cells = [name.to_owned(), run.feed.to_owned()];
                let [name, feed] = cells;
                table.row([name, feed, show(&run.measured), show(&run.predicted)]);
            }
        };
        let ratios: [(&str, OfRatios); 3] = [
            ("upper hit ratio", |of| of.upper_hit),
            ("lower hit ratio", |of| of.lower_hit),
            ("combined hit ratio", |of| of.combined_hit),
        ];
        for (name, of) in ratios {
            rows(name, &|side| percent(of(side)));
        }
        let counts: [(&str, OfCounts); 3] = [
            ("store reads, in total", |of| of.store_reads),
            ("  that a guest waits for", |of| of.demand_reads),
            ("  for notices", |of| of.notice_reads),
        ];
        for (name, of) in counts {
            rows(name, &|side| count(of(side)));
        }
        text.push_str(&table.render());
        if let [blind, told] = self.runs.as_slice() {
            text.push_str(&format!(
                "\nwith the agents' word the guests wait for {} store reads instead of {}; the store reads {} \
                 blocks instead of {}\n",
                count(told.measured.demand_reads),
                count(blind.measured.demand_reads),
                count(told.measured.store_reads),
                count(blind.measured.store_reads),
            ));
        }
        text
    }
}
