//! What the commands that read traces and predict print, for people and for programs.

use futae_tests::binary::{futae, run, run_json};
use futae_tests::tools::text;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::PathBuf;
use tempfile::TempDir;

/// A trace of 3,000 requests, about 30 of 100 of them writes, made by futae.
struct Trace {
    directory: TempDir,
    path: PathBuf,
}

impl Trace {
    fn new(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(name);
        let workload = "zipf(1.0,writes=0.3):1MiB";
        let rest = ["--requests", "3000", "--seed", "9"];
        done(&[&["trace", "convert", workload, text(&path)], &rest[..]].concat());
        Self { directory, path }
    }

    fn text(&self) -> &str {
        text(&self.path)
    }
}

/// Runs a command that must succeed; what it printed.
fn done(arguments: &[&str]) -> String {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

fn keys(value: &Value) -> Vec<&str> {
    let object = value.as_object().expect("an object");
    object.keys().map(String::as_str).collect()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn a_trace_is_converted_looked_into_and_shown() {
    let trace = Trace::new("a.csv.gz");
    let info = run_json(&["trace", "info", trace.text(), "--json"]);
    assert_eq!([&info["format"], &info["compression"]], ["csv", "gz"]);
    assert_eq!([&info["requests"], &info["records_skipped"]], [3000, 0]);
    let writes = number(&info["writes"]);
    assert!((writes / 3000.0 - 0.3).abs() < 0.05, "{writes}");
    assert_eq!(number(&info["reads"]) + writes, 3000.0);
    assert_eq!(info["block_accesses"], 3000);
    let shown = done(&["trace", "info", trace.text()]);
    for line in [
        "requests",
        "writes",
        "distinct blocks of 4096 bytes",
        "sorted by time",
    ] {
        assert!(shown.lines().any(|shown| shown.starts_with(line)), "{line}");
    }
    // The blocks of a trace are the same in every format that has them.
    for name in ["b.oracleGeneral.zst", "b.parquet", "b.le64"] {
        let other = trace.directory.path().join(name);
        let convert = [
            "trace",
            "convert",
            trace.text(),
            text(&other),
            "--view",
            "blocks",
        ];
        done(&convert);
        let there = run_json(&["trace", "info", text(&other), "--json"]);
        for key in ["requests", "distinct_starts", "block_accesses"] {
            assert_eq!(there[key], info[key], "{name}: {key}");
        }
    }
    let head = done(&["trace", "head", trace.text(), "-n", "3", "--json"]);
    let lines: Vec<Value> = head
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 3);
    let expected = ["time", "volume", "kind", "offset_bytes", "length_bytes"];
    assert_eq!(keys(&lines[0]), expected);
    assert_eq!(lines[0]["length_bytes"], 4096);
    assert_eq!(
        done(&["trace", "head", trace.text(), "-n", "3"])
            .lines()
            .count(),
        2 + 3
    );
}

#[test]
fn a_trace_is_simulated_by_policy_and_size() {
    let trace = Trace::new("a.csv");
    let rest = ["--policy", "lru,2q(k_in=0.3)", "--sizes", "10%,50%"];
    let latency = ["--latency", "upper=1us,store=1ms"];
    let sim = [&["sim", trace.text()], &rest[..], &latency].concat();
    let found = run_json(&[&sim[..], &["--json"]].concat());
    let runs = list(&found["runs"]);
    assert_eq!(runs.len(), 4);
    assert_eq!(found["trace"]["accesses"], 3000);
    for run in runs {
        let (reads, writes) = (number(&run["reads"]), number(&run["writes"]));
        let hits = number(&run["served"][0]["reads"]);
        // A write goes through to the store, and takes as long as a read that it serves.
        let mean = (hits * 1e-6 + (reads - hits + writes) * 1e-3) / (reads + writes);
        let shown = number(&run["mean_access_seconds"]);
        assert!((shown / mean - 1.0).abs() < 1e-9, "{shown}, {mean}");
        assert_eq!(run["p99_access_seconds"], 1e-3);
    }
    let csv = done(&[&sim[..], &["--csv"]].concat());
    let mut lines = csv.lines();
    let heads: Vec<&str> = lines.next().expect("a head").split(',').collect();
    let at = |name: &str| {
        heads
            .iter()
            .position(|head| *head == name)
            .expect("a column")
    };
    let (hits, ratio) = (at("hits"), at("hit_ratio"));
    for (line, run) in lines.zip(runs) {
        let level = &run["levels"][0];
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells[2], level["policy"].as_str().expect("a name"));
        assert_eq!(cells[hits], level["hits"].to_string());
        assert_eq!(cells[ratio].parse().ok(), level["hit_ratio"].as_f64());
    }
    assert_eq!(csv.lines().count(), 1 + 4);
    let shown = done(&sim);
    assert!(shown.contains("access time, us") && shown.contains("2q(k_in=0.3)"));
}

#[test]
fn a_sampled_curve_is_held_against_the_exact_one() {
    let mrc = [
        "mrc",
        "zipf(0.8):60MiB",
        "--exact",
        "--shards",
        "0.3",
        "--points",
        "8",
    ];
    let found = run_json(&[&mrc[..], &["--json"]].concat());
    let expected = [
        "source",
        "policy",
        "block_bytes",
        "requests",
        "blocks",
        "seed",
        "version",
    ];
    for key in expected {
        assert!(!found[key].is_null(), "{key}: {found}");
    }
    let curves = list(&found["curves"]);
    assert_eq!(curves.len(), 2);
    assert_eq!(curves[0]["method"], "exact");
    assert!(curves[0]["mean_absolute_error"].is_null());
    let of = |curve: &Value| -> Vec<f64> {
        let points = list(&curve["points"]).iter();
        points.map(|point| number(&point["miss_ratio"])).collect()
    };
    let (exact, sampled) = (of(&curves[0]), of(&curves[1]));
    assert_eq!([exact.len(), sampled.len()], [8, 8]);
    let apart = exact.iter().zip(&sampled).map(|(a, b)| (a - b).abs());
    let mean = apart.sum::<f64>() / 8.0;
    let error = number(&curves[1]["mean_absolute_error"]);
    assert!(
        (error - mean).abs() < 1e-12 && error > 0.0 && error < 0.05,
        "{error}"
    );
    let shown = done(&mrc);
    let line = format!(": {:.3} points", 100.0 * error);
    assert!(shown.contains("mean absolute error of shards") && shown.contains(&line));
    let csv = done(&[&mrc[..], &["--csv"]].concat());
    assert_eq!(csv.lines().count(), 1 + 16);
}

#[test]
fn locality_below_a_cache_has_the_gap_of_the_theory() {
    let found = run_json(&["locality", "uniform:32MiB", "--level", "lru:8MiB", "--json"]);
    let taps = list(&found["taps"]);
    assert_eq!(
        [&taps[0]["place"], &taps[1]["place"]],
        ["application", "below lru:8MiB"]
    );
    assert!(taps[0]["theory_gap_bytes"].is_null());
    let (gap, theory) = (
        number(&taps[1]["gap_bytes"]),
        number(&taps[1]["theory_gap_bytes"]),
    );
    assert!((gap / theory - 1.0).abs() < 0.05, "{gap}, {theory}");
    assert_eq!(list(&taps[0]["bins"]).len(), 60);
    let shown = done(&[
        "locality",
        "uniform:32MiB",
        "--level",
        "lru:8MiB",
        "--bins",
        "30",
    ]);
    assert!(shown.contains("in theory") && shown.contains("below lru:8MiB"));
}

#[test]
fn papers_are_listed_and_their_checks_told() {
    let listed = run_json(&["paper", "list", "--json"]);
    let experiments = list(&listed["experiments"]);
    assert_eq!(keys(&experiments[0]), ["paper", "figure", "title", "live"]);
    let papers = experiments.iter().map(|one| one["paper"].as_str());
    assert!(papers.clone().any(|paper| paper == Some("kotoge-2006")));
    assert_eq!(done(&["paper", "list"]).lines().count(), experiments.len());
    let found = run_json(&["paper", "run", "kotoge-2006", "--json"]);
    assert_eq!(found["ok"], true);
    for check in list(&found["checks"]) {
        let expected = [
            "figure", "seed", "name", "value", "low", "high", "ok", "source",
        ];
        assert_eq!(keys(check), expected);
        let value = number(&check["value"]);
        let is_in = check["low"].as_f64().is_none_or(|low| value >= low)
            && check["high"].as_f64().is_none_or(|high| value <= high);
        assert_eq!(check["ok"], is_in, "{check}");
    }
    let unknown = run(&["paper", "run", "kotoge-2006", "fig99"]);
    assert_eq!(unknown.status.code(), Some(2));
    let complaint = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        complaint.contains("fig99") && complaint.contains("table1"),
        "{complaint}"
    );
}

#[test]
fn a_reader_that_has_read_enough_is_no_failure() {
    let trace = Trace::new("a.csv");
    let data = trace.directory.path().join("data");
    let load = ["load", text(&data), "--create", "--file-size", "64KiB"];
    let sim = ["sim", trace.text(), "--policy", "lru", "--sizes", "50%"];
    for arguments in [
        &["trace", "info", trace.text()][..],
        &["trace", "head", trace.text()],
        &[
            "trace",
            "convert",
            trace.text(),
            "/dev/stdout",
            "--to",
            "csv",
        ],
        &[&sim[..], &["--report", "/dev/stdout"]].concat(),
        &["policies"],
        &["paper", "list"],
        &["paper", "list", "--json"],
        &[&load[..], &["--operations", "10"]].concat(),
        &["agent", "--no-bpf", "--period", "100ms"],
        &["agent", "--no-bpf", "--once", "10ms"],
    ] {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let output = futae(arguments).stdout(writer).output();
        let output = output.expect("futae starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
}

#[test]
fn a_trace_with_bad_lines_fails_or_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("bad.ids");
    fs::write(&path, "1\n2\nthree\n1\n").expect("a trace");
    let sim = ["sim", text(&path), "--policy", "lru", "--sizes", "50%"];
    let output = run(&sim);
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        complaint.contains("bad.ids") && complaint.lines().count() == 1,
        "{complaint}"
    );
    let output = run(&[&sim[..], &["--skip-bad"]].concat());
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("1 bad records left out"), "{said}");
}
