//! The engine knows what buffers it holds.

mod common;

use common::{BLOCK, setup, setup_writing, take, write};
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
