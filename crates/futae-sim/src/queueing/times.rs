//! What came of it.

use hdrhistogram::Histogram;
use serde::Serialize;

/// How long requests of one kind took, in seconds; none where there were none. Percentiles are at most 0.1 % too high.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// Requests.
    pub requests: u64,
    /// On average.
    pub mean_seconds: Option<f64>,
    /// Half of the requests took no longer.
    pub p50_seconds: Option<f64>,
    /// Nine of ten took no longer.
    pub p90_seconds: Option<f64>,
    /// 99 of 100 took no longer.
    pub p99_seconds: Option<f64>,
    /// 999 of 1,000 took no longer.
    pub p999_seconds: Option<f64>,
    /// The longest.
    pub max_seconds: Option<f64>,
}

/// How busy a place was that works on a number of requests at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StationResult {
    /// Requests at a time.
    pub width: u32,
    /// The share of its time in which it worked, from 0 to 1.
    pub utilisation: f64,
    /// How long work waited for its turn, on average.
    pub mean_wait_seconds: f64,
}

/// How long requests took that waited for each other.
#[derive(Clone, Debug, Serialize)]
pub struct Latencies {
    /// `recorded`: requests came at the times of the trace. `closed`: as many as `clients` were under way at a time.
    pub arrivals: &'static str,
    /// Requests under way at a time, where that was given.
    pub clients: Option<u32>,
    /// Reads and writes.
    pub all: Times,
    /// Reads.
    pub reads: Times,
    /// Writes.
    pub writes: Times,
    /// The links of all guests together, where they have a width.
    pub link: Option<StationResult>,
    /// The store, where it has a width.
    pub store: Option<StationResult>,
    /// From the first counted request to the end of the last.
    pub span_seconds: f64,
    /// How much longer the last request took than the requests came in: where this is a large part of the span, more came than
    /// could be worked on, and the figures say more of the length of the trace than of the system.
    pub backlog_seconds: f64,
}

/// Times as they are collected.
pub(super) struct Collected {
    histogram: Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
}

impl Collected {
    /// A histogram with three significant digits.
    pub(super) fn new() -> Self {
        // Three digits are always possible; the bounds grow by themselves.
        let histogram = Histogram::new(3).or_else(|_| Histogram::new(1));
        Self {
            histogram: histogram.unwrap_or_else(|_| unreachable!("one digit is possible")),
            sum_ns: 0,
            max_ns: 0,
        }
    }

    pub(super) fn add(&mut self, ns: u64) {
        // It grows up to any number.
        let _ = self.histogram.record(ns);
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub(super) fn plus(&mut self, other: &Self) {
        // Histograms that grow by themselves can always be added.
        let _ = self.histogram.add(&other.histogram);
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub(super) fn times(&self) -> Times {
        let requests = self.histogram.len();
        let some = |seconds: f64| (requests > 0).then_some(seconds);
        let within = |percent: f64| {
            let ns = self.histogram.value_at_percentile(percent).min(self.max_ns);
            some(ns as f64 / 1e9)
        };
        Times {
            requests,
            mean_seconds: some(self.sum_ns as f64 / requests as f64 / 1e9),
            p50_seconds: within(50.0),
            p90_seconds: within(90.0),
            p99_seconds: within(99.0),
            p999_seconds: within(99.9),
            max_seconds: some(self.max_ns as f64 / 1e9),
        }
    }
}
