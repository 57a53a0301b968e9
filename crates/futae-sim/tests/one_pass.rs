//! A trace that is simulated while it is read comes to what it comes to in memory.

use futae_policy::{Kind, Prng};
use futae_sim::run::{TraceSimulation, Traces, ViewChoice, simulate_one_pass};
use futae_sim::{LevelSpec, Report, SimulationError, WriteMode, links};
use futae_trace::TraceOptions;
use std::fmt::Write;
use std::path::PathBuf;

/// Records, several times what is in memory at once.
const RECORDS: u64 = 50_000;
const COLUMNS: &str = "offset=0,length=1,kind=2";

/// Reads and writes of one to three blocks, some far away.
fn trace(directory: &tempfile::TempDir) -> PathBuf {
    let mut prng = Prng::new(7);
    let mut text = String::new();
    for at in 0..RECORDS {
        let far = if prng.below(20) == 0 { 1 << 40 } else { 0 };
        let block = far + prng.below(1 + at / 20);
        let length = 1 + prng.below(3);
        // Whole stretches without writes, and some with.
        let op = if at % 5000 < 1000 && prng.below(3) == 0 {
            "W"
        } else {
            "R"
        };
        writeln!(text, "{},{},{op}", block * 4096, length * 4096).expect("room");
    }
    let path = directory.path().join("trace.csv");
    std::fs::write(&path, text).expect("room");
    path
}

fn options() -> TraceOptions {
    TraceOptions {
        columns: Some(COLUMNS.parse().expect("columns")),
        ..TraceOptions::default()
    }
}

fn simulation(levels: &[&str]) -> TraceSimulation {
    let levels: Vec<LevelSpec> = levels
        .iter()
        .map(|level| level.parse().expect("a level"))
        .collect();
    TraceSimulation {
        links: links(&levels, None),
        levels,
        write_mode: WriteMode::WriteThrough,
        seed: 3,
        warmup_requests: 0,
        requests: None,
    }
}

/// What a report says beside times.
fn facts(report: Result<Report, SimulationError>) -> Result<serde_json::Value, String> {
    let mut report =
        serde_json::to_value(report.map_err(|error| error.to_string())?).expect("JSON");
    report["runs"][0]["seconds"].take();
    report["trace"]["read_seconds"].take();
    Ok(report)
}

fn in_memory(path: &PathBuf, spec: &TraceSimulation) -> Result<serde_json::Value, String> {
    let traces = Traces::read(
        std::slice::from_ref(path),
        &options(),
        ViewChoice::Usual,
        &mut |_| {},
    );
    facts(traces.and_then(|traces| traces.simulate(std::slice::from_ref(spec), 4096, 1, &|_| {})))
}

fn one_pass(path: &PathBuf, spec: &TraceSimulation) -> Result<serde_json::Value, String> {
    assert!(spec.is_one_pass(ViewChoice::Usual, 4096));
    facts(simulate_one_pass(
        path,
        &options(),
        ViewChoice::Usual,
        spec,
        2,
        &mut |_| {},
    ))
}

#[test]
fn every_policy_counts_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = trace(&directory);
    for kind in Kind::ALL {
        let level = format!("{}:500blocks", kind.name());
        let spec = simulation(&[&level]);
        let needs_all = ["opt", "opt-bypass", "const"].contains(&kind.name());
        assert_eq!(
            spec.is_one_pass(ViewChoice::Usual, 4096),
            !needs_all,
            "{level}"
        );
        if !needs_all {
            assert_eq!(one_pass(&path, &spec), in_memory(&path, &spec), "{level}");
        }
    }
}

#[test]
fn levels_write_modes_and_warm_ups_make_no_difference() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = trace(&directory);
    for levels in [
        &["lru:300blocks", "exclusive:400blocks"][..],
        &["arc:50blocks", "fifo:90blocks", "lru:100blocks"],
    ] {
        for write_mode in [WriteMode::WriteThrough, WriteMode::WriteBack] {
            for (warmup_requests, requests) in [
                (0, None),
                (1, None),
                (20_001, Some(33_333)),
                (64, Some(0)),
                (1 << 40, None),
                (5, Some(u64::MAX)),
            ] {
                let spec = TraceSimulation {
                    write_mode,
                    warmup_requests,
                    requests,
                    ..simulation(levels)
                };
                let expected = in_memory(&path, &spec);
                assert_eq!(
                    expected.is_ok(),
                    warmup_requests < 1 << 40,
                    "something is left to count"
                );
                assert_eq!(
                    one_pass(&path, &spec),
                    expected,
                    "{levels:?} {warmup_requests} {requests:?}"
                );
            }
        }
    }
}

#[test]
fn what_needs_the_whole_trace_is_told_apart() {
    let is_one_pass = |levels: &[&str]| simulation(levels).is_one_pass(ViewChoice::Usual, 4096);
    assert!(is_one_pass(&["lru:1MiB", "exclusive(lfu):8blocks"]));
    assert!(
        !is_one_pass(&["lru:1MiB", "lru:1%"]),
        "a share of what there is"
    );
    assert!(
        !is_one_pass(&["exclusive(const):8blocks"]),
        "blocks nobody asked for"
    );
    assert!(
        is_one_pass(&["lfu-history:8blocks"])
            && !is_one_pass(&["lfu-history(prefill=true):8blocks"])
    );
    assert!(
        is_one_pass(&["lru:1TiB"]) && !is_one_pass(&["lru:1GiB", "lru:2TiB"]),
        "larger than all blocks, or not"
    );
    assert!(
        !simulation(&["lru:1MiB"]).is_one_pass(ViewChoice::Start, 4096),
        "lengths may differ"
    );
}

#[test]
fn a_bad_record_is_an_error_wherever_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = trace(&directory);
    let text = std::fs::read_to_string(&path).expect("there");
    for bad in [1, 25_000, RECORDS as usize - 1] {
        let lines = text.lines().enumerate();
        let broken: Vec<_> = lines
            .map(|(at, line)| if at == bad { "no number" } else { line })
            .collect();
        std::fs::write(&path, broken.join("\n")).expect("room");
        // Also behind what is counted.
        let spec = TraceSimulation {
            requests: Some(10),
            ..simulation(&["lru:100blocks"])
        };
        let error = one_pass(&path, &spec).expect_err("a bad record");
        assert!(error.contains(&format!("{}", bad + 1)), "{error}");
        assert_eq!(Err(error), in_memory(&path, &spec));
    }
}
