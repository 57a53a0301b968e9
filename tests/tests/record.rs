//! `futae record`: what a server was asked, as a trace that simulates to what its cache did.

use futae_nbd::{ClientWish, Command};
use futae_policy::AccessKind;
use futae_testkit::nbd::{self, Plain as Client};
use futae_tests::BLOCK;
use futae_tests::binary::{futae, run, run_json};
use futae_tests::predict::{requests, writes};
use futae_tests::process::Running;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::{has_fuse, text};
use futae_tests::tree::{Tree, read};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

const BLOCKS: u64 = 2048;
const POLICY: &str = "s3-fifo";
const CACHE: &str = "200blocks";

/// A recording of a server that has begun.
fn record(stage: &Stage, trace: &Path, more: &[&str]) -> Running {
    record_of(&stage.control, trace, more)
}

/// The same of any program.
fn record_of(control: &Path, trace: &Path, more: &[&str]) -> Running {
    let mut command = futae(&["record", text(control), "--json", "--out", text(trace)]);
    command.args(more);
    let mut running = Running::start("futae record", command);
    let first: Value = serde_json::from_str(&running.line()).expect("JSON");
    assert_eq!(first["recording"], text(trace));
    running
}

/// Interrupts a recording; its facts.
fn end(mut running: Running) -> Value {
    running.signal(Signal::INT);
    let ended = running.wait();
    assert!(ended.status.success(), "{ended:?}");
    serde_json::from_str(ended.lines.last().expect("a line")).expect("JSON")
}

/// Asks for `count` blocks; how many of the requests were writes.
fn ask(stage: &Stage, seed: u64, count: usize) -> usize {
    let all = requests(&format!("zipf(0.9,writes=0.2):{BLOCKS}blocks"), seed, count);
    let mut client = Client::connect(&stage.socket, EXPORT).expect("a connection");
    for request in &all {
        let offset = request.block() * BLOCK as u64;
        if request.kind() == AccessKind::Write {
            let done = client.write(offset, &[1; BLOCK]);
            done.expect("a connection").expect("written");
        } else {
            let done = client.read(offset, BLOCK);
            done.expect("a connection").expect("read");
        }
    }
    writes(&all)
}

/// Gives the server an order, which it follows.
fn order_well(stage: &Stage, order: &str) {
    let answer = stage.order(&format!("{{\"command\":{order}}}"));
    assert!(answer["error"].is_null(), "{answer}");
}

#[test]
fn a_recording_simulates_to_what_the_cache_did() {
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", CACHE, "--policy", POLICY]);
    let trace = stage.path("day.csv");
    let running = record(&stage, &trace, &[]);
    let wrote = ask(&stage, 1, 6000);
    let facts = end(running);
    assert_eq!(facts["requests"], 6000, "{facts}");
    assert_eq!((&facts["lost"], &facts["sample"]), (&0.into(), &1.0.into()));
    assert_eq!(facts["cache_requests"], 6000);
    let beside = fs::read_to_string(stage.path("day.csv.json")).expect("the facts");
    assert_eq!(serde_json::from_str::<Value>(&beside).expect("JSON"), facts);

    let level = format!("{POLICY}:{CACHE}");
    let report = run_json(&["sim", text(&trace), "--level", &level, "--json"]);
    let run = &report["runs"][0];
    assert_eq!(run["levels"][0]["hits"], facts["cache_hits"], "{run}");
    assert_eq!(
        (&run["requests"], &run["writes"]),
        (&6000.into(), &wrote.into())
    );
    // What clients asked for is in the trace, and not in the log.
    let said = stage.stop_serve_that_may_say();
    assert!(
        said.contains("end-record") && !said.contains("\"requests\""),
        "{said}"
    );
}

#[test]
fn two_recordings_do_not_write_one_trace() {
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", CACHE]);
    let trace = stage.path("day.csv");
    let first = record(&stage, &trace, &[]);
    let control = text(&stage.control);
    let more = ["--append", "--time", "1s"];
    let second = run(&[&["record", control, "--out", text(&trace)], &more[..]].concat());
    let said = String::from_utf8_lossy(&second.stderr);
    let process = format!("(process {})", first.id());
    assert!(said.contains(&process), "{said}");
    ask(&stage, 1, 300);
    assert_eq!(end(first)["requests"], 300, "the first goes on");
    let lines = fs::read_to_string(&trace).expect("the trace");
    assert_eq!(lines.lines().count(), 301);
}

#[test]
fn a_recording_that_was_killed_goes_on() {
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", CACHE]);
    let trace = stage.path("day.csv");
    let running = record(&stage, &trace, &[]);
    ask(&stage, 1, 500);
    // So that the recording has them; then it dies, in the middle of a line.
    let size = || fs::metadata(&trace).expect("the trace").len();
    futae_testkit::wait::eventually("500 requests are written", || {
        fs::read_to_string(&trace).is_ok_and(|text| text.lines().count() == 501)
    });
    futae_testkit::wait::eventually("what the cache counted is written, too", || {
        let facts = fs::read(stage.path("day.csv.json")).expect("the facts");
        let facts: Value = serde_json::from_slice(&facts).expect("JSON");
        facts["cache_requests"] == 500
    });
    running.kill();
    let whole = size();
    let mut file = fs::File::options()
        .append(true)
        .open(&trace)
        .expect("the trace");
    file.write_all(b"12345,dis").expect("a torn line");

    let refused = run(&["record", text(&stage.control), "--out", text(&trace)]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--append"));
    assert!(size() > whole, "it is left as it was");
    let running = record(&stage, &trace, &["--append"]);
    assert_eq!(size(), whole, "the torn line is gone");
    ask(&stage, 2, 300);
    let facts = end(running);
    assert_eq!(
        (&facts["requests"], &facts["cache_requests"]),
        (&800.into(), &800.into()),
        "{facts}"
    );
    let info = run_json(&["trace", "info", text(&trace), "--json"]);
    assert_eq!(info["requests"], 800, "{info}");
}

#[test]
fn a_recording_ends_when_another_one_begins() {
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", CACHE]);
    let traces = ["first.csv", "second.csv"].map(|name| stage.path(name));
    let mut first = record(&stage, &traces[0], &[]);
    ask(&stage, 1, 500);
    futae_testkit::wait::eventually("the first has them", || {
        fs::read_to_string(&traces[0]).is_ok_and(|text| text.lines().count() == 501)
    });
    let second = record(&stage, &traces[1], &[]);
    ask(&stage, 2, 300);
    let ended = first.wait();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(
        ended.errors.contains("another futae record has begun"),
        "{}",
        ended.errors
    );
    let facts: Value = serde_json::from_str(ended.lines.last().expect("a line")).expect("JSON");
    assert_eq!(facts["requests"], 500, "{facts}");
    assert_eq!(end(second)["requests"], 300, "all of those since it began");
}

#[test]
fn a_recorder_that_was_held_up_takes_nothing_of_the_next_servers_recording() {
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", CACHE]);
    let traces = ["first.csv", "second.csv"].map(|name| stage.path(name));
    let mut first = record(&stage, &traces[0], &[]);
    first.hold_up();
    stage.end_serve();
    stage.serve(&["--cache", CACHE]);
    let second = record(&stage, &traces[1], &[]);
    first.go_on();
    let ended = first.wait();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    ask(&stage, 1, 300);
    assert_eq!(end(second)["requests"], 300);
}

/// The cache that is recorded is the only one at first.
#[test]
fn a_recording_goes_on_while_exports_come_and_go() {
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", CACHE]);
    let trace = stage.path("day.csv");
    let mut running = record(&stage, &trace, &[]);
    ask(&stage, 1, 200);
    let [own, alike] = ["own.img", "alike.img"].map(|name| stage.path(name));
    for image in [&own, &alike] {
        let made = fs::File::create(image).and_then(|file| file.set_len(1 << 20));
        made.expect("an image");
    }
    let facts = || -> Value {
        let facts = fs::read(stage.path("day.csv.json")).expect("the facts");
        serde_json::from_slice(&facts).expect("JSON")
    };
    let mut requests = 200;
    for (order, asked) in [
        (
            format!(
                "\"export-add\",\"export\":\"own={},share=100blocks\"",
                text(&own)
            ),
            300,
        ),
        (
            format!("\"export-add\",\"export\":\"alike={}\"", text(&alike)),
            0,
        ),
        ("\"export-remove\",\"export\":\"own\"".to_owned(), 100),
        (
            format!(
                "\"export-add\",\"export\":\"own={},share=100blocks\"",
                text(&own)
            ),
            50,
        ),
    ] {
        order_well(&stage, &order);
        ask(&stage, 2, asked);
        requests += asked;
        futae_testkit::wait::eventually("these are recorded", || {
            facts()["cache_requests"] == requests
        });
    }
    // The export by whose name the cache was asked for goes, and the other cache, too.
    running.hold_up();
    ask(&stage, 2, 70);
    for export in ["own", EXPORT] {
        order_well(
            &stage,
            &format!("\"export-remove\",\"export\":\"{export}\""),
        );
    }
    running.go_on();
    let facts = end(running);
    requests += 70;
    assert_eq!(facts["requests"], requests, "{facts}");
}

/// The simulation takes each write for one of whole blocks, and a trace has no TRIM. Where a cache decided otherwise, the facts say how
/// often, and an advice warns.
#[test]
fn what_a_simulation_does_not_have_is_counted_and_warned_of() {
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", CACHE]);
    let trace = stage.path("day.csv");
    let running = record(&stage, &trace, &[]);
    let mut client = nbd::Client::unix(&stage.socket, EXPORT, &ClientWish::default());
    for block in 0..100 {
        let at = block * BLOCK as u64;
        client.read(at, BLOCK as u32).expect("read");
        assert_eq!(client.write((1 << 20) + at + 512, &[1; 512]), None);
    }
    let trimmed = client.simple(Command::Trim, 0, 50 * BLOCK as u32);
    assert_eq!(trimmed.error, None);
    let facts = end(running);
    assert_eq!(
        (&facts["cache_requests"], &facts["write_around_blocks"]),
        (&100.into(), &100.into()),
        "{facts}"
    );
    assert_eq!(facts["dropped_blocks"], 50, "{facts}");
    let output = run(&["advise", text(&trace), "--memory", "1MiB"]);
    let said = String::from_utf8_lossy(&output.stderr);
    for warning in [
        "100 of 200 blocks were written in part",
        "dropped 50 blocks",
    ] {
        assert!(said.contains(warning), "{said}");
    }
}

#[test]
fn a_sample_has_all_requests_for_some_blocks() {
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", CACHE]);
    let trace = stage.path("part.csv");
    let running = record(&stage, &trace, &["--sample", "25%", "--max-size", "1MiB"]);
    ask(&stage, 1, 3000);
    ask(&stage, 1, 3000);
    let facts = end(running);
    assert_eq!(
        (&facts["sample"], &facts["cache_requests"]),
        (&0.25.into(), &6000.into())
    );
    let lines = fs::read_to_string(&trace).expect("the trace");
    let blocks: Vec<_> = lines
        .lines()
        .skip(1)
        .filter_map(|line| line.split(',').nth(3))
        .collect();
    let (first, second) = blocks.split_at(blocks.len() / 2);
    assert!(
        !first.is_empty() && first == second,
        "the same blocks both times"
    );
    assert!(facts["requests"].as_u64() < Some(4000), "{facts}");
}

/// Over restarts, too: a file has another number then.
#[test]
fn each_file_of_a_mounted_tree_is_a_volume() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    let names = ["a", "b", "c"];
    for name in names {
        fs::write(tree.lower(name), vec![7; 16 * BLOCK]).expect("room");
    }
    let (control, trace) = (tree.beside("control"), tree.beside("day.csv"));
    let address = format!("unix:{}", text(&control));
    for (part, order) in [[0, 1, 2], [2, 0, 1]].into_iter().enumerate() {
        tree.mount(&["--cache", "1MiB", "--control", &address]);
        let more: &[&str] = if part > 0 { &["--append"] } else { &[] };
        let running = record_of(&control, &trace, more);
        for (count, at) in (1..).zip(order) {
            assert_eq!(read(&tree.upper(names[at])).len(), 16 * BLOCK);
            futae_testkit::wait::eventually("these are recorded", || {
                volumes(&trace).values().sum::<u64>() == ((3 * part + count) * 16 * BLOCK) as u64
            });
        }
        end(running);
        tree.stop();
    }
    let volumes = volumes(&trace);
    assert_eq!(volumes.len(), 3, "{volumes:?}");
    let bytes = (2 * 16 * BLOCK) as u64;
    assert!(volumes.values().all(|&asked| asked == bytes), "{volumes:?}");
}

/// How many bytes of each volume are asked for in a trace.
fn volumes(trace: &Path) -> BTreeMap<String, u64> {
    let mut volumes = BTreeMap::new();
    let written = fs::read_to_string(trace).expect("the trace");
    for line in written.lines().skip(1) {
        let fields: Vec<_> = line.split(',').collect();
        if let [_, volume, _, _, bytes] = fields[..] {
            *volumes.entry(volume.to_owned()).or_default() += bytes.parse::<u64>().unwrap_or(0);
        }
    }
    volumes
}

#[test]
fn what_cannot_be_recorded_is_said() {
    let mut stage = Stage::new(8);
    stage.serve(&["--cache", "8blocks"]);
    let trace = stage.path("day.csv");
    let (control, trace) = (text(&stage.control), text(&trace));
    let silent = stage.path("nobody");
    for (arguments, wanted) in [
        (
            &["record", text(&silent), "--out", trace][..],
            "start futae serve or futae mount with --control",
        ),
        (
            &["record", control, "--out", trace, "--export", "no"],
            "there are disk",
        ),
        (
            &["record", control, "--out", trace, "--sample", "0%"],
            "above 0%",
        ),
        (
            &["record", control, "--out", trace, "--sample", "2"],
            "such as 1%",
        ),
        (
            &["record", control, "--out", "/nowhere/day.csv"],
            "cannot write /nowhere/day.csv",
        ),
    ] {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(wanted),
            "{arguments:?}: {said}"
        );
    }
    assert!(!Path::new(trace).exists(), "nothing is left behind");
}
