//! What a mount remembers over a restart: `--state`.

use futae_testkit::wait::{eventually, obtain};
use futae_tests::BLOCK;
use futae_tests::direct::{Buffer, Direct};
use futae_tests::stage::{Stage, is_mountpoint};
use futae_tests::tools::{has_fuse, text};
use serde_json::Value;
use std::fs;
use std::process::Command;

const BLOCKS: u64 = 256;

/// A mount with a state file; what it said when it was ready is in `stage`.
fn command(stage: &Stage, words: &[&str]) -> Command {
    let (state, control) = (
        stage.path("state"),
        format!("unix:{}", stage.control.display()),
    );
    let mut all = vec!["--state", text(&state), "--control", &control];
    all.extend(words);
    stage.mount_image_command(&all)
}

fn mount(stage: &mut Stage, words: &[&str]) {
    let command = command(stage, words);
    stage.start_mount(command);
}

fn read_blocks(stage: &Stage, block_bytes: u64, blocks: impl IntoIterator<Item = u64>) {
    let file = Direct::open(&stage.file()).expect("the file opens");
    let mut buffer = Buffer::new(BLOCK);
    for block in blocks {
        file.read(block * block_bytes, &mut buffer).expect("a read");
    }
}

fn cache(stage: &Stage) -> Value {
    stage.status()["engines"][0].clone()
}

fn wait_until(stage: &Stage, what: &str, is_so: impl Fn(&Value) -> bool) {
    obtain(what, || {
        let now = cache(stage);
        is_so(&now).then_some(()).ok_or(now)
    });
}

fn settle(stage: &Stage, resident: u64) {
    wait_until(stage, "not loaded", |cache| {
        cache["loading_blocks"] == 0 && cache["resident_blocks"] == resident
    });
}

/// Mounted again, the blocks are there before anybody asks: every read hits.
fn is_warm(policy: &[&str], block: &str, block_bytes: u64) {
    let mut stage = Stage::new(BLOCKS * block_bytes / BLOCK as u64 / 4);
    let words = [policy, &["--cache", "16blocks", "--block", block]].concat();
    mount(&mut stage, &words);
    assert_eq!(cache(&stage)["resident_blocks"], 0);
    read_blocks(&stage, block_bytes, (10..26).chain(15..20));
    settle(&stage, 16);
    stage.stop_mount();
    mount(&mut stage, &words);
    settle(&stage, 16);
    let before = cache(&stage);
    assert_eq!(
        (&before["requests"], &before["preload_reads"]),
        (&0.into(), &16.into())
    );
    read_blocks(&stage, block_bytes, 10..26);
    let after = cache(&stage);
    assert_eq!((&after["hits"], &after["misses"]), (&16.into(), &0.into()));
    assert_eq!(after["bytes_store_read"], before["bytes_store_read"]);
    stage.stop_mount();
}

#[test]
fn a_mount_begins_warm() {
    if has_fuse() {
        is_warm(&["--policy", "lru"], "4KiB", BLOCK as u64);
        is_warm(&["--policy", "arc"], "2MiB", 2 << 20);
    }
}

#[test]
fn a_history_survives_with_what_it_chose() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(BLOCKS);
    let policy = "lfu-history(history=40,review=4,min_gain=2)";
    let words = [
        "--policy",
        policy,
        "--cache",
        "2blocks",
        "--join-reads",
        "0",
    ];
    mount(&mut stage, &words);
    let often = |block: u64| std::iter::repeat_n(block, 6);
    read_blocks(
        &stage,
        BLOCK as u64,
        often(7).chain(often(9)).chain([50; 4]),
    );
    settle(&stage, 2);
    stage.stop_mount();
    mount(&mut stage, &words);
    settle(&stage, 2);
    // 50 was asked for four times before and two more now. Without its history it would win at
    // the next review against blocks that nobody had asked for; with it, 7 and 9 stay.
    read_blocks(&stage, BLOCK as u64, [50, 60, 61, 62, 7, 9]);
    let after = cache(&stage);
    assert_eq!(
        (&after["hits"], &after["evictions"]),
        (&2.into(), &0.into()),
        "{after}"
    );
    stage.stop_mount();
}

#[test]
fn it_is_saved_from_time_to_time_and_survives_a_kill() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(BLOCKS);
    let words = ["--cache", "8blocks", "--state-every", "0.1"];
    mount(&mut stage, &words);
    read_blocks(&stage, BLOCK as u64, 0..8);
    let state = stage.path("state");
    let bytes = |stage: &Stage| fs::read(stage.path("state")).map_or(0, |bytes| bytes.len());
    let empty = bytes(&stage);
    eventually("it is saved", || bytes(&stage) > empty.max(1));
    // One more round, in which all eight are surely there.
    let saved = || {
        let time = fs::metadata(&state).and_then(|found| found.modified());
        time.expect("saved")
    };
    let seen = saved();
    eventually("it is saved again", || saved() != seen);
    stage.kill_mount();
    mount(&mut stage, &words);
    settle(&stage, 8);
    stage.stop_mount();
}

#[test]
fn a_damaged_or_foreign_file_is_refused_with_a_reason_and_ignored() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(BLOCKS);
    let state = stage.path("state");
    let words = ["--cache", "8blocks"];
    mount(&mut stage, &words);
    read_blocks(&stage, BLOCK as u64, 0..8);
    stage.stop_mount();
    let good = fs::read(&state).expect("saved");
    let mut damaged = good.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let short = good[..good.len() - 3].to_vec();
    let cases: [(&[u8], &[&str], &str); 4] = [
        (&damaged, &words, "is damaged"),
        (&short, &words, "is damaged"),
        (b"", &words, "is no state file"),
        (
            &good,
            &["--cache", "2blocks", "--block", "8KiB"],
            "block size",
        ),
    ];
    for (bytes, words, reason) in cases {
        fs::write(&state, bytes).expect("written");
        let command = command(&stage, words);
        let mut running = futae_tests::process::Running::start("futae mount", command);
        let ready: Value = serde_json::from_str(&running.line()).expect("JSON");
        assert_eq!(ready["warm_blocks"], 0, "{reason}");
        read_blocks(&stage, BLOCK as u64, 0..2);
        let ended = running.stop();
        assert!(ended.status.success(), "{}", ended.errors);
        let said = &ended.errors;
        assert!(
            said.contains(reason) && said.contains("begins cold"),
            "{reason}: {said}"
        );
        assert!(
            said.contains(text(&state)) && said.lines().count() == 1,
            "{said}"
        );
        assert!(!is_mountpoint(&stage.mountpoint));
    }
}
