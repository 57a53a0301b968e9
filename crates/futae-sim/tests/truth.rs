//! Miss counts of real traces, each row of a truth table, exactly.
//!
//! The traces are no part of the project. They are looked for in the directory that
//! `FUTAE_TRACES` names, or in `../shared/traces` beside the checkout; where they are absent, the
//! test says so and passes.

use futae_sim::WriteMode;
use futae_sim::run::{TraceSimulation, Traces, ViewChoice};
use futae_testkit::need::{Need, skip};
use futae_trace::TraceOptions;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One line of the table.
struct Row {
    policy: &'static str,
    slots: u64,
    requests: u64,
    misses: u64,
    distinct: u64,
}

fn directory() -> PathBuf {
    let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    std::env::var_os("FUTAE_TRACES").map_or_else(|| usual.into(), PathBuf::from)
}

/// The rows by file and view.
fn rows(table: &str) -> BTreeMap<(String, String), Vec<Row>> {
    let mut groups = BTreeMap::<_, Vec<Row>>::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [file, policy, slots, requests, misses, view, distinct] = fields[..] else {
            panic!("not seven fields: {line}");
        };
        let number = |text: &str| text.parse().expect("a number");
        let policy = match policy {
            "lru" => "lru",
            "fifo" => "fifo",
            "opt" => "opt",
            "opt_bypass" => "opt(bypass=true)",
            _ => panic!("unknown policy: {line}"),
        };
        let row = Row {
            policy,
            slots: number(slots),
            requests: number(requests),
            misses: number(misses),
            distinct: number(distinct),
        };
        groups
            .entry((file.to_owned(), view.to_owned()))
            .or_default()
            .push(row);
    }
    groups
}

/// What the rows of one file and view say is what comes of simulations; the sizes are written as
/// shares, which come to the table's slots.
fn check(path: &Path, view: &str, rows: &[Row]) {
    let (choice, unit_bytes) = match view {
        "start_lba" => (ViewChoice::Start, 4096),
        "page4k" => (ViewChoice::Blocks, 4096),
        "block512" => (ViewChoice::Blocks, 512),
        "key" => (ViewChoice::Usual, 4096),
        _ => panic!("unknown view {view}"),
    };
    let options = TraceOptions {
        unit_bytes,
        ..TraceOptions::default()
    };
    let traces = Traces::read(&[path.to_owned()], &options, choice, &mut |_| {}).expect("a trace");
    let share = |row: &Row| {
        [1, 10, 50]
            .into_iter()
            .find(|share| row.distinct * share / 100 == row.slots)
            .unwrap_or_else(|| panic!("{} of {}", row.slots, row.distinct))
    };
    let simulations: Vec<TraceSimulation> = rows
        .iter()
        .map(|row| {
            let level = format!("{}:{}%", row.policy, share(row));
            TraceSimulation {
                levels: vec![level.parse().expect("a level")],
                write_mode: WriteMode::WriteThrough,
                links: Vec::new(),
                seed: 1,
                warmup_requests: 0,
                requests: None,
            }
        })
        .collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let report = traces
        .simulate(&simulations, unit_bytes, threads, &|_| {})
        .expect("simulations");
    for (row, run) in rows.iter().zip(&report.runs) {
        let (level, what) = (
            &run.levels[0],
            format!("{path:?} {view} {} {}", row.policy, row.slots),
        );
        let found = (run.requests, run.footprint_blocks, level.capacity_blocks);
        assert_eq!(found, (row.requests, row.distinct, row.slots), "{what}");
        assert_eq!(level.counters.misses, row.misses, "{what}");
        let ratio = row.misses as f64 / row.requests as f64;
        assert_eq!(run.miss_ratio, Some(ratio), "{what}");
        if view != "start_lba" {
            assert_eq!(run.byte_miss_ratio, Some(ratio), "{what}");
        }
    }
}

#[test]
fn every_row_of_the_truth_table() {
    let directory = directory();
    let Ok(table) = std::fs::read_to_string(directory.join("truth.tsv")) else {
        let why = format!("no truth.tsv in {}", directory.display());
        return skip(Need::Traces, &why);
    };
    let mut groups: Vec<_> = rows(&table).into_iter().collect();
    groups.sort_by_key(|(_, rows)| rows[0].requests);
    assert!(groups.len() >= 40, "{} groups", groups.len());
    for ((file, view), rows) in &groups {
        check(&directory.join(file), view, rows);
    }
}
