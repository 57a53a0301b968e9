//! Durations of requests.

use super::html::{Cell, Table};
use crate::snapshot::OneExport;
use futae_control::EngineReport;
use futae_engine::LatencyStatus;

/// A row for each operation of each export, and of the files of a tree together.
pub(super) fn latencies(caches: &[EngineReport], volumes: &[OneExport]) -> String {
    let heads = [
        "request",
        "answered",
        "mean",
        "half at most",
        "99 % at most",
        "99.9 % at most",
    ];
    let mut table = Table::new("latencies", "Durations of requests", &heads);
    for one in volumes {
        for latency in &one.volume.latencies {
            let name = format!("{} {}", one.volume.name, latency.operation);
            table.row(&name, &cells(latency));
        }
    }
    for latency in caches.iter().flat_map(|cache| &cache.engine.tree_latencies) {
        table.row(&format!("files {}", latency.operation), &cells(latency));
    }
    table.html(
        "Since the start, from when a request was taken until it was answered; the wait for a limit a second comes before. The times that a \
         share of the requests took at most are steps: 1, 2, 5, 10 \u{b5}s and so on.",
    )
}

fn cells(latency: &LatencyStatus) -> [Cell; 5] {
    let count = latency.count();
    let mean = (count > 0).then(|| latency.seconds * 1e6 / count as f64);
    let at_most = |share| latency.at_most_seconds(share).map(|seconds| seconds * 1e6);
    [
        Cell::count("answered", count),
        Cell::micros("mean_micros", mean),
        Cell::micros("p50_micros", at_most(0.5)),
        Cell::micros("p99_micros", at_most(0.99)),
        Cell::micros("p999_micros", at_most(0.999)),
    ]
}
