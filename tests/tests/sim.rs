//! `futae sim` as a user runs it, at the full size of the paper's experiment.

use futae_tests::binary::{binary, run, run_json};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

fn lower_hit_ratio(lower: &str) -> f64 {
    let report = run_json(&[
        "sim",
        "uniform:10GiB",
        "--block",
        "4KiB",
        "--level",
        "lru:3GiB",
        "--level",
        lower,
        "--json",
    ]);
    let run = &report["runs"][0];
    assert_eq!(run["footprint_blocks"], 2_621_440, "the full size");
    let number = |value: &Value| value.as_f64().expect("a number");
    let upper = number(&run["levels"][0]["hit_ratio"]);
    assert!((upper - 0.3).abs() < 0.003, "upper hit ratio {upper}");
    let ratio = number(&run["levels"][1]["hit_ratio"]);
    let combined = number(&run["combined_hit_ratio"]);
    let expected = upper + (1.0 - upper) * ratio;
    assert!(
        (combined - expected).abs() < 1e-9,
        "{combined} is not {expected}"
    );
    ratio
}

#[test]
fn an_exclusive_lower_level_serves_four_sevenths() {
    let ratio = lower_hit_ratio("exclusive:4GiB");
    assert!((ratio - 0.571).abs() <= 0.003, "lower hit ratio {ratio}");
}

#[test]
fn an_lru_lower_level_serves_a_sixth() {
    let ratio = lower_hit_ratio("lru:4GiB");
    assert!((ratio - 0.164).abs() <= 0.005, "lower hit ratio {ratio}");
}

#[test]
fn a_report_says_what_it_was_made_of() {
    let report = run_json(&[
        "sim",
        "zipf(1.0):1000blocks",
        "--policy",
        "lru,fifo",
        "--sizes",
        "10%,50%",
        "--seed",
        "5",
        "--json",
    ]);
    let runs = report["runs"].as_array().expect("runs");
    let names: Vec<_> = runs
        .iter()
        .map(|run| {
            let level = &run["levels"][0];
            (level["policy"].as_str(), level["capacity_blocks"].as_u64())
        })
        .collect();
    let expected = [("lru", 100), ("lru", 500), ("fifo", 100), ("fifo", 500)];
    assert_eq!(names, expected.map(|(name, size)| (Some(name), Some(size))));
    assert_eq!(report["seed"], 5);
    for key in ["trace_digest", "version"] {
        assert!(
            report[key].as_str().is_some_and(|text| !text.is_empty()),
            "{key}"
        );
    }
    for key in ["combined_hit_ratio", "store_reads", "requests", "seconds"] {
        assert!(runs[0][key].is_number(), "{key}: {}", runs[0]);
    }
    for key in ["requests", "hits", "misses", "hit_ratio"] {
        assert!(runs[0]["levels"][0][key].is_number(), "{key}: {}", runs[0]);
    }
}

/// One run needs the trace only once.
#[test]
fn a_trace_can_come_through_a_pipe() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ids.txt");
    let ids: String = (0..200_000u64)
        .map(|at| format!("{}\n", at * at % 7919))
        .collect();
    std::fs::write(&path, ids).expect("room");
    let path = path.to_str().expect("UTF-8");
    let level = ["--level", "lru:1000blocks", "--json"];
    let of_file = run_json(&[&["sim", path], &level[..]].concat());
    let piped = Command::new("sh")
        .args(["-c", r#"cat "$0" | "$@""#, path])
        .arg(binary())
        .args(["sim", "/dev/stdin", "--format", "ids"])
        .args(level)
        .output()
        .expect("sh starts");
    let said = String::from_utf8_lossy(&piped.stderr);
    assert!(piped.status.success(), "{said}");
    let piped: Value = serde_json::from_slice(&piped.stdout).expect("JSON");
    assert_eq!(piped["runs"][0]["requests"], 200_000);
    assert_eq!(piped["runs"][0]["levels"], of_file["runs"][0]["levels"]);
    assert_eq!(piped["trace_digest"], of_file["trace_digest"]);
    for (command, expected) in [
        (
            r#"cat "$0" | "$1" sim - --policy lru --sizes 1000blocks --format ids --csv"#,
            ",/dev/stdin",
        ),
        (r#"cat "$0" | "$1" trace info - --format ids"#, "200,000"),
        (
            r#"cat "$0" | "$1" mrc - --format ids --shards 0.5 --csv"#,
            "0.5",
        ),
    ] {
        let piped = Command::new("sh")
            .args(["-c", command, path])
            .arg(binary())
            .output()
            .expect("sh starts");
        let (out, said) = (piped.stdout, String::from_utf8_lossy(&piped.stderr));
        let out = String::from_utf8_lossy(&out);
        assert!(
            piped.status.success() && out.contains(expected),
            "{command}: {out}{said}"
        );
    }
}

#[test]
fn the_name_of_a_trace_need_not_be_text() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(OsStr::from_bytes(b"\xff\xfe.ids"));
    let other = directory.path().join("other.ids");
    for path in [&path, &other] {
        std::fs::write(path, "1\n2\n1\n3\n").expect("room");
    }
    for arguments in [
        &["sim", "--level", "lru:2blocks", "--csv"][..],
        &["sim", "--level", "lru:2blocks", "--report", "/dev/stdout"],
        &["mrc", "--csv"],
        &["locality"],
        &["trace", "info"],
        &["advise", "--memory", "2blocks"],
    ] {
        let run = |path: &Path| {
            let output = Command::new(binary()).args(arguments).arg(path).output();
            let output = output.expect("futae starts");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.code(), said)
        };
        let (found, expected) = (run(&path), run(&other));
        assert_eq!(found.0, expected.0, "{arguments:?}: {}", found.1);
        assert!(!found.1.contains("panicked"), "{}", found.1);
    }
    let missing = directory.path().join(OsStr::from_bytes(b"\xff.none"));
    let output = Command::new(binary())
        .arg("sim")
        .arg(missing)
        .args(["--level", "lru:2blocks"])
        .output();
    let error = output.expect("futae starts").stderr;
    let error = String::from_utf8_lossy(&error);
    assert!(error.contains("is no file, and no workload"), "{error}");
}

/// Three reads at the same time of a store that works on one at a time, a write that comes later, and a hit.
#[test]
fn requests_wait_for_each_other_as_the_trace_has_them_come() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.csv");
    let lines = "time_us,kind,offset,length\n0,R,0,4096\n0,R,4096,4096\n0,R,8192,4096\n9000000,W,12288,4096\n\
                 9500000,R,0,4096\n";
    std::fs::write(&path, lines).expect("a trace");
    let path = path.to_str().expect("a plain name");
    let ask = |more: &[&str]| {
        let sim = [
            "sim",
            path,
            "--policy",
            "lru",
            "--sizes",
            "8blocks",
            "--json",
            "--latency",
        ];
        let report = run_json(&[&sim[..], more].concat());
        report["runs"][0]["latencies"].clone()
    };
    let model = "upper=1ms,store=1s*1,store-write=2s";
    let recorded = ask(&[model]);
    let near = |value: &Value, wanted: f64| {
        let found = value.as_f64().expect("a number");
        assert!(
            (found / wanted - 1.0).abs() < 0.002,
            "{found}, not {wanted}: {recorded}"
        );
    };
    assert_eq!(recorded["arrivals"], "recorded");
    assert_eq!(
        (
            &recorded["reads"]["requests"],
            &recorded["writes"]["requests"]
        ),
        (&4.into(), &1.into())
    );
    near(
        &recorded["reads"]["mean_seconds"],
        (1.0 + 2.0 + 3.0 + 0.001) / 4.0,
    );
    near(&recorded["reads"]["max_seconds"], 3.0);
    near(&recorded["writes"]["mean_seconds"], 2.0);
    near(&recorded["span_seconds"], 11.0);
    near(&recorded["store"]["utilisation"], 5.0 / 11.0);
    near(&recorded["store"]["mean_wait_seconds"], 3.0 / 4.0);
    let closed = ask(&[model, "--clients", "1"]);
    assert_eq!(closed["store"]["mean_wait_seconds"], 0.0);
    near(&closed["reads"]["max_seconds"], 1.0);
    // Fixed times and no queue are told by the counts alone.
    assert!(ask(&["upper=1ms,store=1s"]).is_null());
    for (more, why) in [
        (&["store=fast"][..], "PLACE=TIME*N"),
        (&["store=1s*0"], "PLACE=TIME*N"),
        (&["store=1s*1", "--clients", "0"], "--clients"),
    ] {
        let sim = [
            "sim",
            "uniform:1MiB",
            "--policy",
            "lru",
            "--sizes",
            "10%",
            "--latency",
        ];
        let output = Command::new(binary())
            .args(sim)
            .args(more)
            .output()
            .expect("futae starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(why), "{error}");
    }
    let sim = [
        "sim",
        "uniform:1MiB",
        "--policy",
        "lru",
        "--sizes",
        "10%",
        "--latency",
        "store=1s*1",
    ];
    let output = Command::new(binary())
        .args(sim)
        .output()
        .expect("futae starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("--clients how many"), "{error}");
}

/// Two guests by hand, as in the tests of `futae-sim`, and the same from a sweep.
#[test]
fn guests_wait_for_their_answers_in_sim_and_in_sweeps() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let names = "time_us,latency_us,op,offset,length\n";
    let first =
        "0,2,R,4096,4096\n4,2,R,4096,4096\n8,2,R,4096,4096\n12,2,R,8192,4096\n16,2,R,4096,4096\n";
    let second = "1,5,R,0,4096\n9,5,R,4096,4096\n23,5,R,0,4096\n";
    std::fs::write(at.join("first.csv"), format!("{names}{first}")).expect("a trace");
    std::fs::write(at.join("second.csv"), format!("{names}{second}")).expect("a trace");
    let plan = "traces = [['first.csv', 'second.csv']]\nlevels = [['lru:2blocks']]\n\
                think = 'recorded'\nlatency = 'upper=1us,store=10us'\n";
    std::fs::write(at.join("plan.toml"), plan).expect("a plan");
    let run = |arguments: &[&str]| {
        let output = Command::new(binary())
            .args(arguments)
            .current_dir(at)
            .output()
            .expect("futae starts");
        let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.success(),
            read(&output.stdout) + &read(&output.stderr),
        )
    };
    let sim = |more: &[&str]| {
        let sim = ["sim", "first.csv", "second.csv", "--level", "lru:2blocks"];
        run(&[&sim[..], more].concat())
    };
    let model = ["--think", "recorded", "--latency", "upper=1us,store=10us"];
    let (_, said) = sim(&[&model[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(report["trace"]["order"], "closed");
    let run_of = &report["runs"][0];
    let hits = |guest: usize| run_of["by_guest"][guest]["served"][0]["reads"].clone();
    assert_eq!((hits(0), hits(1)), (3.into(), 0.into()));
    let done = |guest: usize| run_of["pace_by_guest"][guest]["finish_seconds"].clone();
    assert_eq!((done(0), done(1)), (31e-6.into(), 43e-6.into()));

    let (is_done, said) = run(&["sweep", "plan.toml", "--out", "o"]);
    assert!(is_done, "{said}");
    let table = std::fs::read_to_string(at.join("o/results.csv")).expect("a table");
    let (_, alone) = sim(&[&model[..], &["--csv"]].concat());
    let field = |text: &str, name: &str| {
        let mut lines = text.lines().map(|line| line.split(','));
        let column = lines.next()?.position(|it| it == name)?;
        Some(lines.next()?.nth(column)?.to_owned())
    };
    for name in ["hits", "mean_access_seconds", "trace_digest"] {
        let found = field(&table, name);
        assert!(found.is_some() && found == field(&alone, name), "{name}");
    }
    let (_, said) = sim(&model);
    assert!(said.contains("think time after each answer"), "{said}");

    for (more, why) in [
        (&["--think", "0"][..], "--latency"),
        (&["--think", "soon", "--latency", "store=1us"], "recorded"),
        (&[&model[..], &["--warmup", "1s"]].concat(), "--warmup"),
        (&[&model[..], &["--order", "turns"]].concat(), "turns"),
        (&[&model[..], &["--clients", "2"]].concat(), "--clients"),
    ] {
        let (is_done, said) = sim(more);
        assert!(!is_done && said.contains(why), "{more:?}: {said}");
    }
}

#[test]
fn results_as_csv_name_their_source_and_can_be_by_guest() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    for (name, blocks) in [
        ("a.csv", [1, 2, 1, 1, 2, 3]),
        ("b, c.csv", [1, 1, 9, 8, 7, 1]),
    ] {
        let line = |block: &u64| format!("{},4096\n", block * 4096);
        let lines: String = blocks.iter().map(line).collect();
        std::fs::write(at.join(name), format!("offset,length\n{lines}")).expect("a trace");
    }
    let names = ["a.csv", "b, c.csv"].map(|name| at.join(name).to_str().expect("UTF-8").to_owned());
    let traces = [&names[0][..], &names[1][..]];
    let sim = |more: &[&str]| {
        let output = run(&[&["sim"], &traces[..], more].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let levels = ["--level", "lru:1blocks/2blocks", "--level", "lru:3blocks"];
    let whole = sim(&[&levels[..], &["--csv"]].concat());
    let lines: Vec<&str> = whole.lines().collect();
    assert!(
        lines[0].starts_with("run,level,policy,") && lines[0].ends_with(",source"),
        "{whole}"
    );
    let source = format!(",\"{} + {}\"", names[0], names[1]);
    assert!(lines.len() == 3 && lines[2].ends_with(&source), "{whole}");

    let guests = sim(&[&levels[..], &["--csv", "--by-guest"]].concat());
    let rows: Vec<&str> = guests.lines().collect();
    assert_eq!(rows.len(), 1 + 2 * 2, "{guests}");
    let json = sim(&[&levels[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json).expect("JSON");
    for (at, row) in rows[1..].iter().enumerate() {
        let (guest, level) = (at / 2, at % 2);
        let found = &json["runs"][0]["by_guest"][guest];
        let hits = found["served"][level]["reads"].as_u64().expect("a count");
        let above = match level {
            0 => 0,
            _ => found["served"][0]["reads"].as_u64().expect("a count"),
        };
        // A block of its own for the first guest, two for the second, and three that they share.
        let capacity = [[1, 3], [2, 3]][guest][level];
        let name = match guest {
            0 => names[0].clone(),
            _ => format!("\"{}\"", names[1]),
        };
        let (requests, misses) = (6 - above, 6 - above - hits);
        let expected =
            format!("0,{guest},{name},{level},lru,{capacity},{requests},{hits},{misses},");
        assert!(row.starts_with(&expected), "{row} is not {expected}");
    }
    // By hand: the first guest's own cache of one block hits the fourth request alone, the second's of two the second.
    assert!(
        rows[1].contains(",6,1,5,") && rows[3].contains(",6,1,5,"),
        "{guests}"
    );

    let refused = run(&[&["sim", traces[0]], &levels[2..], &["--csv", "--by-guest"]].concat());
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains("several guests"), "{error}");
    let refused = run(&[&["sim"], &traces[..], &levels[..], &["--by-guest"]].concat());
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains("for --csv and --parquet"), "{error}");
}

/// Of two loops over one cache, the one that asks more often keeps its blocks there.
#[test]
fn guests_with_workloads_ask_at_their_rates() {
    let both = |first: &'static str| {
        let levels = ["--level", "lru:100blocks", "--requests", "6000"];
        [&["sim", first, "loop:60blocks"], &levels[..]].concat()
    };
    let counts = |first: &'static str| {
        let report = run_json(&[&both(first)[..], &["--json"]].concat());
        [0, 1].map(|guest| {
            let of = report["runs"][0]["by_guest"][guest].clone();
            let count = |at: &Value| at["reads"].as_u64().expect("a count");
            let served = of["served"].as_array().expect("levels, then the store");
            (served.iter().map(count).sum::<u64>(), count(&served[0]))
        })
    };
    assert_eq!(counts("loop:60blocks"), [(3000, 0), (3000, 0)]);
    // Until it is asked for again, a block of the first guest sees 59 others of it and 20 of the second, and one of the second 59 and 60.
    assert_eq!(counts("3*loop:60blocks"), [(4500, 4500), (1500, 0)]);
    let said = run(&both("3*loop:60blocks"));
    let said = String::from_utf8(said.stdout).expect("text");
    let expected = "2 guests, each with its own workload, request as often as the numbers before their workloads say, and share one cache";
    assert!(said.contains(expected), "{said}");
    // Of several caches the guests' results name theirs.
    let sizes = ["--policy", "lru", "--sizes", "30blocks,60blocks"];
    let said = run(&[&["sim", "loop:60blocks", "loop:60blocks"], &sizes[..]].concat());
    let said = String::from_utf8(said.stdout).expect("text");
    assert!(
        said.contains("\nlru of 30") && said.contains("\nlru of 60"),
        "{said}"
    );
}

/// Runs of neighbours on two volumes: what `sim` counts of a policy that reads ahead, `mrc` and `locality` find, too, and other policies of the
/// same command count the same.
#[test]
fn curves_intervals_and_neighbours_are_those_of_a_run_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("runs.csv");
    let run_of = |at: u64| {
        let (volume, from) = (["a", "b"][at as usize % 2], at * at * 7919 % 2000);
        (from..from + at % 30).map(move |block| format!("{volume},{},4096\n", block * 4096))
    };
    let lines: String = (0..600).flat_map(run_of).collect();
    std::fs::write(&path, format!("volume,offset,length\n{lines}")).expect("room");
    let path = path.to_str().expect("UTF-8");
    let misses = |arguments: &[&str]| {
        let report = run_json(&[&["sim", path, "--json"], arguments].concat());
        let runs = report["runs"].as_array().expect("runs").clone();
        runs.iter()
            .map(|run| run["levels"][0]["misses"].as_u64())
            .collect::<Vec<_>>()
    };
    let size = ["--sizes", "500blocks"];
    let policies = ["const", "linux(readahead=32)", "linux(readahead=8)"];
    let alone = policies.map(|policy| misses(&[&["--policy", policy], &size[..]].concat())[0]);
    let together = misses(&[&["--policy", &policies.join(",")], &size[..]].concat());
    assert_eq!(together, alone, "beside others");
    for (policy, misses) in policies.iter().zip(alone) {
        let curve = run_json(&[&["mrc", path, "--json", "--policy", policy], &size[..]].concat());
        let requests = curve["requests"].as_f64().expect("a number");
        let ratio = curve["curves"][0]["points"][0]["miss_ratio"].as_f64();
        let missed = ratio.expect("a number") * requests;
        assert_eq!(Some(missed.round() as u64), misses, "{policy}");
        let level = format!("{policy}:500blocks");
        let places = run_json(&[
            "locality", path, "--warmup", "0", "--level", &level, "--json",
        ]);
        let below = &places["taps"][1];
        // Each block that is read below is read there once without having been read before.
        let again = below["reaccesses"].as_u64().expect("a number");
        assert!(
            misses.is_some_and(|misses| again < misses),
            "{policy}: {again}"
        );
    }
    let blocks = |options: &[&str]| {
        let few = ["mrc", path, "--json", "--requests", "100", "--sizes", "10%"];
        run_json(&[&few, options].concat())["curves"][0]["points"][0]["blocks"].clone()
    };
    assert_eq!(
        blocks(&["--shards", "1"]),
        blocks(&[]),
        "a tenth of all blocks"
    );
    let sampled = run(&[
        "mrc",
        path,
        "--policy",
        "linux(readahead=32)",
        "--mini",
        "0.5",
    ]);
    let said = String::from_utf8_lossy(&sampled.stderr);
    assert!(said.contains("have no neighbours"), "{said}");
}
