//! The memory of the pages and of the mount together: what `--cache` says, and a tenth.

use super::{engine, mounted_with};
use futae_policy::Prng;
use futae_testkit::stamp::Stamp;
use futae_testkit::wait::{PATIENCE, within};
use futae_tests::BLOCK;
use futae_tests::kernel_pages::{can_run, number};
use futae_tests::stage::Stage;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

const CACHE: u64 = (64 << 20) / BLOCK as u64;
const BLOCKS: u64 = CACHE + CACHE / 2;
const WRITERS: u64 = 2;
const LOOKS: usize = 41;

/// What the process has for itself, and the kernel for its programs; in bytes.
fn beside(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let own: u64 = kib.expect("a line").parse().expect("a number");
    let open = fs::read_dir(format!("/proc/{process}/fdinfo")).expect("what is open");
    let locked = open.filter_map(|entry| {
        let about = fs::read_to_string(entry.ok()?.path()).ok()?;
        let line = about
            .lines()
            .find_map(|line| line.strip_prefix("memlock:"))?;
        line.trim().parse::<u64>().ok()
    });
    own * 1024 + locked.sum::<u64>()
}

fn in_use(stage: &Stage) -> u64 {
    let pages = number(&engine(stage)["kernel"], "pages");
    pages * BLOCK as u64 + beside(stage.mount_id())
}

/// Writes and reads blocks in any order until it is to end.
fn work(path: &Path, seed: u64, ends: &AtomicBool) {
    let file = File::options().read(true).write(true).open(path);
    let (file, mut prng) = (file.expect("the file"), Prng::new(seed));
    let mut bytes = vec![0; BLOCK];
    while !ends.load(Relaxed) {
        let block = prng.below(BLOCKS);
        let at = block * BLOCK as u64;
        if prng.below(2) == 0 {
            Stamp { block, version: 1 }.fill(&mut bytes);
            file.write_all_at(&bytes, at).expect("a write");
        } else {
            file.read_exact_at(&mut bytes, at).expect("a read");
        }
    }
}

#[test]
fn copies_of_dirty_blocks_are_within_what_the_cache_was_said_to_be_and_a_tenth() {
    if !can_run() {
        return;
    }
    // The copies alone are twice a tenth.
    let words = ["--write-mode", "write-back", "--dirty-max", "20%"];
    let mut stage = mounted_with(BLOCKS, CACHE, "sieve", &words);
    let ends = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        for seed in 0..WRITERS {
            let (path, ends) = (stage.file(), &ends);
            scope.spawn(move || work(&path, seed, ends));
        }
        // The cache is full, as far as its room goes, and has written back.
        let is_full = || {
            let status = engine(&stage);
            let (resident, slots) = (
                number(&status, "resident_blocks"),
                number(&status, "capacity_blocks"),
            );
            let is_full = resident * 100 >= slots * 99 && number(&status, "dirty_blocks") > 500;
            is_full.then_some(()).ok_or(status)
        };
        within(PATIENCE, is_full).expect("it fills");
        let mut seen: Vec<u64> = (0..LOOKS).map(|_| in_use(&stage)).collect();
        ends.store(true, Relaxed);
        seen.sort_unstable();
        seen
    });
    let (said, median) = (CACHE * BLOCK as u64, seen[LOOKS / 2]);
    assert!(
        median <= said + said / 10,
        "{} % of what was said",
        median * 100 / said
    );
    let is_less = || {
        let status = engine(&stage);
        let aside = number(&status["kernel"], "aside_bytes");
        let slots = number(&status, "capacity_blocks");
        let is_less = aside > 0 && slots + aside.div_ceil(BLOCK as u64) == CACHE;
        is_less.then_some(()).ok_or(status)
    };
    within(PATIENCE, is_less).expect("the cache has fewer blocks");
    stage.stop_mount();
}
