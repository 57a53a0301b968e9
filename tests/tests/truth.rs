//! `futae truth` and `futae plot` as a user runs them.

use futae_tests::binary::{futae, run};
use serde_json::Value;
use std::fs;

/// Runs a command that must succeed.
fn does(arguments: &[&str]) {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

#[test]
fn exact_policies_count_as_libcachesim_does() {
    let same = [
        "fifo",
        "lru",
        "clock",
        "sieve",
        "arc",
        "lfu-in-cache",
        "2q",
        "gdsf",
        "opt",
    ];
    let with_parameters = [
        "slru(segments=4,fill=true)",
        "clock2q-plus(ghost=0.9)",
        "lru-k(history=0)",
    ];
    let policies = format!("{},slru,clock2q-plus,lru-k", same.join(","));
    let output = run(&["truth", "--policy", &policies, "--json"]);
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(rows.len(), (same.len() + 2 * 3) * 4 * 3);
    for row in &rows {
        let policy = row["policy"].as_str().expect("a name");
        if ["slru", "clock2q-plus", "lru-k"].contains(&policy) {
            let differs = row["futae_misses"] != row["libcachesim_misses"];
            assert_eq!(row["reason"].is_string(), differs, "{row}");
        } else {
            assert!(same.contains(&policy) || with_parameters.contains(&policy));
            assert_eq!(row["futae_misses"], row["libcachesim_misses"], "{row}");
        }
    }
    let unknown = futae(&["truth", "--policy", "lfuda"])
        .output()
        .expect("futae starts");
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn published_figures_are_held_against_the_papers_own_traces_only() {
    let folder = tempfile::tempdir().expect("a directory");
    let refused = |requests: u64| {
        let path = folder.path().join("OLTP.lis");
        let lines = (0..requests).map(|at| format!("{} 1 0 {at}\n", at % 1000));
        fs::write(&path, lines.collect::<String>()).expect("a trace");
        let output = run(&["truth", "--published", path.to_str().expect("a name")]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let other = refused(5000);
    assert!(
        other.contains("OLTP, P3, P6") && other.contains("5000 requests"),
        "{other}"
    );
    let as_long = refused(914_145);
    assert!(
        as_long.contains("1000 pages, and the paper has 914145 of 186880"),
        "{as_long}"
    );
}

#[test]
fn results_are_drawn_with_their_values() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| {
        directory
            .path()
            .join(name)
            .to_str()
            .expect("plain")
            .to_owned()
    };
    let json = run(&[
        "sim",
        "zipf(1.0):4MiB",
        "--policy",
        "lru,arc",
        "--sizes",
        "5%,20%",
        "--json",
    ])
    .stdout;
    fs::write(path("sim.json"), &json).expect("written");
    let report: Value = serde_json::from_slice(&json).expect("JSON");
    for kind in ["mrc", "hit-ratio"] {
        does(&["plot", kind, &path("sim.json"), "-o", &path("a.svg")]);
        let svg = fs::read_to_string(path("a.svg")).expect("a picture");
        assert_eq!(svg.matches("<path class=\"pt").count(), 4);
        for run in report["runs"].as_array().expect("runs") {
            let miss = run["miss_ratio"].as_f64().expect("a ratio");
            let ratio = if kind == "mrc" { miss } else { 1.0 - miss };
            let told = format!(
                "{}: {:.2} % at",
                run["levels"][0]["policy"].as_str().expect("a name"),
                ratio * 100.0
            );
            assert!(svg.contains(&told), "{told} is not in the {kind} chart");
        }
    }
    let plan = "workloads = ['zipf(1.0):4MiB']\nlevels = [['lru:2%,5%', 'exclusive:5%,10%,20%']]\nseeds = [1, 2]\n";
    fs::write(path("plan.toml"), plan).expect("a plan");
    does(&["sweep", &path("plan.toml"), "--out", &path("o")]);
    does(&[
        "plot",
        "heat-map",
        &path("o/results.csv"),
        "-o",
        &path("h.svg"),
    ]);
    let svg = fs::read_to_string(path("h.svg")).expect("a picture");
    assert_eq!(svg.matches("class=\"cell\"").count(), 6);
    // Six hierarchies, of which the table and the JSON say memory and reads, and the line through the best.
    does(&[
        "plot",
        "pareto",
        &path("o/results.csv"),
        "-o",
        &path("p.svg"),
    ]);
    let svg = fs::read_to_string(path("p.svg")).expect("a picture");
    assert_eq!(svg.matches("<path class=\"pt\"").count(), 6);
    assert!(svg.contains("no run has less of both: "));
    does(&["plot", "pareto", &path("sim.json"), "-o", &path("p.svg")]);
    does(&["plot", "pareto", &path("sim.json"), "-o", &path("p.pdf")]);
    let pdf = fs::read(path("p.pdf")).expect("a picture");
    assert!(pdf.starts_with(b"%PDF-") && pdf.ends_with(b"%%EOF"));
    let none = futae(&["plot", "mrc", &path("o/results.csv"), "-o", &path("n.svg")])
        .output()
        .expect("futae starts");
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("heat-map"));
}

/// The reason that is given for the differences of LeCaR: without what the authors' program keeps, lots alone differ.
#[test]
fn lecar_counts_as_libcachesim_does_but_for_the_lots() {
    let output = run(&["truth", "--policy", "lecar", "--json"]);
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(rows.len(), 4 * 3);
    let count = |row: &Value, key: &str| row[key].as_u64().expect("a count");
    for row in &rows {
        let requests = count(row, "requests");
        let level = format!(
            "lecar(keep_uses=false):{}blocks",
            count(row, "capacity_blocks")
        );
        let workload = row["workload"].as_str().expect("a workload");
        let requests_text = requests.to_string();
        let options = ["--warmup", "0", "--requests", &requests_text, "--json"];
        let mut arguments = vec!["sim", workload, "--level", &level];
        arguments.extend(options);
        let report: Value = serde_json::from_slice(&run(&arguments).stdout).expect("JSON");
        let misses = count(&report["runs"][0]["levels"][0], "misses");
        let apart = misses.abs_diff(count(row, "libcachesim_misses"));
        assert!(apart * 1000 <= requests, "{row}: {misses}");
    }
}
