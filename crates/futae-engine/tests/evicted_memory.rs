//! Blocks that were evicted while dirty take no more memory than their data. A test program of its own, since it counts
//! the memory of the process.

mod common;

use common::{BLOCK, kept_up_to, setup_writing, take, write};
use futae_engine::{OnEviction, StoreOperation};
use std::fs;

const SLOTS: u64 = 8192;
const MIB: u64 = 1 << 20;

/// Bytes of this process in memory.
fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages = statm.split(' ').nth(1).expect("a second field");
    4096 * pages.parse::<u64>().expect("a number")
}

#[test]
fn what_is_evicted_while_dirty_takes_no_more_than_its_data() {
    let how = Some(kept_up_to(1.0));
    let bytes = 2 * SLOTS * BLOCK;
    let setup = setup_writing(BLOCK, "lru", SLOTS as u32, bytes, OnEviction::None, how);
    let client = setup.engine.join(setup.volume);
    setup.store.hold(true);
    for block in 0..SLOTS {
        let answer = setup.start(client, 0, write(block * BLOCK, &[7; BLOCK as usize]));
        assert!(take(&answer).expect("kept").is_ok());
    }
    let before = resident_bytes();
    for block in (SLOTS..2 * SLOTS).step_by(64) {
        let answer = setup.start(client, 0, setup.read(block, 64));
        let is_read = |operation: &StoreOperation| matches!(operation, StoreOperation::Read { .. });
        // Whatever is written waits.
        while take(&answer).is_none() {
            let at = setup.store.get(|inside| {
                let mut held = inside.held.iter();
                held.position(|(operation, _)| is_read(operation))
            });
            setup.store.release(at.expect("a read"), false);
        }
    }
    assert_eq!(setup.engine.status().dirty_evicted_blocks, SLOTS);
    let grown = resident_bytes().saturating_sub(before);
    let data = SLOTS * BLOCK;
    assert!(
        grown < data + data / 4,
        "{} MiB for {} MiB",
        grown / MIB,
        data / MIB
    );
}
