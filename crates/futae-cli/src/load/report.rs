//! What came of a load.

use super::plan::{Layout, LoadPlan};
use futae_terminal::table::count;
use futae_units::Size;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

const MIB: f64 = (1u64 << 20) as f64;
/// Wrong reads that are told one by one.
const FAULTS_TOLD: usize = 3;
/// Digits of a time that are kept.
const DIGITS: u8 = 3;

/// What one thread did.
pub struct Tally {
    reads: u64,
    writes: u64,
    nanoseconds: Option<Histogram<u64>>,
    wrong: u64,
    faults: Vec<String>,
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            reads: 0,
            writes: 0,
            nanoseconds: Histogram::new(DIGITS).ok(),
            wrong: 0,
            faults: Vec::new(),
        }
    }

    fn time(&mut self, time: Duration) {
        if let Some(all) = &mut self.nanoseconds {
            // It grows to whatever is put in.
            let _ = all.record(time.as_nanos() as u64);
        }
    }

    /// A read that took so long.
    pub fn read(&mut self, time: Duration) {
        self.reads += 1;
        self.time(time);
    }

    /// A write that took so long.
    pub fn written(&mut self, time: Duration) {
        self.writes += 1;
        self.time(time);
    }

    /// A read that gave wrong data.
    pub fn wrong(&mut self, fault: impl FnOnce() -> String) {
        self.wrong += 1;
        if self.faults.len() < FAULTS_TOLD {
            self.faults.push(fault());
        }
    }

    fn add(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.wrong += other.wrong;
        self.faults.extend(other.faults);
        self.faults.truncate(FAULTS_TOLD);
        if let (Some(all), Some(more)) = (&mut self.nanoseconds, other.nanoseconds) {
            // Both hold whatever a histogram of their kind can.
            let _ = all.add(more);
        }
    }

    fn latency(&self) -> Latency {
        let Some(all) = self.nanoseconds.as_ref().filter(|all| !all.is_empty()) else {
            return Latency::default();
        };
        let seconds = |nanoseconds: u64| Some(nanoseconds as f64 / 1e9);
        Latency {
            mean: Some(all.mean() / 1e9),
            p50: seconds(all.value_at_quantile(0.5)),
            p99: seconds(all.value_at_quantile(0.99)),
            max: seconds(all.max()),
        }
    }
}

/// Times of single operations, in seconds; none without operations.
#[derive(Debug, Default, Serialize)]
pub struct Latency {
    mean: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

/// What came of a load; the fields are those of `futae load --json`.
#[derive(Debug, Serialize)]
pub struct Report {
    operations: u64,
    reads: u64,
    writes: u64,
    bytes: u64,
    seconds: f64,
    operations_per_second: f64,
    mib_per_second: f64,
    latency_seconds: Latency,
    /// Flushing what was written, at the end; not in `seconds`.
    sync_seconds: f64,
    verified: bool,
    /// Reads that gave wrong data.
    pub verify_errors: u64,
    /// The first of them, in words.
    pub faults: Vec<String>,
    files: u32,
    file_bytes: u64,
    operation_bytes: u64,
    choice: String,
    direct: bool,
    read_twice: bool,
    threads: usize,
    /// What was asked for.
    hit_us: Option<f64>,
    miss_us: Option<f64>,
    seed: u64,
    /// Pages of 4 KiB that the page cache held at the end, each range without its last number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_pages: Option<Vec<[u64; 2]>>,
    version: &'static str,
}

impl Report {
    /// Adds up what the threads did in this many seconds.
    pub fn new(
        plan: &LoadPlan,
        layout: &Layout,
        tallies: Vec<Tally>,
        seconds: f64,
        sync_seconds: f64,
    ) -> Self {
        let mut sum = Tally::new();
        tallies.into_iter().for_each(|tally| sum.add(tally));
        let operations = sum.reads + sum.writes;
        let bytes = operations * plan.operation_bytes;
        let rate = |what: f64| if seconds > 0.0 { what / seconds } else { 0.0 };
        Self {
            operations,
            reads: sum.reads,
            writes: sum.writes,
            bytes,
            seconds,
            operations_per_second: rate(operations as f64),
            mib_per_second: rate(bytes as f64 / MIB),
            latency_seconds: sum.latency(),
            sync_seconds,
            verified: plan.verify,
            verify_errors: sum.wrong,
            faults: sum.faults,
            files: layout.files,
            file_bytes: layout.file_bytes,
            operation_bytes: plan.operation_bytes,
            choice: plan.choice.clone(),
            direct: plan.direct,
            read_twice: plan.read_twice,
            threads: plan.threads,
            hit_us: plan.pace.map(|pace| pace.hit.as_secs_f64() * 1e6),
            miss_us: plan.pace.map(|pace| pace.miss.as_secs_f64() * 1e6),
            seed: plan.seed,
            resident_pages: None,
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    /// For people.
    pub fn render(&self) -> String {
        let size = Size::Bytes(self.operation_bytes);
        let ms = |seconds: Option<f64>| match seconds {
            Some(seconds) => format!("{:.3} ms", seconds * 1e3),
            None => "–".to_owned(),
        };
        let Latency {
            mean,
            p50,
            p99,
            max,
        } = self.latency_seconds;
        let mut text = format!(
            "{} operations of {size} in {:.2} s: {} reads, {} writes\n\
             {:.1} operations a second, {:.1} MiB a second\n\
             an operation: mean {}, median {}, 99 % within {}, longest {}\n",
            count(self.operations),
            self.seconds,
            count(self.reads),
            count(self.writes),
            self.operations_per_second,
            self.mib_per_second,
            ms(mean),
            ms(p50),
            ms(p99),
            ms(max),
        );
        if self.writes > 0 {
            text += &format!("flushed in {:.2} s at the end\n", self.sync_seconds);
        }
        if let Some(ranges) = &self.resident_pages {
            let pages = ranges.iter().map(|[from, to]| to - from).sum();
            text += &format!("{} pages are in the page cache\n", count(pages));
        }
        if self.verified {
            text += &format!("{} reads gave wrong data\n", count(self.verify_errors));
        }
        text
    }
}
