//! Write-back, step by step: what is answered before the store has it, and what becomes of it.

mod common;

use common::{Answer, BLOCK, NEVER, Setup, setup_writing, take, write};
use futae_engine::{
    ClientId, Engine, EngineOptions, OnEviction, Operation, SetupError, WriteBackOptions,
};
use futae_testkit::wait::eventually;
use std::sync::Arc;
use std::time::Duration;

fn keeping(policy: &str, slots: u32, dirty_max: f64, on_eviction: OnEviction) -> (Setup, ClientId) {
    let how = WriteBackOptions {
        dirty_max,
        dirty_age_max: NEVER,
    };
    let setup = setup_writing(BLOCK, policy, slots, 64 * BLOCK, on_eviction, Some(how));
    let client = setup.engine.join(setup.volume);
    (setup, client)
}

fn block_of(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK as usize]
}

impl Setup {
    fn put(&self, client: ClientId, block: u64, byte: u8) -> Answer {
        let data = block_of(byte);
        let answer = self.start(client, 0, write(block * BLOCK, &data));
        self.engine.audit();
        answer
    }

    fn first_byte(&self, client: ClientId, block: u64) -> u8 {
        let read = self
            .engine
            .read_blocking(self.volume, client, block * BLOCK, BLOCK);
        self.engine.audit();
        read.expect("a read").as_slice()[0]
    }

    fn stored(&self, block: u64) -> u8 {
        self.store
            .get(|inside| inside.bytes[(block * BLOCK) as usize])
    }

    fn writes(&self) -> Vec<(u64, usize, bool)> {
        self.store.get(|inside| inside.writes.clone())
    }

    fn held(&self) -> usize {
        self.store.get(|inside| inside.held.len())
    }

    fn hold(&self, hold: bool) {
        self.store.set(|inside| inside.hold = hold);
    }

    fn flush(&self, client: ClientId) -> Answer {
        let answer = self.start(client, 0, Operation::Flush);
        self.engine.audit();
        answer
    }
}

fn is_good(answer: &Answer) -> bool {
    take(answer).expect("an answer").is_ok()
}

#[test]
fn a_write_is_answered_first_and_flushed_in_ascending_runs() {
    let (setup, client) = keeping("lru", 32, 1.0, OnEviction::None);
    for block in [9, 3, 5, 4] {
        assert!(is_good(&setup.put(client, block, block as u8 + 100)));
    }
    assert!(setup.writes().is_empty(), "the store has nothing yet");
    assert_eq!(setup.first_byte(client, 4), 104);
    assert_eq!(setup.engine.status().dirty_blocks, 4);
    assert!(is_good(&setup.flush(client)));
    let run = |block: u64, blocks: u64| (block * BLOCK, (blocks * BLOCK) as usize, false);
    assert_eq!(setup.writes(), [run(3, 3), run(9, 1)]);
    assert_eq!(setup.store.get(|inside| inside.flushes), 1);
    let status = setup.engine.status();
    assert_eq!((status.dirty_blocks, status.write_backs), (0, 2));
    assert_eq!(status.write_back_blocks, 4);
    assert_eq!((setup.stored(3), setup.stored(9)), (103, 109));
}

#[test]
fn a_flush_covers_what_came_before_it_and_nothing_else() {
    let (setup, client) = keeping("lru", 32, 1.0, OnEviction::None);
    drop(setup.put(client, 1, 1));
    setup.hold(true);
    let flush = setup.flush(client);
    drop(setup.put(client, 1, 2));
    drop(setup.put(client, 2, 2));
    assert!(take(&flush).is_none(), "the write-back is under way");
    setup.store.release(0, false);
    setup.store.release(0, false);
    assert!(
        is_good(&flush),
        "block 2 and the second write are not its own"
    );
    assert_eq!(setup.engine.status().dirty_blocks, 2);
    assert_eq!(setup.stored(1), 1);
    // One that comes while block 1 is being written, with a newer write waiting.
    let first = setup.flush(client);
    drop(setup.put(client, 1, 3));
    let second = setup.flush(client);
    while setup.held() > 0 {
        setup.store.release(0, false);
    }
    assert!(is_good(&first) && is_good(&second));
    assert_eq!((setup.stored(1), setup.stored(2)), (3, 2));
}

#[test]
fn an_evicted_dirty_block_is_read_as_written_until_the_store_has_it() {
    let (setup, client) = keeping("lru", 4, 1.0, OnEviction::None);
    setup.hold(true);
    drop(setup.put(client, 7, 77));
    let reads: Vec<_> = (10..14)
        .map(|block| setup.start(client, 0, setup.read(block, 1)))
        .collect();
    let status = setup.engine.status();
    assert_eq!((status.dirty_blocks, status.dirty_evicted_blocks), (1, 1));
    let again = setup.start(client, 0, setup.read(7, 1));
    let bytes = take(&again).expect("at once").expect("good");
    assert_eq!(bytes, block_of(77));
    setup.engine.audit();
    assert_eq!(setup.engine.status().dirty_evicted_blocks, 0, "it is back");
    setup.store.release_all();
    drop(reads);
    assert_eq!(setup.stored(7), 77);
    setup.engine.audit();
}

#[test]
fn a_policy_that_keeps_nothing_sees_the_last_write_too() {
    // fix keeps the first four blocks and declines all others.
    let (setup, client) = keeping("fix", 4, 1.0, OnEviction::None);
    drop(setup.put(client, 0, 1));
    drop(setup.put(client, 1, 1));
    assert!(setup.writes().is_empty(), "half of the bound is not passed");
    for block in 2..4 {
        drop(setup.put(client, block, 1));
    }
    assert!(is_good(&setup.put(client, 9, 9)));
    assert_eq!(setup.stored(9), 9, "what is not kept goes through");
    assert_eq!(setup.first_byte(client, 9), 9);
}

#[test]
fn a_failure_keeps_blocks_dirty_is_counted_and_reported_once() {
    let (setup, client) = keeping("lru", 8, 0.25, OnEviction::None);
    setup.store.set(|inside| inside.fail_writes = true);
    drop(setup.put(client, 1, 1));
    drop(setup.put(client, 2, 2));
    let status = setup.engine.status();
    assert_eq!((status.dirty_blocks, status.write_back_errors), (2, 1));
    assert!(status.errors >= 1);
    assert_eq!(setup.first_byte(client, 1), 1);
    assert!(!is_good(&setup.flush(client)), "nothing could be written");
    assert_eq!(setup.engine.status().dirty_blocks, 2, "nothing is dropped");
    setup.store.set(|inside| inside.fail_writes = false);
    assert!(is_good(&setup.flush(client)), "it was told of it");
    assert_eq!((setup.stored(1), setup.stored(2)), (1, 2));
    // A failure in the background, when the store is well again before anybody asks.
    setup.store.set(|inside| inside.fail_writes = true);
    drop(setup.put(client, 3, 3));
    drop(setup.put(client, 4, 4));
    setup.store.set(|inside| inside.fail_writes = false);
    assert!(!is_good(&setup.flush(client)), "reported at the next flush");
    assert!(is_good(&setup.flush(client)), "and at no other");
    assert_eq!((setup.stored(3), setup.stored(4)), (3, 4));
}

#[test]
fn a_writer_waits_at_the_bound_and_other_requests_do_not() {
    let (setup, client) = keeping("lru", 16, 0.25, OnEviction::None);
    setup.hold(true);
    let writes: Vec<_> = (0..9).map(|block| setup.put(client, block, 9)).collect();
    let answered = |writes: &[Answer]| {
        let is_answered = |write: &&Answer| write.lock().expect("answer").is_some();
        writes.iter().filter(is_answered).count()
    };
    assert_eq!(answered(&writes), 4);
    assert_eq!(setup.engine.status().dirty_blocks, 4);
    assert!(is_good(&setup.put(client, 2, 10)), "it is dirty already");
    assert_eq!(setup.first_byte(client, 2), 10);
    while setup.held() > 0 {
        setup.store.release(0, false);
        setup.engine.audit();
        assert!(setup.engine.status().dirty_blocks <= 4, "beyond the bound");
    }
    assert_eq!(answered(&writes), 9);
    assert!(setup.engine.status().throttled_writes >= 5);
    // More than may ever be dirty goes through.
    let all = setup.start(client, 0, write(20 * BLOCK, &vec![5; 8 * BLOCK as usize]));
    assert!(take(&all).is_none());
    setup.store.release_all();
    assert!(is_good(&all));
    assert_eq!((setup.stored(20), setup.stored(27)), (5, 5));
}

#[test]
fn writers_of_a_store_that_fails_hear_of_it_instead_of_waiting() {
    let (setup, client) = keeping("lru", 16, 0.25, OnEviction::None);
    setup.store.set(|inside| inside.fail_writes = true);
    let writes: Vec<_> = (0..9).map(|block| setup.put(client, block, 9)).collect();
    let results: Vec<_> = writes.iter().map(is_good).collect();
    assert!(results[0], "the first was kept");
    assert!(!results[8], "there is no room, and none will be made");
}

#[test]
fn what_is_old_enough_is_written() {
    let how = WriteBackOptions {
        dirty_max: 1.0,
        dirty_age_max: Duration::from_millis(20),
    };
    let bytes = 64 * BLOCK;
    let setup = setup_writing(BLOCK, "lru", 32, bytes, OnEviction::None, Some(how));
    let client = setup.engine.join(setup.volume);
    drop(setup.put(client, 3, 33));
    eventually("it is written", || setup.engine.status().dirty_blocks == 0);
    assert_eq!(setup.stored(3), 33);
    let engine = Arc::downgrade(&setup.engine);
    drop(setup);
    eventually("the engine ends", || engine.upgrade().is_none());
}

#[test]
fn a_write_that_is_to_be_stable_is_so_when_it_is_answered() {
    let (setup, client) = keeping("lru", 16, 1.0, OnEviction::None);
    drop(setup.put(client, 3, 1));
    setup.hold(true);
    let flush = setup.flush(client);
    let fua = Operation::Write {
        offset: 3 * BLOCK,
        data: futae_engine::IoBuf::copy_of(&block_of(2)),
        fua: true,
    };
    let stable = setup.start(client, 0, fua);
    assert_eq!(setup.held(), 1, "two writes to one block are kept apart");
    setup.store.release_all();
    assert!(is_good(&stable) && is_good(&flush));
    assert!(setup.writes().contains(&(3 * BLOCK, BLOCK as usize, true)));
    assert_eq!(setup.stored(3), 2);
    assert_eq!(setup.engine.status().dirty_blocks, 0);
    setup.engine.audit();
}

#[test]
fn parts_of_blocks_are_kept_where_the_block_is_and_go_through_where_not() {
    let (setup, client) = keeping("lru", 16, 1.0, OnEviction::None);
    drop(setup.put(client, 3, 1));
    assert!(is_good(&setup.start(
        client,
        0,
        write(3 * BLOCK + 10, &[7; 20])
    )));
    assert!(setup.writes().is_empty());
    // The end of 4 and all of 5, and the start of 6.
    let data = vec![8; 2 * BLOCK as usize];
    assert!(is_good(&setup.start(
        client,
        0,
        write(4 * BLOCK + 100, &data)
    )));
    let part = |offset, length: usize| (offset, length, false);
    let expected = [
        part(4 * BLOCK + 100, BLOCK as usize - 100),
        part(6 * BLOCK, 100),
    ];
    assert_eq!(setup.writes(), expected);
    assert_eq!(setup.engine.status().dirty_blocks, 2);
    assert_eq!(setup.engine.status().write_around_blocks, 2);
    assert!(is_good(&setup.flush(client)));
    let all = setup.store.get(|inside| inside.bytes.clone());
    let at = |from: u64, length: usize| &all[from as usize..from as usize + length];
    assert!(at(3 * BLOCK + 10, 20).iter().all(|&byte| byte == 7));
    assert!(
        at(4 * BLOCK + 100, data.len())
            .iter()
            .all(|&byte| byte == 8)
    );
}

#[test]
fn a_dirty_block_is_written_down_and_then_demoted() {
    let (setup, client) = keeping("lru", 4, 1.0, OnEviction::Demote);
    setup.hold(true);
    drop(setup.put(client, 7, 77));
    let reads: Vec<_> = (10..14)
        .map(|block| setup.start(client, 0, setup.read(block, 1)))
        .collect();
    assert!(setup.store.get(|inside| inside.demotions.is_empty()));
    setup.store.release_all();
    let demotions = setup.store.get(|inside| inside.demotions.clone());
    let (_, offset, data) = demotions.first().expect("demoted");
    assert_eq!(
        (*offset, data.as_slice()),
        (7 * BLOCK, block_of(77).as_slice())
    );
    assert_eq!(setup.stored(7), 77);
    drop(reads);
}

#[test]
fn trims_and_zeroes_do_not_bring_old_data_back() {
    let (setup, client) = keeping("lru", 16, 1.0, OnEviction::None);
    for block in 1..6 {
        drop(setup.put(client, block, 1));
    }
    let offset = BLOCK + 100;
    let length = 2 * BLOCK;
    let zeroes = Operation::WriteZeroes {
        offset,
        length,
        fua: false,
        no_hole: false,
    };
    assert!(is_good(&setup.start(client, 0, zeroes)));
    let (offset, length) = (4 * BLOCK, BLOCK);
    assert!(is_good(&setup.start(
        client,
        0,
        Operation::Trim { offset, length }
    )));
    setup.engine.audit();
    assert_eq!(
        setup.engine.status().dirty_blocks,
        3,
        "of 1, 3 and 5 something is left"
    );
    assert!(is_good(&setup.flush(client)));
    let all = setup
        .engine
        .read_blocking(setup.volume, client, BLOCK, 5 * BLOCK);
    let all = all.expect("a read");
    let expected: Vec<u8> = (0..5 * BLOCK)
        .map(|at| {
            let is_zero = (100..100 + 2 * BLOCK).contains(&at) || (3..4).contains(&(at / BLOCK));
            u8::from(!is_zero)
        })
        .collect();
    assert_eq!(all.as_slice(), expected);
    let stored = setup
        .store
        .get(|inside| inside.bytes[BLOCK as usize..][..all.len()].to_vec());
    assert_eq!(stored, expected);
}

/// What a trim leaves in a part of a dirty block is unspecified, but it stays: before it is written back, and after.
#[test]
fn a_part_of_a_dirty_block_stays_as_a_trim_left_it() {
    let (setup, client) = keeping("lru", 16, 1.0, OnEviction::None);
    drop(setup.put(client, 4, 1));
    let (offset, length) = (4 * BLOCK + 100, 50);
    let trim = Operation::Trim { offset, length };
    assert!(is_good(&setup.start(client, 0, trim)));
    let read = || {
        let read = setup
            .engine
            .read_blocking(setup.volume, client, 4 * BLOCK, BLOCK);
        read.expect("a read").as_slice().to_vec()
    };
    let before = read();
    let expected: Vec<u8> = (0..BLOCK)
        .map(|at| u8::from(!(100..150).contains(&at)))
        .collect();
    assert_eq!(before, expected);
    assert!(is_good(&setup.flush(client)));
    assert_eq!(read(), before);
    let stored = setup
        .store
        .get(|inside| inside.bytes[4 * BLOCK as usize..][..BLOCK as usize].to_vec());
    assert_eq!(stored, before);
}

#[test]
fn dirty_blocks_are_no_holes() {
    let (setup, client) = keeping("lru", 16, 1.0, OnEviction::None);
    setup.store.set(|inside| inside.is_hole = true);
    drop(setup.put(client, 2, 1));
    let extents = setup
        .engine
        .extents(setup.volume, 0, 64 * BLOCK)
        .expect("extents");
    let pairs: Vec<_> = extents
        .iter()
        .map(|extent| (extent.length, extent.hole))
        .collect();
    assert_eq!(
        pairs,
        [(2 * BLOCK, true), (BLOCK, false), (61 * BLOCK, true)]
    );
}

#[test]
fn a_smaller_cache_loses_nothing() {
    let (setup, client) = keeping("lru", 32, 1.0, OnEviction::None);
    setup.hold(true);
    for block in 0..32 {
        drop(setup.put(client, block, block as u8 + 50));
    }
    setup.engine.resize(2).expect("smaller");
    setup.engine.audit();
    assert_eq!(setup.engine.status().dirty_blocks, 32);
    for block in 0..32 {
        let read = setup.start(client, 0, setup.read(block, 1));
        let bytes = take(&read).expect("at once").expect("good");
        assert_eq!(bytes, block_of(block as u8 + 50));
    }
    setup.store.release_all();
    let status = setup.engine.status();
    assert!(status.dirty_blocks <= status.dirty_max_blocks, "{status:?}");
    setup.hold(false);
    assert!(is_good(&setup.flush(client)));
    assert!((0..32).all(|block| setup.stored(block) == block as u8 + 50));
    // With warning, nothing has to be kept beside the cache.
    setup.engine.resize(32).expect("larger");
    for block in 0..32 {
        drop(setup.put(client, block, 1));
    }
    setup.engine.prepare_shrink(2, Duration::from_secs(5));
    let status = setup.engine.status();
    assert!(status.dirty_blocks <= 2 && status.resident_blocks == 32);
}

#[test]
fn what_cannot_be_kept_is_refused_with_a_sentence() {
    let options = |block_bytes, dirty_max| EngineOptions {
        block_bytes,
        capacity_blocks: 4,
        policy: "lru".parse().expect("a policy"),
        seed: 1,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back: Some(WriteBackOptions {
            dirty_max,
            ..WriteBackOptions::default()
        }),
    };
    assert!(Engine::new(&options(1 << 20, 0.2)).is_ok());
    for (block_bytes, dirty_max, word) in [(2 << 20, 0.2, "pieces"), (4096, 0.0, "share")] {
        let Err(SetupError::Size(message)) = Engine::new(&options(block_bytes, dirty_max)) else {
            panic!("{word}: taken");
        };
        assert!(message.contains(word), "{message}");
    }
}

/// The store may have a part of a later write that failed: who read that would see the dirty data after it.
#[test]
fn a_read_of_a_part_that_is_under_way_brings_what_has_become_dirty_since() {
    let (setup, client) = keeping("fix", 1, 1.0, OnEviction::None);
    assert_eq!(setup.first_byte(client, 0), setup.stored(0));
    setup.hold(true);
    // The cache is full, so that of block 1 only what is asked for is read.
    let (offset, length) = (BLOCK + 512, 1024);
    let read = setup.start(client, 1, Operation::Read { offset, length });
    setup.engine.resize(2).expect("more room");
    assert!(is_good(&setup.put(client, 1, 7)), "kept");
    setup.store.release(0, false);
    assert_eq!(take(&read).expect("answered").expect("read"), [7; 1024]);
}
