//! Results as a table for other programs.

use super::{ObjectReport, ObjectRun};
use crate::run::{Column, TraceFacts, Values};

impl ObjectReport {
    /// The report as a table: a row for each run.
    #[must_use]
    pub fn columns(&self) -> Vec<Column> {
        let counts = |name, of: fn(&ObjectRun) -> u64| Column {
            name,
            values: Values::Counts(self.runs.iter().map(of).collect()),
        };
        let numbers = |name, of: fn(&ObjectRun) -> Option<f64>| Column {
            name,
            values: Values::Numbers(self.runs.iter().map(of).collect()),
        };
        let texts = |name, of: &dyn Fn(&ObjectRun) -> String| Column {
            name,
            values: Values::Texts(self.runs.iter().map(of).collect()),
        };
        let same = |name, count| Column {
            name,
            values: Values::Counts(vec![count; self.runs.len()]),
        };
        vec![
            texts("policy", &|run| run.policy.clone()),
            counts("capacity_bytes", |run| run.capacity_bytes),
            counts("requests", |run| run.counts.requests),
            counts("hits", |run| run.counts.hits),
            counts("misses", |run| run.counts.misses),
            numbers("hit_ratio", |run| run.hit_ratio),
            counts("requested_bytes", |run| run.counts.requested_bytes),
            counts("missed_bytes", |run| run.counts.missed_bytes),
            numbers("byte_miss_ratio", |run| run.byte_miss_ratio),
            counts("admissions", |run| run.counts.admissions),
            counts("too_large", |run| run.counts.too_large),
            counts("declined", |run| run.counts.declined),
            counts("expired", |run| run.counts.expired),
            counts("evictions", |run| run.counts.evictions),
            counts("evicted_bytes", |run| run.counts.evicted_bytes),
            counts("resident_objects", |run| run.resident_objects),
            counts("resident_bytes", |run| run.resident_bytes),
            same("objects", self.objects),
            same("footprint_bytes", self.footprint_bytes),
            counts("warmup_requests", |run| run.warmup_requests),
            same("seed", self.seed),
            texts("trace_digest", &|_| self.trace_digest.clone()),
            texts("source", &|_| self.trace.files.join(" + ")),
        ]
    }

    /// The [columns](Self::columns) as CSV, with a header.
    #[must_use]
    pub fn csv(&self) -> String {
        Column::csv(&self.columns())
    }

    /// A report without runs: its columns have names and types, and no rows.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            runs: Vec::new(),
            objects: 0,
            footprint_bytes: 0,
            seed: 0,
            trace_digest: String::new(),
            trace: TraceFacts::of(&[]),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}
