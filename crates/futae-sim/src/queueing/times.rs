//! Results of the queueing simulation.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies of one kind of request, in seconds; `None` without requests. Percentiles are at most
/// 0.1 % too high.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// Requests.
    pub requests: u64,
    /// The mean.
    pub mean_seconds: Option<f64>,
    /// The median.
    pub p50_seconds: Option<f64>,
    /// The 90th percentile.
    pub p90_seconds: Option<f64>,
    /// The 99th percentile.
    pub p99_seconds: Option<f64>,
    /// The 99.9th percentile.
    pub p999_seconds: Option<f64>,
    /// The maximum.
    pub max_seconds: Option<f64>,
}

/// The load of a place that serves a limited number of requests at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StationResult {
    /// Requests served at a time.
    pub width: u32,
    /// The fraction of its capacity in use, from 0 to 1.
    pub utilisation: f64,
    /// The mean time that work waited.
    pub mean_wait_seconds: f64,
}

/// Latencies of requests that wait for each other.
#[derive(Clone, Debug, Serialize)]
pub struct Latencies {
    /// `recorded`: requests arrived at the times of the trace. `closed`: a constant number,
    /// `clients`, was under way. `thinking`: each guest asked a think time after the answer to its
    /// previous request.
    pub arrivals: &'static str,
    /// The number of requests under way at a time, if given.
    pub clients: Option<u32>,
    /// Reads and writes.
    pub all: Times,
    /// Reads.
    pub reads: Times,
    /// Writes.
    pub writes: Times,
    /// The links of all guests together, if they have a limited width.
    pub link: Option<StationResult>,
    /// The store, if it has a limited width.
    pub store: Option<StationResult>,
    /// From the first counted request to the end of the last.
    pub span_seconds: f64,
    /// How long after the last arrival the last request ended. If this is a large part of the span,
    /// requests arrived faster than they could be served, and the latencies reflect the length of
    /// the trace more than the system.
    pub backlog_seconds: f64,
}

/// Latencies during collection.
pub(crate) struct Collected {
    histogram: Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
}

impl Collected {
    /// A histogram with three significant digits.
    pub(crate) fn new() -> Self {
        // Three digits are always possible; the bounds grow by themselves.
        let histogram = Histogram::new(3).or_else(|_| Histogram::new(1));
        Self {
            histogram: histogram.unwrap_or_else(|_| unreachable!("one digit is possible")),
            sum_ns: 0,
            max_ns: 0,
        }
    }

    pub(crate) fn add(&mut self, ns: u64) {
        // The histogram extends itself for any number.
        let _ = self.histogram.record(ns);
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub(super) fn plus(&mut self, other: &Self) {
        // Such histograms can always be added.
        let _ = self.histogram.add(&other.histogram);
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub(crate) fn times(&self) -> Times {
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
