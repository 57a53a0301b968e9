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
    // The sizes 1, 10 and 100 are as far apart on a logarithmic axis.
    let curve = "method,cache_blocks,cache_bytes,miss_ratio,half_width\nexact,1,4096,0.9,\nexact,10,40960,0.5,\nexact,100,409600,0.1,\n";
    fs::write(path("curve.csv"), curve).expect("written");
    let middle = |more: &[&str]| {
        let out = path("log.svg");
        let command = ["plot", "mrc", &path("curve.csv"), "-o", &out];
        does(&[&command[..], more].concat());
        let svg = fs::read_to_string(&out).expect("a picture");
        let points = svg.split_once("points=\"").expect("a line").1;
        let points = points.split_once('"').expect("its end").0;
        let xs: Vec<f64> = points
            .split_whitespace()
            .map(|point| {
                point
                    .split(',')
                    .next()
                    .and_then(|x| x.parse().ok())
                    .expect("x")
            })
            .collect();
        (xs[1] - xs[0]) / (xs[2] - xs[0])
    };
    assert!((middle(&[]) - 9.0 / 99.0).abs() < 0.01);
    assert!((middle(&["--log-x"]) - 0.5).abs() < 0.01);
    // Of two seeds the mean and its interval: the difference times 12.706 ÷ 2, by Student's table.
    let seeds = "seed,level,policy,capacity_blocks,block_bytes,all_miss_ratio\n1,0,lru,10,4096,0.50\n2,0,lru,10,4096,0.52\n\
                 1,0,lru,20,4096,0.25\n2,0,lru,20,4096,0.25\n1,0,fifo,20,4096,0.3\n";
    fs::write(path("seeds.csv"), seeds).expect("written");
    does(&[
        "plot",
        "hit-ratio",
        &path("seeds.csv"),
        "-o",
        &path("s.svg"),
    ]);
    let svg = fs::read_to_string(path("s.svg")).expect("a picture");
    assert_eq!(svg.matches("class=\"bar\"").count(), 2, "one run has none");
    assert!(
        svg.contains("± 12.71 points") && svg.contains("± 0.00 points"),
        "{svg}"
    );
    // Runs that differ in more than their seed are no samples of one figure; the same run twice is one run.
    let header = "seed,level,policy,capacity_blocks,block_bytes,all_miss_ratio,warmup_requests\n";
    for (rows, problem) in [
        (
            "1,0,lru,10,4096,0.5,0\n1,0,lru,10,4096,0.6,0\n",
            "the same seed",
        ),
        (
            "1,0,lru,10,4096,0.5,0\n2,0,lru,10,4096,0.6,7\n",
            "warmup_requests 0 and 7",
        ),
    ] {
        fs::write(path("differ.csv"), format!("{header}{rows}")).expect("written");
        let refused = run(&[
            "plot",
            "hit-ratio",
            &path("differ.csv"),
            "-o",
            &path("d.svg"),
        ]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            refused.status.code() == Some(2) && said.contains(problem),
            "{said}"
        );
    }
    does(&[
        "plot",
        "hit-ratio",
        &path("seeds.csv"),
        &path("seeds.csv"),
        "-o",
        &path("twice.svg"),
    ]);
    let twice = fs::read_to_string(path("twice.svg")).expect("a picture");
    assert_eq!(twice, svg);
    // Curves of two policies are two lines.
    for policy in ["lru", "fifo"] {
        let table = run(&[
            "mrc",
            "zipf(1.0):1MiB",
            "--policy",
            policy,
            "--points",
            "2",
            "--csv",
        ])
        .stdout;
        fs::write(path(&format!("{policy}.csv")), table).expect("written");
    }
    does(&[
        "plot",
        "mrc",
        &path("lru.csv"),
        &path("fifo.csv"),
        "-o",
        &path("two.svg"),
    ]);
    let two = fs::read_to_string(path("two.svg")).expect("a picture");
    assert!(
        two.contains("lru, exact") && two.contains("fifo, exact"),
        "{two}"
    );
    let sampled = "method,cache_blocks,cache_bytes,miss_ratio,half_width\nshards,1,4096,0.9,0.0123\nexact,1,4096,0.9,\n";
    fs::write(path("sampled.csv"), sampled).expect("written");
    does(&["plot", "mrc", &path("sampled.csv"), "-o", &path("s.svg")]);
    let svg = fs::read_to_string(path("s.svg")).expect("a picture");
    assert_eq!(svg.matches("class=\"bar\"").count(), 1);
    assert!(svg.contains("± 1.23 points"), "{svg}");
    for kind in ["heat-map", "time"] {
        let command = [
            "plot",
            kind,
            &path("sim.json"),
            "-o",
            &path("n.svg"),
            "--log-x",
        ];
        assert_eq!(run(&command).status.code(), Some(2), "{kind}");
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
