//! The engine knows what buffers it holds.

mod common;

use common::{BLOCK, setup, setup_of, setup_writing, take, write};
use futae_engine::{OnEviction, Operation, WriteBackOptions};
use std::time::Duration;

#[test]
fn a_read_that_misses_holds_one_buffer_and_gives_it_back() {
    let setup = setup("lru", 64, 4096, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    setup.store.set(|inside| inside.hold = true);
    let first = setup.start(client, 0, setup.read(0, 16));
    assert_eq!(setup.engine.buffer_bytes(), 16 * BLOCK);
    // One that is put together from two reads has a buffer of its own once the first has come.
    let second = setup.start(client, 0, setup.read(8, 16));
    assert_eq!(setup.engine.buffer_bytes(), 24 * BLOCK);
    setup.store.release(0, false);
    take(&first).expect("answered").expect("read");
    assert_eq!(setup.engine.buffer_bytes(), 24 * BLOCK);
    setup.store.release(0, true);
    assert!(take(&second).expect("answered").is_err());
    assert_eq!(setup.engine.buffer_bytes(), 0);
    let status = setup.engine.status();
    assert_eq!(
        (status.buffer_bytes, status.buffer_bytes_max),
        (0, 40 * BLOCK)
    );
}

#[test]
fn notices_and_write_backs_are_in_the_account() {
    let how = WriteBackOptions {
        dirty_max: 0.5,
        dirty_age_max: Duration::from_secs(60),
    };
    let setup = setup_writing(BLOCK, "lru", 64, 4096 * BLOCK, OnEviction::None, Some(how));
    let client = setup.engine.join(setup.volume);
    setup.store.set(|inside| inside.hold = true);
    setup.engine.notice(setup.volume, 0, 10 * BLOCK);
    assert_eq!(setup.engine.buffer_bytes(), 10 * BLOCK);
    setup.start(client, 0, write(100 * BLOCK, &[1; 5 * BLOCK as usize]));
    let flushed = setup.start(client, 0, Operation::Flush);
    assert_eq!(setup.engine.buffer_bytes(), 15 * BLOCK);
    setup.store.set(|inside| inside.hold = false);
    setup.store.release_all();
    take(&flushed).expect("answered").expect("flushed");
    assert_eq!(setup.engine.buffer_bytes(), 0);
}

#[test]
fn a_read_takes_whole_blocks_and_what_is_beside_them() {
    const MIB: u64 = 1 << 20;
    let in_kib = |block_bytes, offset, length| {
        let setup = setup_of(block_bytes, "lru", 4, 16 * MIB, OnEviction::None);
        setup.engine.memory_of_read(offset, length, 32 * MIB) >> 10
    };
    // Buffers of at most 60 KiB take a page more.
    assert_eq!(in_kib(BLOCK, 0, BLOCK), 8);
    assert_eq!(in_kib(BLOCK, 512, 512), 8);
    assert_eq!(in_kib(BLOCK, 512, BLOCK), 12 + 8, "two blocks, the answer");
    assert_eq!(in_kib(BLOCK, 0, 60 << 10), 64 + 64);
    assert_eq!(in_kib(BLOCK, 0, 64 << 10), 64 + 8 * 4, "each second block");
    assert_eq!(in_kib(BLOCK, 0, 32 * MIB), 32 << 10, "no more than that");
    assert_eq!(in_kib(BLOCK, 1, 32 * MIB + 1), (32 << 10) + 4);
    assert_eq!(in_kib(MIB / 4, 512, 512), 256);
    assert_eq!(in_kib(4 * MIB, 512, 512), 8, "only what is asked for");
    assert_eq!(in_kib(BLOCK, u64::MAX - 1, 512), 8, "out of range");
}
