//! What came of it: measured, predicted, and in closed form.

use crate::demo::DemoPlan;
use crate::demo::ratios::Ratios;
use crate::demo::readers::Measured;
use futae_policy::{Kind, Trait};
use futae_sim::theory;
use futae_terminal::table::{Table, count, percent};
use serde::Serialize;

/// One lower cache.
#[derive(Clone, Debug, Serialize)]
pub struct DemoRun {
    /// The lower policy.
    pub policy: String,
    /// What the upper cache sends of evicted blocks.
    pub link: &'static str,
    /// Measured.
    #[serde(flatten)]
    pub measured: Ratios,
    /// Reads of the store.
    pub store_reads: u64,
    /// Requests counted per second.
    pub reads_per_second: f64,
    /// Processor time that one of them took in seconds, in the readers, the mount, both caches and the server.
    pub processor_seconds_per_read: f64,
    /// By simulation of the same requests.
    pub predicted: Ratios,
    /// The lower hit ratio by theory, for uniform requests without end.
    pub closed_form: Option<f64>,
    /// Blocks demoted to the lower cache.
    pub demotions: u64,
}

/// The whole demonstration.
#[derive(Clone, Debug, Serialize)]
pub struct DemoReport {
    /// One for each lower cache.
    pub runs: Vec<DemoRun>,
    /// How requests reached the upper cache and the lower one.
    pub carrier: String,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of the disk image.
    pub image_blocks: u64,
    /// Slots of the upper cache.
    pub upper_blocks: u32,
    /// Slots of the lower cache.
    pub lower_blocks: u32,
    /// Requests before counting began.
    pub warmup_requests: usize,
    /// Requests counted.
    pub requests: usize,
    /// Threads that read.
    pub threads: usize,
    /// Seconds by which each read of the disk image was delayed.
    pub store_latency_seconds: f64,
    /// The seed of the requests.
    pub seed: u64,
    /// The version of futae.
    pub version: &'static str,
}

type OfRatios = fn(&Ratios) -> Option<f64>;
type OfRun = fn(&DemoRun) -> String;

fn ratio(hits: u64, requests: u64) -> Option<f64> {
    (requests > 0).then(|| hits as f64 / requests as f64)
}

impl DemoRun {
    /// Puts what was measured beside what was expected.
    pub fn new(plan: &DemoPlan, lower: Kind, measured: &Measured, predicted: Ratios) -> Self {
        let upper = measured.upper.1.counters.since(&measured.upper.0.counters);
        let below = measured.lower.1.counters.since(&measured.lower.0.counters);
        let store_reads = measured.lower.1.store_reads - measured.lower.0.store_reads;
        let link = if lower.traits().contains(&Trait::LivesOnDemotions) {
            "demote"
        } else {
            "inclusive"
        };
        Self {
            policy: lower.name().to_owned(),
            link,
            measured: Ratios {
                upper_hit: ratio(upper.hits, upper.requests),
                lower_hit: ratio(below.hits, below.requests),
                combined_hit: ratio(upper.hits + below.hits, upper.requests),
            },
            store_reads,
            reads_per_second: measured.requests as f64 / measured.seconds,
            processor_seconds_per_read: measured.processor_seconds / measured.requests as f64,
            predicted,
            closed_form: theory::uniform_lower_hit(
                lower.name(),
                f64::from(plan.upper_blocks),
                f64::from(plan.lower_blocks),
                plan.image_blocks as f64,
            ),
            demotions: below.demotions_in,
        }
    }
}

impl DemoReport {
    /// The report of finished runs.
    pub fn new(plan: &DemoPlan, carrier: String, runs: Vec<DemoRun>) -> Self {
        Self {
            runs,
            carrier,
            block_bytes: plan.block_bytes,
            image_blocks: plan.image_blocks,
            upper_blocks: plan.upper_blocks,
            lower_blocks: plan.lower_blocks,
            warmup_requests: plan.warmup_requests,
            requests: plan.requests.len() - plan.warmup_requests,
            threads: plan.threads,
            store_latency_seconds: plan.store_latency.as_secs_f64(),
            seed: plan.seed,
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    fn in_theory(&self, run: &DemoRun) -> Ratios {
        let upper = f64::from(self.upper_blocks);
        let upper = theory::uniform_upper_hit(upper, self.image_blocks as f64);
        Ratios {
            upper_hit: Some(upper),
            lower_hit: run.closed_form,
            combined_hit: Some(theory::combined(upper, run.closed_form)),
        }
    }

    /// The report for people.
    pub fn render(&self) -> String {
        let mib = |blocks: u64| (blocks * self.block_bytes) >> 20;
        let mut text = format!(
            "{} uniformly random reads of {} bytes from a disk image of {} MiB, after {} of warm-up\n\
             upper cache {} MiB (lru), lower cache {} MiB; {}{}\n\n",
            count(self.requests as u64),
            self.block_bytes,
            mib(self.image_blocks),
            count(self.warmup_requests as u64),
            mib(u64::from(self.upper_blocks)),
            mib(u64::from(self.lower_blocks)),
            self.carrier,
            match self.store_latency_seconds {
                0.0 => String::new(),
                seconds => format!("; each read of the image {} ms later", seconds * 1e3),
            },
        );
        let mut table = Table::new(["", "lower cache", "live", "predicted", "closed form"]);
        let name = |name: &str, at: usize| {
            if at == 0 {
                name.to_owned()
            } else {
                String::new()
            }
        };
        let ratios: [(&str, OfRatios); 3] = [
            ("upper hit ratio", |ratios| ratios.upper_hit),
            ("lower hit ratio", |ratios| ratios.lower_hit),
            ("combined hit ratio", |ratios| ratios.combined_hit),
        ];
        for (what, of) in ratios {
            for (at, run) in self.runs.iter().enumerate() {
                table.row([
                    name(what, at),
                    run.policy.clone(),
                    percent(of(&run.measured)),
                    percent(of(&run.predicted)),
                    percent(of(&self.in_theory(run))),
                ]);
            }
        }
        let counts: [(&str, OfRun); 2] = [
            ("store reads", |run| count(run.store_reads)),
            ("reads per second", |run| count(run.reads_per_second as u64)),
        ];
        for (what, of) in counts {
            for (at, run) in self.runs.iter().enumerate() {
                table.row([
                    name(what, at),
                    run.policy.clone(),
                    of(run),
                    String::new(),
                    String::new(),
                ]);
            }
        }
        text.push_str(&table.render());
        if let [lru, exclusive] = self.runs.as_slice() {
            text.push_str(&format!(
                "\nthe same memory, kept exclusive by demotion: {} store reads instead of {}\n",
                count(exclusive.store_reads),
                count(lru.store_reads)
            ));
        }
        text
    }
}
