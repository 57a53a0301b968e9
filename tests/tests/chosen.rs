//! Caches that choose by history or by hand, live: large blocks, loaded in the background.

use futae_policy::Prng;
use futae_testkit::stamp::Stamp;
use futae_testkit::wait::obtain;
use futae_tests::BLOCK;
use futae_tests::direct::{Buffer, Direct};
use futae_tests::predict::{assert_replays_one, assert_same_log, one_level};
use futae_tests::stage::Stage;
use futae_tests::tools::{has_fuse, text};
use serde_json::Value;
use std::fs;

/// The published set-up at 1/64: blocks of 2 MiB for 128 MiB, 32 of them, of which 21 fit.
const LARGE: u64 = 2 << 20;
const BLOCKS: u64 = 32;
const SLOTS: u32 = 21;
const READ: u64 = 128 << 10;

fn stage() -> Stage {
    Stage::new(BLOCKS * LARGE / BLOCK as u64)
}

/// A mount of large blocks that writes its log; flags of the policy in `words`.
fn mount(stage: &mut Stage, words: &[&str]) {
    let (log, control) = (
        stage.path("log"),
        format!("unix:{}", stage.control.display()),
    );
    let cache = format!("{SLOTS}blocks");
    let mut all = vec!["--block", "2MiB", "--cache", &cache, "--control", &control];
    all.extend(["--decision-log", text(&log)]);
    all.extend(words);
    stage.mount_image(&all);
}

fn cache(stage: &Stage) -> Value {
    stage.status()["engines"][0].clone()
}

fn count(status: &Value, name: &str) -> u64 {
    status[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} in {status}"))
}

/// Waits until nothing is being loaded.
fn settle(stage: &Stage) {
    obtain("nothing is loading", || match cache(stage) {
        now if count(&now, "loading_blocks") > 0 => Err(now),
        _ => Ok(()),
    });
}

/// Reads of 128 KiB at random places, each in one block; the first is in the last block.
fn places(requests: usize) -> Vec<u64> {
    let mut random = Prng::new(7);
    let mut each = || random.below(BLOCKS * LARGE / READ) * READ;
    let mut places: Vec<u64> = (0..requests).map(|_| each()).collect();
    places[0] = (BLOCKS - 1) * LARGE;
    places
}

fn read(file: &Direct, offset: u64, buffer: &mut Buffer) {
    file.read(offset, buffer).expect("a read");
    for (at, page) in (offset / BLOCK as u64..).zip(buffer.get().chunks(BLOCK)) {
        let (block, version) = (at, 0);
        assert_eq!(Stamp::read(page), Some(Stamp { block, version }));
    }
}

/// One reader that waits for what is loaded meanwhile: its log is the simulator's.
fn log_is_the_simulators(words: &[&str], policy: &str, requests: usize) {
    if !has_fuse() {
        return;
    }
    let mut stage = stage();
    mount(&mut stage, &[words, &["--join-reads", "0"]].concat());
    let file = Direct::open(&stage.file()).expect("the file opens");
    let mut buffer = Buffer::new(READ as usize);
    let places = places(requests);
    for &place in &places {
        settle(&stage);
        read(&file, place, &mut buffer);
    }
    settle(&stage);
    drop(file);
    let last = stage.stop_mount();
    let status = &last["status"];
    assert_eq!(
        (count(status, "errors"), count(status, "loading_reads")),
        (0, 0)
    );
    let blocks: Vec<u64> = places.iter().map(|place| place / LARGE).collect();
    let simulated = one_level(policy, SLOTS, BLOCKS, &blocks);
    // A mount loads what its policy begins with at once, the simulator with the first request.
    let (first, rest) = simulated.split_once('\n').expect("more than a line");
    let rest: Vec<_> = rest.lines().collect();
    let begins = rest.iter().take_while(|line| line.starts_with("preload"));
    let begins = begins.count();
    let expected = [&rest[..begins], &[first], &rest[begins..], &[""]]
        .concat()
        .join("\n");
    let log = stage.path("log");
    assert_same_log("live", &log, &expected);
    assert_replays_one(policy, SLOTS, &log);
    let swaps = rest[begins..]
        .iter()
        .filter(|line| line.starts_with("preload"));
    let (hits, swaps) = (count(status, "hits"), swaps.count());
    assert_eq!(
        hits,
        rest.iter().filter(|line| line.ends_with("hit")).count() as u64
    );
    if policy.starts_with("lfu-history") {
        assert!(swaps > 0, "no review changed anything");
    }
}

#[test]
fn a_history_decides_as_in_the_simulator() {
    let words = [
        "--policy",
        "lfu-history",
        "--history",
        "100",
        "--review-every",
        "10",
    ];
    let words = [&words[..], &["--min-gain", "2", "--swaps", "2"]].concat();
    let policy = "lfu-history(history=100,review=10,min_gain=2,swaps_per_review=2)";
    log_is_the_simulators(&words, policy, 800);
}

#[test]
fn a_prefilled_history_decides_as_in_the_simulator() {
    let words = ["--policy", "lfu-history(min_gain=0)", "--prefill"];
    log_is_the_simulators(&words, "lfu-history(min_gain=0,prefill=true)", 400);
}

#[test]
fn a_chosen_set_decides_as_in_the_simulator() {
    let words = ["--policy", "const", "--pin", "0-15,20-24"];
    log_is_the_simulators(&words, "const(pin=0-15+20-24)", 300);
}

/// Readers that do not wait: decisions fall as they come, and still only as the policy has them.
#[test]
fn a_log_of_two_readers_replays() {
    if !has_fuse() {
        return;
    }
    let mut stage = stage();
    mount(
        &mut stage,
        &[
            "--policy",
            "lfu-history(min_gain=0)",
            "--prefill",
            "--join-reads",
            "0",
        ],
    );
    let (path, places) = (stage.file(), places(1200));
    std::thread::scope(|scope| {
        for part in places.chunks(600) {
            scope.spawn(|| {
                let file = Direct::open(&path).expect("the file opens");
                let mut buffer = Buffer::new(READ as usize);
                part.iter()
                    .for_each(|&place| read(&file, place, &mut buffer));
            });
        }
    });
    stage.stop_mount();
    let policy = "lfu-history(min_gain=0,prefill=true)";
    assert_replays_one(policy, SLOTS, &stage.path("log"));
}

/// A read of 1 MiB in eight parts is one access in the history.
#[test]
fn parts_of_one_request_count_once() {
    if !has_fuse() {
        return;
    }
    let mut stage = stage();
    mount(&mut stage, &["--policy", "lfu-history"]);
    let file = Direct::open(&stage.file()).expect("the file opens");
    let mut buffer = Buffer::new(READ as usize);
    for part in 0..8 {
        read(&file, 4 * LARGE + part * READ, &mut buffer);
    }
    // Half in one block and half in the next.
    for part in 0..8 {
        read(
            &file,
            7 * LARGE + LARGE / 2 + (part + 4) * READ,
            &mut buffer,
        );
    }
    let mut whole = Buffer::new(8 * READ as usize);
    read(&file, 10 * LARGE, &mut whole);
    drop(file);
    let last = stage.stop_mount();
    assert_eq!(count(&last["status"], "requests"), 1 + 2 + 1);
    let log = fs::read_to_string(stage.path("log")).expect("the log");
    let bypassed = [
        "read 0 4 bypass",
        "read 0 7 bypass",
        "read 0 8 bypass",
        "read 0 10 bypass",
    ];
    assert_eq!(log.lines().collect::<Vec<_>>(), bypassed);
    assert_eq!(
        last["longest_request_bytes"],
        8 * READ,
        "the kernel splits 1 MiB"
    );
}

/// A policy that admits at once does not let a reader wait for a large block either.
#[test]
fn any_policy_takes_large_blocks() {
    if !has_fuse() {
        return;
    }
    for policy in ["lru", "arc", "s3-fifo"] {
        let mut stage = stage();
        mount(&mut stage, &["--policy", policy]);
        let file = Direct::open(&stage.file()).expect("the file opens");
        let mut buffer = Buffer::new(READ as usize);
        for &place in &places(300) {
            read(&file, place, &mut buffer);
        }
        settle(&stage);
        drop(file);
        let last = stage.stop_mount();
        let status = &last["status"];
        assert_eq!(
            (count(status, "errors"), count(status, "loading_blocks")),
            (0, 0)
        );
        assert_eq!(
            count(status, "resident_blocks"),
            u64::from(SLOTS),
            "{policy}"
        );
    }
}
