//! `futae advise` and `futae verify`: a choice of caches from a recording, applied, and held against what comes.

use futae_policy::AccessKind;
use futae_testkit::nbd::Plain as Client;
use futae_tests::BLOCK;
use futae_tests::binary::{futae, run, run_json};
use futae_tests::predict::requests;
use futae_tests::process::Running;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::text;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const BLOCKS: u64 = 1024;

fn ask(stage: &Stage, workload: &str, seed: u64, count: usize) {
    let mut client = Client::connect(&stage.socket, EXPORT).expect("a connection");
    for request in requests(workload, seed, count) {
        let offset = request.block() * BLOCK as u64;
        if request.kind() == AccessKind::Write {
            let done = client.write(offset, &[1; BLOCK]);
            done.expect("a connection").expect("written");
        } else {
            let done = client.read(offset, BLOCK);
            done.expect("a connection").expect("read");
        }
    }
}

fn mean(choice: &Value, figure: &str) -> f64 {
    let estimate = &choice[figure];
    let at = |key: &str| estimate[key].as_f64().expect("a number");
    assert!(
        at("low") <= at("mean") && at("mean") <= at("high"),
        "{estimate}"
    );
    at("mean")
}

#[test]
fn figures_are_those_of_the_simulator() {
    let workload = format!("zipf(0.9,writes=0.1):{BLOCKS}blocks");
    let memory = [
        "--memory",
        "2MiB",
        "--requests",
        "6000",
        "--warmup",
        "4000",
        "--json",
    ];
    let mut arguments = vec!["advise", &workload, &workload];
    arguments.extend(memory);
    let forecast = run_json(&arguments);
    let options = forecast["options"].as_array().expect("options");
    assert_eq!(
        options.len(),
        41,
        "no host cache, and eight policies in five sizes"
    );
    assert!(
        forecast["reason"]
            .as_str()
            .is_some_and(|reason| reason.len() > 40)
    );
    for choice in options {
        let levels = choice["levels"].as_array().expect("levels");
        let mut arguments = vec![
            "sim",
            &workload,
            &workload,
            "--requests",
            "6000",
            "--warmup",
            "4000",
            "--json",
        ];
        for level in levels {
            arguments.extend(["--level", level.as_str().expect("a level")]);
        }
        let report = run_json(&arguments);
        let simulated = &report["runs"][0];
        let near = |figure: &str, other: &Value| {
            let other = other.as_f64().expect("a number");
            assert!(
                (mean(choice, figure) - other).abs() < 1e-9,
                "{figure}: {choice} {simulated}"
            );
        };
        near("hit_ratio", &simulated["combined_hit_ratio"]);
        let per_request = |key: &str| (simulated[key].as_f64().expect("a number") / 6000.0).into();
        near("store_reads_per_request", &per_request("store_reads"));
        near("store_writes_per_request", &per_request("store_writes"));
        if choice["host_bytes"] != 0 {
            let host = &simulated["levels"][1];
            assert_eq!(choice["host_requests"], host["requests"]);
            near("host_hit_ratio", &host["hit_ratio"]);
        }
    }
}

/// A load that ends is counted to its end; what leaves nothing to count is refused.
#[test]
fn a_load_of_one_pass_has_figures() {
    let memory = ["--memory", "2MiB", "--policies", "lru", "--json"];
    let mut arguments = vec!["advise", "scan:1000blocks"];
    arguments.extend(memory);
    let forecast = run_json(&arguments);
    assert_eq!(
        (&forecast["requests"], &forecast["warmup_requests"]),
        (&1000.into(), &0.into())
    );
    for choice in forecast["options"].as_array().expect("options") {
        assert_eq!(mean(choice, "store_reads_per_request"), 1.0);
    }
    arguments.extend(["--warmup", "990"]);
    let refused = run(&arguments);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("shorten --warmup"),
        "{said}"
    );
}

/// The most popular blocks are in a sample or not, so it has too many requests or too few; the forecast is of all requests nevertheless.
#[test]
fn a_sample_is_held_against_the_requests_that_there_were() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let (whole, sample) = (at("whole.csv"), at("sample.csv"));
    let made = run(&[
        "trace",
        "convert",
        "zipf(0.9):2000blocks",
        text(&whole),
        "--requests",
        "40000",
    ]);
    assert!(made.status.success(), "{made:?}");
    let lines = fs::read_to_string(&whole).expect("a trace");
    let host_hits = |trace: &Path| {
        let memory = [
            "--memory",
            "800blocks",
            "--policies",
            "lru",
            "--at",
            "host",
            "--json",
        ];
        let forecast = run_json(&[&["advise", text(trace)], &memory[..]].concat());
        mean(&forecast["options"][0], "host_hit_ratio")
    };
    let expected = host_hits(&whole);
    for tenth in [2, 5] {
        let is_sampled = |line: &&str| {
            let offset = line
                .split(',')
                .nth(3)
                .and_then(|offset| offset.parse::<u64>().ok());
            offset.is_none_or(|offset| offset / BLOCK as u64 % 10 == tenth)
        };
        let kept: Vec<&str> = lines.lines().filter(is_sampled).collect();
        fs::write(&sample, kept.join("\n") + "\n").expect("a sample");
        let found = |cache_requests: u64| {
            let facts = json!({
                "futae_recording": "0.1.0", "policy": "lru", "block_bytes": BLOCK, "capacity_blocks": 800, "sample": 0.1,
                "requests": kept.len() - 1, "lost": 0, "seconds": 1.0, "cache_requests": cache_requests, "cache_hits": 0,
                "store_read_micros": null
            });
            fs::write(at("sample.csv.json"), facts.to_string()).expect("what was recorded");
            host_hits(&sample)
        };
        let (balanced, alone) = (found(40_000), found(0));
        assert!(
            (balanced - expected).abs() < 0.025,
            "{balanced} and {expected}"
        );
        assert!((alone - expected).abs() > 0.05, "{alone} and {expected}");
    }
}

/// Records a server, is advised, restarts it so, and verifies: under the same load, under another, and with another cache
/// than was advised.
#[test]
fn an_advice_is_applied_and_verified() {
    let load = format!("zipf(0.8,writes=0.2):{BLOCKS}blocks");
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", "100blocks", "--policy", "fifo"]);
    let (trace, saved, file) = (
        stage.path("day.csv"),
        stage.path("forecast.json"),
        stage.path("serve.toml"),
    );
    let mut recording = Running::start(
        "futae record",
        futae(&["record", text(&stage.control), "--out", text(&trace)]),
    );
    recording.line();
    ask(&stage, &load, 1, 16_000);
    recording.signal(Signal::INT);
    assert!(recording.wait().status.success());
    stage.stop_serve();

    fs::write(
        &file,
        format!(
            "control = \"unix:{}\"\njson = true\n[[export]]\nname = \"{EXPORT}\"\nsource = \"{}\"\nlisten = \"unix:{}\"\n",
            text(&stage.control), text(&stage.image), text(&stage.socket)
        ),
    )
    .expect("a configuration");
    let output = run(&[
        "advise",
        text(&trace),
        "--memory",
        "1MiB",
        "--policies",
        "arc",
        "--save",
        text(&saved),
        "--apply",
        text(&file),
    ]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(
        said.contains("requests at the host") && said.contains("1.0 MiB arc write-back"),
        "{said}"
    );
    let written = fs::read_to_string(&file).expect("the configuration");
    assert!(
        written.starts_with(
            "cache = \"1MiB\"\npolicy = \"arc\"\nwrite-mode = \"write-back\"\ncontrol = "
        ),
        "{written}"
    );

    let mut server = Running::start("futae serve", futae(&["serve", "--config", text(&file)]));
    server.line();
    ask(&stage, &load, 2, 4_000);
    assert!(verify(&stage, &saved, 0, || ask(&stage, &load, 3, 8_000)).contains("as forecast"));
    let alarm = verify(&stage, &saved, 0, || {
        ask(&stage, &format!("loop:{BLOCKS}blocks"), 1, 8_000);
    });
    assert!(
        alarm.contains("another load: 0 % of its bytes are written"),
        "{alarm}"
    );
    let resized = run(&["export", "resize", text(&stage.control), EXPORT, "256KiB"]);
    assert!(resized.status.success(), "{resized:?}");
    let alarm = verify(&stage, &saved, 1, || ask(&stage, &load, 4, 8_000));
    assert!(
        alarm.contains("the cache has 262144 bytes, and the forecast is for 1048576"),
        "{alarm}"
    );
    let changed = run(&["export", "resize", text(&stage.control), EXPORT, "1MiB"]);
    assert!(changed.status.success(), "{changed:?}");
    assert!(server.stop().status.success());
    let other = written
        .replace("write-back", "write-through")
        .replace("\"arc\"", "\"fifo\"");
    fs::write(&file, other).expect("a configuration");
    let mut server = Running::start("futae serve", futae(&["serve", "--config", text(&file)]));
    server.line();
    verify(&stage, &saved, 2, || ask(&stage, &load, 5, 8_000));
    assert!(server.stop().status.success());
}

/// What `futae verify` says of a period in which `act` happens, of a cache that differs from the forecast in as many ways as it
/// warns of; its exit status is that of an alarm if there is one.
fn verify(stage: &Stage, forecast: &Path, warned: usize, act: impl FnOnce()) -> String {
    let mut command = futae(&[
        "verify",
        text(forecast),
        text(&stage.control),
        "--time",
        "1h",
        "--watch",
    ]);
    command.arg("--json");
    let mut running = Running::start("futae verify", command);
    running.line();
    act();
    running.signal(Signal::TERM);
    let ended = running.wait();
    assert!(ended.status.success(), "{ended:?}");
    let warnings = ended.errors.matches("futae: warning: the cache").count();
    assert_eq!(warnings, warned, "{ended:?}");
    let judgement: Value = serde_json::from_str(ended.lines.last().expect("a line")).expect("JSON");
    match judgement["alarm"].as_str() {
        Some(alarm) => {
            assert!(ended.errors.contains(alarm), "{ended:?}");
            alarm.to_owned()
        }
        None => "as forecast".to_owned(),
    }
}

/// Which quarter of the blocks is in a sample decides how many of the requests it has, and hardly what is advised.
#[test]
fn a_sample_of_the_blocks_forecasts_what_all_of_them_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let all = requests("zipf(1.0):4000blocks", 1, 60_000);
    let hit_ratio = |name: &str, sample: f64, is_in: &dyn Fn(u64) -> bool| {
        let trace = directory.path().join(name);
        let blocks = all.iter().map(|request| request.block());
        let blocks: Vec<u64> = blocks.filter(|&block| is_in(block)).collect();
        let lines = blocks
            .iter()
            .map(|block| format!("{},4096\n", block * 4096));
        fs::write(
            &trace,
            format!("offset,length\n{}", lines.collect::<String>()),
        )
        .expect("room");
        let recorded = json!({
            "futae_recording": "0.1.0", "policy": "lru", "block_bytes": 4096, "capacity_blocks": 9, "sample": sample,
            "requests": blocks.len(), "lost": 0, "seconds": 1.0, "cache_requests": all.len(), "cache_hits": 0,
            "store_read_micros": null
        });
        fs::write(
            directory.path().join(format!("{name}.json")),
            recorded.to_string(),
        )
        .expect("room");
        let line = [
            "advise",
            text(&trace),
            "--memory",
            "400blocks",
            "--policies",
            "lru",
            "--json",
        ];
        let choice = &run_json(&line)["options"][0];
        let (of_all, of_host) = (mean(choice, "hit_ratio"), mean(choice, "host_hit_ratio"));
        // Requests are whole numbers in each of 20 windows.
        assert!(
            (of_all - of_host).abs() < 0.002,
            "there is one cache: {choice}"
        );
        let store_reads = mean(choice, "store_reads_per_request");
        assert!((1.0 - of_all - store_reads).abs() < 0.002, "{choice}");
        (blocks.len(), of_host)
    };
    let (count, expected) = hit_ratio("all.csv", 1.0, &|_| true);
    let mut counts = Vec::new();
    for part in 0..4 {
        let is_in = |block: u64| block % 4 == part;
        let (sampled, found) = hit_ratio(&format!("{part}.csv"), 0.25, &is_in);
        assert!(
            (found - expected).abs() < 0.03,
            "{sampled} of {count} requests: {found} instead of {expected}"
        );
        counts.push(sampled);
    }
    let (least, most) = (counts.iter().min(), counts.iter().max());
    assert!(
        most > least.map(|least| least * 5 / 4).as_ref(),
        "or there would be nothing to correct: {counts:?}"
    );
}

#[test]
fn latencies_that_are_given_come_before_those_of_a_recording() {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("a.csv");
    let requests = (0..2000_u64).map(|at| format!("{},4096\n", at * at % 1009 * 4096));
    let text_of_all = format!("offset,length\n{}", requests.collect::<String>());
    fs::write(&trace, text_of_all).expect("a trace");
    let recorded = json!({
        "futae_recording": "0.1.0", "policy": "lru", "block_bytes": 4096, "capacity_blocks": 9, "sample": 1.0, "requests": 2000,
        "lost": 0, "seconds": 1.0, "cache_requests": 2000, "cache_hits": 0, "store_read_micros": 9000.0
    });
    fs::write(directory.path().join("a.csv.json"), recorded.to_string()).expect("room");
    let mean = |more: &[&str]| {
        let line = [
            "advise",
            text(&trace),
            "--memory",
            "256KiB",
            "--policies",
            "lru",
            "--json",
        ];
        let found = run_json(&[&line[..], more].concat());
        mean(&found["options"][0], "mean_access_seconds")
    };
    // These are the latencies that hold for a trace of which none are known.
    let given = mean(&["--latency", "upper=1us,lower=10us,link=30us,store=300us"]);
    assert!(given < 301e-6, "{given}");
    assert!(mean(&[]) > 10.0 * given, "the store's own time is longer");
}

/// An advice is for one cache. In a file whose `cache` is divided, or has other blocks, it would come to other caches.
#[test]
fn an_advice_is_not_written_where_a_server_would_have_another_cache() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("serve.toml");
    for (more, wanted) in [
        ("share = \"256KiB\"\n", "disk has a share"),
        (
            "[[export]]\nname = \"other\"\nsource = \"b.img\"\nshare = 65536\n",
            "other has a share",
        ),
        ("", "its blocks are of 64KiB"),
    ] {
        let block = if more.is_empty() { "64KiB" } else { "4KiB" };
        let before = format!(
            "cache = \"1MiB\"\nlisten = \"unix:s\"\nblock = \"{block}\"\n[[export]]\nname = \"disk\"\nsource = \"a.img\"\n{more}"
        );
        fs::write(&file, &before).expect("a configuration");
        let output = run(&[
            "advise",
            "zipf(0.8):1000blocks",
            "--guest-memory",
            "256KiB",
            "--memory",
            "2MiB",
            "--policies",
            "lru",
            "--apply",
            text(&file),
        ]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(wanted),
            "{more}: {said}"
        );
        let after = fs::read_to_string(&file).expect("the configuration");
        assert_eq!(after, before);
    }
}

#[test]
fn what_cannot_be_advised_is_said() {
    let stage = Stage::new(8);
    let image = text(&stage.image);
    for (arguments, wanted) in [
        (
            &["advise", "zipf(1.0):1GiB", "--memory", "64KiB"][..],
            "too little to be divided",
        ),
        (
            &["advise", "nothing", "--memory", "1GiB"],
            "nothing is no file, and no workload",
        ),
        (
            &[
                "advise",
                "zipf(1.0):1000blocks",
                "--memory",
                "1MiB",
                "--at",
                "host",
                "--policies",
                "exclusive",
            ],
            "--at guest",
        ),
        (
            &[
                "advise",
                "zipf(1.0):1000blocks",
                "--memory",
                "1MiB",
                "--requests",
                "10",
            ],
            "20 are the least",
        ),
        (&["verify", image, "nowhere"], "cannot read"),
        (
            &["verify", "/dev/null", "nowhere"],
            "is no forecast that futae advise --save wrote",
        ),
    ] {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(wanted),
            "{arguments:?}: {said}"
        );
    }
}
