//! Pages that leave the kernel go to the cache below with their data.

use super::{Users, change_at_random, check, check_image};
use futae_testkit::wait::{PATIENCE, within};
use futae_tests::kernel_pages::{can_run, number, settle};
use futae_tests::stage::Stage;
use futae_tests::tools::text;
use rustix::fs::{Advice, fadvise};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

/// A mount of a disk of blocks over a server that keeps what the mount evicts.
fn two_levels(blocks: u64, lower: &[&str], upper: &[&str]) -> Stage {
    let mut stage = Stage::new(blocks);
    stage.serve(&[&["--policy", "exclusive"], lower].concat());
    let control = format!("unix:{}", text(&stage.path("mount.sock")));
    let words = ["--residency", "kernel", "--control", &control];
    stage.mount(&[&words[..], upper].concat());
    stage
}

fn lower(stage: &Stage) -> Value {
    stage.status()["engines"][0].clone()
}

fn upper(stage: &Stage) -> Value {
    let mut stream = UnixStream::connect(stage.path("mount.sock")).expect("it listens");
    stream
        .write_all(b"{\"command\":\"status\"}\n")
        .expect("taken");
    let mut line = String::new();
    let got = BufReader::new(stream).read_line(&mut line);
    got.expect("an answer");
    let status: Value = serde_json::from_str(&line).expect("JSON");
    status["engines"][0].clone()
}

/// A loop that fits into both caches together and into neither alone is read from the store once.
#[test]
fn what_the_policy_gives_up_is_below_with_its_data() {
    if !can_run() {
        return;
    }
    let sizes = ["--cache", "100blocks", "--policy", "fifo"];
    let mut stage = two_levels(512, &["--cache", "300blocks"], &sizes);
    let file = File::open(stage.file()).expect("the file");
    let pass = || {
        for first in (0..350).step_by(10) {
            (first..first + 10).for_each(|block| check(&file, block, 0));
            settle(|| upper(&stage));
        }
        number(&lower(&stage), "store_read_blocks")
    };
    let first = pass();
    let (second, third) = (pass(), pass());
    assert!(first >= 350, "{first}");
    let demoted = number(&upper(&stage), "demotions_out");
    println!(
        "store reads {first}, then {}, {}; {demoted} demotions",
        second - first,
        third - second
    );
    assert!(third - first < 35, "{first} {second} {third}");
    // What the kernel drops by itself, too.
    let held = number(&upper(&stage), "resident_blocks");
    fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    let all = || {
        let now = number(&upper(&stage), "demotions_out");
        (now >= demoted + held)
            .then_some(())
            .ok_or((now, demoted, held))
    };
    within(PATIENCE, all).expect("each page with its data");
    let before = number(&lower(&stage), "store_read_blocks");
    let before_hits = number(&lower(&stage), "hits");
    (250..350).for_each(|block| check(&file, block, 0));
    let read = number(&lower(&stage), "store_read_blocks") - before;
    assert!(read <= 5, "{read} of 100 from the store");
    assert!(number(&lower(&stage), "hits") >= before_hits + 95);
    drop(file);
    let last = stage.stop_mount()["status"].clone();
    assert_eq!(number(&last, "errors"), 0, "{last}");
    let last = stage.stop_serve()["status"]["engines"][0].clone();
    assert_eq!(number(&last, "demotions_refused"), 0, "{last}");
    assert_eq!(number(&last, "errors"), 0, "{last}");
}

/// The cache below believes what it is sent: no page that was changed meanwhile may be among it.
#[test]
fn no_page_is_stale_over_a_cache_that_believes() {
    for (back, users) in [
        (&[][..], Users::Stay),
        (&futae_tests::BUSY, Users::ComeAndGo),
    ] {
        if !can_run() {
            return;
        }
        let sizes = ["--cache", "40blocks", "--policy", "s3-fifo"];
        let believes = ["--cache", "100blocks", "--evictions-memory", "off"];
        let mut stage = two_levels(super::STALE_BLOCKS, &believes, &[&sizes[..], back].concat());
        let versions = change_at_random(&stage, users);
        let demoted = number(&upper(&stage), "demotions_out");
        assert!(demoted > 100, "{demoted}");
        stage.stop_mount();
        stage.stop_serve();
        check_image(&stage, &versions);
    }
}
