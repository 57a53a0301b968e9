//! Latencies of requests, as histograms.
//!
//! A front end measures from the receipt of a request to its answer; a store's operations are
//! measured where they end. Requests answered together are recorded together ([`LatencyNotes`]), so
//! a hit costs a comparison and no clock reading of its own.

use crate::watcher::{Ended, Watcher};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The upper bounds of the steps, in microseconds. Longer latencies are counted in a step of their
/// own.
pub const LATENCY_STEPS_MICROS: [u64; STEPS] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000,
    200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000,
];
const STEPS: usize = 22;

/// The kind of a request, for its latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Data.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// A trim.
    Trim,
    /// A zeroing.
    Zero,
    /// All other answered requests: extents, information about the disk, prefetches.
    Other,
}

impl Asked {
    const ALL: [Self; 6] = [
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::Trim,
        Self::Zero,
        Self::Other,
    ];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Trim => "trim",
            Self::Zero => "zero",
            Self::Other => "other",
        }
    }
}

/// The step that contains a latency.
fn step(took: Duration) -> usize {
    let nanos = took.as_nanos();
    LATENCY_STEPS_MICROS.partition_point(|&end| u128::from(end) * 1000 < nanos)
}

#[derive(Debug, Default)]
struct Counts {
    steps: [AtomicU64; STEPS + 1],
    nanos: AtomicU64,
}

/// Histograms of the latencies of one volume's requests, by kind. Any thread records without
/// waiting.
#[derive(Debug, Default)]
pub struct Latencies {
    counts: [Counts; Asked::ALL.len()],
    watcher: OnceLock<Box<dyn Watcher>>,
}

impl Latencies {
    /// Has front ends tell a watcher of each request that ends, too. The first one stays.
    pub fn watch(&self, watcher: Box<dyn Watcher>) {
        let _ = self.watcher.set(watcher);
    }

    /// The watcher, if there is one.
    #[inline]
    #[must_use]
    pub fn watcher(&self) -> Option<&dyn Watcher> {
        self.watcher.get().map(Box::as_ref)
    }

    /// Records a latency.
    pub fn note(&self, asked: Asked, took: Duration) {
        self.add(asked, step(took), 1, nanos(took));
    }

    /// Records one request that has ended, and tells the watcher, if there is one.
    pub fn ended(&self, asked: Asked, bytes: u64, failed: bool, took: Duration) {
        self.note(asked, took);
        if let Some(watcher) = self.watcher() {
            watcher.ended(&Ended {
                kind: asked.name(),
                requests: 1,
                bytes,
                hit: None,
                failed,
                took,
            });
        }
    }

    fn add(&self, asked: Asked, step: usize, count: u64, nanos: u64) {
        let counts = &self.counts[asked as usize];
        counts.steps[step].fetch_add(count, Relaxed);
        counts.nanos.fetch_add(nanos, Relaxed);
    }

    /// The histograms, without kinds that have no requests.
    #[must_use]
    pub fn report(&self) -> Vec<LatencyStatus> {
        let one = |asked: Asked| {
            let counts = &self.counts[asked as usize];
            LatencyStatus {
                operation: asked.name().to_owned(),
                seconds: counts.nanos.load(Relaxed) as f64 / 1e9,
                counts: counts.steps.iter().map(|step| step.load(Relaxed)).collect(),
            }
        };
        let reports = Asked::ALL.map(one).into_iter();
        reports.filter(|report| report.count() > 0).collect()
    }
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

/// The histogram of one kind of request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyStatus {
    /// The kind: `read`, `write`, `flush`, `trim`, `zero` or `other`.
    pub operation: String,
    /// The sum of all latencies, in seconds.
    pub seconds: f64,
    /// The number of requests in each step of [`LATENCY_STEPS_MICROS`], then those beyond the last
    /// one.
    pub counts: Vec<u64>,
}

impl LatencyStatus {
    /// The number of requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// A quantile in seconds: the upper bound of the step that contains this share (0 to 1) of the
    /// requests. `None` if there are no requests or the quantile lies beyond the last step.
    #[must_use]
    pub fn at_most_seconds(&self, share: f64) -> Option<f64> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0);
        let mut seen = 0;
        let step = self.counts.iter().position(|count| {
            seen += count;
            seen as f64 >= wanted
        });
        let end = LATENCY_STEPS_MICROS.get(step?);
        end.map(|&micros| micros as f64 / 1e6)
    }

    /// The difference from an earlier report of the same kind.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self.counts.iter().enumerate().map(|(at, count)| {
            let before = earlier.counts.get(at).copied().unwrap_or_default();
            count.saturating_sub(before)
        });
        Self {
            operation: self.operation.clone(),
            seconds: (self.seconds - earlier.seconds).max(0.0),
            counts: counts.collect(),
        }
    }
}

/// Latencies recorded by one thread: equal ones are passed on together.
#[derive(Debug)]
pub struct LatencyNotes {
    to: Arc<Latencies>,
    asked: Asked,
    step: usize,
    count: u64,
    nanos: u64,
}

impl LatencyNotes {
    /// A recorder for these histograms.
    #[must_use]
    pub fn new(to: Arc<Latencies>) -> Self {
        Self {
            to,
            asked: Asked::Other,
            step: 0,
            count: 0,
            nanos: 0,
        }
    }

    /// Records `count` requests of the same latency.
    pub fn note(&mut self, asked: Asked, took: Duration, count: u64) {
        let step = step(took);
        if (asked, step) != (self.asked, self.step) {
            self.hand_on();
            (self.asked, self.step) = (asked, step);
        }
        self.count += count;
        self.nanos = self.nanos.saturating_add(nanos(took).saturating_mul(count));
    }

    /// The watcher of the requests, if there is one.
    #[inline]
    #[must_use]
    pub fn watcher(&self) -> Option<&dyn Watcher> {
        self.to.watcher()
    }

    /// Makes the recorded latencies visible.
    pub fn hand_on(&mut self) {
        if self.count > 0 {
            self.to.add(self.asked, self.step, self.count, self.nanos);
            (self.count, self.nanos) = (0, 0);
        }
    }
}

impl Drop for LatencyNotes {
    fn drop(&mut self) {
        self.hand_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_in_the_first_step_that_it_does_not_exceed() {
        for (at, &micros) in LATENCY_STEPS_MICROS.iter().enumerate() {
            let end = Duration::from_micros(micros);
            assert_eq!(
                (step(end), step(end + Duration::from_nanos(1))),
                (at, at + 1)
            );
        }
        assert_eq!((step(Duration::ZERO), step(Duration::MAX)), (0, STEPS));
    }

    #[test]
    fn notes_that_are_alike_come_to_the_same_as_one_by_one() {
        let (one, together) = (Latencies::default(), Arc::new(Latencies::default()));
        let mut notes = LatencyNotes::new(Arc::clone(&together));
        for at in 0..1000u64 {
            let asked = Asked::ALL[(at / 100 % 3) as usize];
            let took = Duration::from_micros(at * at % 7000);
            (0..=at % 3).for_each(|_| one.note(asked, took));
            notes.note(asked, took, at % 3 + 1);
        }
        drop(notes);
        let (one, together) = (one.report(), together.report());
        assert_eq!(one, together);
        let names: Vec<_> = one.iter().map(|it| &*it.operation).collect();
        assert_eq!(names, ["read", "write", "flush"]);
        assert_eq!(one.iter().map(LatencyStatus::count).sum::<u64>(), 1999);
    }

    #[test]
    fn shares_and_differences() {
        let latencies = Latencies::default();
        let millis = |count, millis| {
            (0..count).for_each(|_| latencies.note(Asked::Read, Duration::from_millis(millis)));
        };
        millis(90, 1);
        let before = latencies.report().remove(0);
        assert_eq!(before.at_most_seconds(0.99), Some(0.001));
        millis(10, 40);
        let all = latencies.report().remove(0);
        assert_eq!(
            (all.at_most_seconds(0.9), all.at_most_seconds(0.91)),
            (Some(0.001), Some(0.05))
        );
        assert!((all.seconds - 0.49).abs() < 1e-9, "{all:?}");
        let since = all.since(&before);
        assert_eq!(
            (since.count(), since.at_most_seconds(0.0)),
            (10, Some(0.05))
        );
        millis(1000, 60_000);
        assert_eq!(latencies.report()[0].at_most_seconds(0.99), None);
        assert_eq!(LatencyStatus::default().at_most_seconds(0.5), None);
    }
}
