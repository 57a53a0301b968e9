//! Pages that a program reads through a map, which no event tells.

use crate::{check, engine, mounted};
use futae_testkit::wait::{PATIENCE, within};
use futae_tests::kernel_pages::{can_run, number};
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::has;
use std::fs::File;
use std::process::Command;

const HOT: u64 = 64;
const CACHE: u64 = 256;
/// Blocks that are read once between two looks, in place of others.
const COLD: u64 = 150;
const ROUNDS: u64 = 8;

/// Maps a file, and reads the first byte of each of its first pages again and again.
const READER: &str = "
import mmap, sys, time
file = open(sys.argv[1], 'rb')
map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
map.madvise(mmap.MADV_RANDOM)
pages = range(0, int(sys.argv[2]) * 4096, 4096)
for page in pages: map[page]
print('mapped', flush=True)
while True:
    for page in pages: map[page]
    time.sleep(0.01)
";

fn reader(stage: &Stage) -> Running {
    let mut command = Command::new("python3");
    command.args(["-c", READER]).arg(stage.file());
    command.arg(HOT.to_string());
    let mut reader = Running::start("a reader of a map", command);
    assert_eq!(reader.line(), "mapped");
    reader
}

#[test]
fn pages_that_are_read_through_a_map_stay() {
    if !can_run() || !has("python3") {
        return;
    }
    // `sieve` keeps such pages for as long as nothing new is hit, seen or not; `clock` gives them up in the second turn.
    let mut stage = mounted(HOT + CACHE + COLD * (ROUNDS + 1), CACHE, "clock");
    let file = File::open(stage.file()).expect("the file");
    (0..HOT).for_each(|block| check(&file, block, 0));
    let reader = reader(&stage);
    let reads = || number(&engine(&stage), "store_reads");
    let seen = || number(&engine(&stage)["kernel"], "mapped_used");
    let mut next = HOT + CACHE;
    for round in 0..ROUNDS {
        // Each of the pages was found read again.
        let before = seen();
        let all = || (seen() >= before + HOT).then_some(()).ok_or_else(seen);
        within(PATIENCE, all).expect("looks");
        for block in next..next + COLD {
            check(&file, block, 0);
        }
        next += COLD;
        let expected = HOT + COLD * (round + 1);
        let again = reads() - expected;
        assert!(again <= HOT / 16, "{again} of them were read again");
    }
    drop((reader, file));
    stage.stop_mount();
}
