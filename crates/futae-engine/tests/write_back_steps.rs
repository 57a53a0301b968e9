//! Write-back of much at once: writes and trims of more blocks than one step decides on, what comes between the steps, and
//! how much is written to the store at a time.

mod common;
#[path = "common/meddling.rs"]
mod meddling;

use common::{Answer, BLOCK, Setup, initial, kept_up_to, setup_writing, take, write};
use futae_engine::{
    ClientId, Engine, EngineOptions, Extent, IoBuf, OnEviction, Operation, Store, StoreDone,
    StoreOperation, WarmState,
};
use futae_policy::{BlockId, Class};
use futae_testkit::manual_store::ManualStore;
use meddling::Meddling;
use std::sync::{Arc, Mutex};

/// A cache of as many slots as blocks.
fn keeping(policy: &str, slots: u32, blocks: u64, dirty_max: f64) -> (Setup, ClientId) {
    let how = Some(kept_up_to(dirty_max));
    let bytes = blocks * BLOCK;
    let setup = setup_writing(BLOCK, policy, slots, bytes, OnEviction::None, how);
    let client = setup.engine.join(setup.volume);
    (setup, client)
}

fn is_good(answer: &Answer) -> bool {
    take(answer).expect("an answer").is_ok()
}

/// Bytes that differ from sector to sector.
fn pattern(length: u64) -> Vec<u8> {
    (0..length).map(|at| (at / 512 % 251) as u8 + 1).collect()
}

impl Setup {
    fn put(&self, client: ClientId, first: u64, blocks: u64, byte: u8) -> Answer {
        let data = vec![byte; (blocks * BLOCK) as usize];
        self.start(client, 0, write(first * BLOCK, &data))
    }

    fn flush(&self, client: ClientId) -> Answer {
        self.start(client, 0, Operation::Flush)
    }

    fn stored(&self, offset: u64, length: u64) -> Vec<u8> {
        let range = offset as usize..(offset + length) as usize;
        self.store.get(|inside| inside.bytes[range].to_vec())
    }

    fn cached(&self, client: ClientId, offset: u64, length: u64) -> Vec<u8> {
        let read = self
            .engine
            .read_blocking(self.volume, client, offset, length);
        self.engine.audit();
        read.expect("a read").as_slice().to_vec()
    }

    /// The first block and the blocks of the writes that the store has not answered.
    fn held_writes(&self) -> Vec<(u64, u64)> {
        held_writes(&self.store)
    }
}

fn held_writes(store: &ManualStore) -> Vec<(u64, u64)> {
    let writes = |(operation, _): &(StoreOperation, StoreDone)| match operation {
        StoreOperation::Write { offset, buffer, .. } => {
            Some((offset / BLOCK, buffer.len() as u64 / BLOCK))
        }
        _ => None,
    };
    store.get(|inside| inside.held.iter().filter_map(writes).collect())
}

#[test]
fn a_write_of_several_steps_is_kept_but_for_its_ends_and_counted() {
    let (setup, client) = keeping("lru", 32, 64, 1.0);
    setup.engine.set_step_blocks(2);
    // The end of block 4, blocks 5 to 10, and the start of block 11.
    let (offset, ends) = (4 * BLOCK + 100, [BLOCK - 100, 300]);
    let data = pattern(ends[0] + 6 * BLOCK + ends[1]);
    assert!(is_good(&setup.start(client, 0, write(offset, &data))));
    setup.engine.audit();
    let parts = setup.store.get(|inside| inside.writes.clone());
    let part = |offset, length| (offset, length as usize, false);
    assert_eq!(parts, [part(offset, ends[0]), part(11 * BLOCK, ends[1])]);
    let status = setup.engine.status();
    assert_eq!((status.dirty_blocks, status.lock_step_blocks_max), (6, 2));
    assert_eq!(status.bytes_written, data.len() as u64);
    let stored = ends[0] + ends[1];
    assert_eq!(
        (status.store_writes, status.bytes_store_written),
        (2, stored)
    );
    assert_eq!(setup.cached(client, offset, data.len() as u64), data);
    setup.engine.set_step_blocks(64);
    assert!(is_good(&setup.flush(client)));
    let status = setup.engine.status();
    let stored = stored + 6 * BLOCK;
    assert_eq!(
        (status.store_writes, status.bytes_store_written),
        (3, stored)
    );
    assert_eq!(setup.stored(offset, data.len() as u64), data);
}

#[test]
fn neighbours_that_are_not_kept_go_to_the_store_in_one_write() {
    // fix keeps the first four blocks and declines all others.
    let (setup, client) = keeping("fix", 4, 64, 1.0);
    assert!(is_good(&setup.put(client, 0, 4, 1)));
    assert!(is_good(&setup.flush(client)));
    setup.store.set(|inside| inside.writes.clear());
    let data = pattern(4 * BLOCK);
    assert!(is_good(&setup.start(client, 0, write(3 * BLOCK, &data))));
    let writes = setup.store.get(|inside| inside.writes.clone());
    assert_eq!(writes, [(4 * BLOCK, 3 * BLOCK as usize, false)]);
    assert_eq!(setup.cached(client, 3 * BLOCK, 4 * BLOCK), data);
    assert!(is_good(&setup.flush(client)));
    assert_eq!(setup.stored(3 * BLOCK, 4 * BLOCK), data);
}

/// A cache of 32 slots that decides on two blocks per step, with work that comes between the first and the second step of a
/// write whose start the cache does not keep.
struct Between {
    engine: Arc<Engine>,
    store: Arc<ManualStore>,
    meddling: Arc<Meddling>,
    setup: Arc<Setup>,
    client: ClientId,
}

impl Between {
    fn new(dirty_max: f64) -> Self {
        let options = EngineOptions {
            block_bytes: BLOCK,
            capacity_blocks: 32,
            policy: "lru".parse().expect("a policy"),
            seed: 1,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back: Some(kept_up_to(dirty_max)),
        };
        let engine = Engine::new(&options).expect("an engine");
        let store = ManualStore::new(64);
        let meddling = Arc::new(Meddling {
            below: Arc::clone(&store),
            before_write: Mutex::default(),
        });
        let above = Arc::clone(&meddling) as Arc<dyn Store>;
        let volume = engine.add_volume("test", above, Class::NORMAL);
        let volume = volume.expect("a volume");
        let client = engine.join(volume);
        engine.set_step_blocks(2);
        let setup = Arc::new(Setup {
            engine: Arc::clone(&engine),
            store: Arc::clone(&store),
            volume,
        });
        Self {
            engine,
            store,
            meddling,
            setup,
            client,
        }
    }

    fn meddle(&self, how: impl FnOnce(&Setup) + Send + 'static) {
        let setup = Arc::clone(&self.setup);
        let how = Box::new(move || how(&setup));
        *self.meddling.before_write.lock().expect("set") = Some(how);
    }
}

#[test]
fn between_the_steps_of_a_write_only_the_rest_of_its_range_is_locked() {
    let between = Between::new(1.0);
    let (setup, client) = (&between.setup, between.client);
    let late = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&late);
    between.meddle(move |setup| {
        // Block 5 is in the cache already; block 20 has nothing to do with the write.
        assert!(is_good(&setup.put(client, 5, 1, 50)), "it is placed");
        assert!(is_good(&setup.put(client, 20, 1, 50)), "behind the write");
        let later = setup.put(client, 9, 1, 90);
        assert!(later.lock().expect("answer").is_none(), "a write is there");
        *kept.lock().expect("set") = Some(later);
    });
    let offset = 4 * BLOCK + 100;
    let data = pattern(12 * BLOCK - offset);
    assert!(is_good(&setup.start(client, 0, write(offset, &data))));
    let late = late.lock().expect("set").take().expect("it came between");
    assert!(is_good(&late));
    let mut expected = data;
    let of =
        |block: u64| (block * BLOCK - offset) as usize..((block + 1) * BLOCK - offset) as usize;
    expected[of(5)].fill(50);
    expected[of(9)].fill(90);
    let length = expected.len() as u64;
    assert!(setup.cached(client, offset, length) == expected);
    setup.engine.set_step_blocks(64);
    assert!(is_good(&setup.flush(client)));
    assert!(setup.stored(offset, length) == expected);
}

#[test]
fn between_the_steps_of_a_write_others_may_take_the_room() {
    let between = Between::new(0.25);
    let (setup, client) = (&between.setup, between.client);
    assert!(is_good(&setup.put(client, 9, 1, 9)));
    between.store.hold(true);
    between.meddle(move |setup| {
        assert!(is_good(&setup.put(client, 20, 6, 20)), "there is room");
        assert_eq!(setup.engine.status().dirty_blocks, 8, "and no more");
    });
    // Block 4 in part; 5 in the first step; then 6 to 8, without room; 9 is dirty already.
    let offset = 4 * BLOCK + 100;
    let data = pattern(10 * BLOCK - offset);
    let answer = setup.start(client, 0, write(offset, &data));
    assert!(take(&answer).is_none(), "the store does not answer yet");
    assert_eq!(between.engine.status().dirty_blocks, 8, "the bound");
    let held = setup.held_writes();
    let over = |block: u64| {
        let covers = |&&(first, blocks): &&(u64, u64)| (first..first + blocks).contains(&block);
        held.iter().filter(covers).collect::<Vec<_>>()
    };
    // Nothing else is decided while a step goes on, so that is short even if nothing is kept.
    assert_eq!((over(6), over(8)), (vec![&(6, 2)], vec![&(8, 1)]));
    assert_eq!(over(9).len(), 1, "two writes to one block: {held:?}");
    between.store.hold(false);
    between.store.release_all();
    assert!(is_good(&answer));
    setup.engine.set_step_blocks(64);
    let length = data.len() as u64;
    assert!(setup.cached(client, offset, length) == data);
    assert!(is_good(&setup.flush(client)));
    assert!(setup.stored(offset, length) == data);
}

#[test]
fn a_trim_of_several_steps_leaves_nothing_to_write_back() {
    let (setup, client) = keeping("lru", 32, 64, 1.0);
    // Of block 1 some is left, and of the last one; beyond block 7 nothing was dirty.
    for (step, end, left) in [
        (1, 7 * BLOCK, 2),
        (2, 7 * BLOCK, 2),
        (2, 6 * BLOCK + 100, 3),
        (2, 20 * BLOCK, 1),
    ] {
        setup.engine.set_step_blocks(64);
        assert!(is_good(&setup.put(client, 1, 7, 7)));
        setup.engine.set_step_blocks(step);
        let (offset, length) = (2 * BLOCK - 100, end - (2 * BLOCK - 100));
        let zeroes = Operation::WriteZeroes {
            offset,
            length,
            fua: false,
            no_hole: false,
        };
        assert!(is_good(&setup.start(client, 0, zeroes)));
        setup.engine.audit();
        assert_eq!(setup.engine.status().dirty_blocks, left);
        setup.engine.set_step_blocks(64);
        let expected: Vec<u8> = (BLOCK..8 * BLOCK)
            .map(|at| if (offset..end).contains(&at) { 0 } else { 7 })
            .collect();
        assert!(setup.cached(client, BLOCK, 7 * BLOCK) == expected);
        assert!(is_good(&setup.flush(client)));
        assert!(setup.stored(BLOCK, 7 * BLOCK) == expected);
    }
}

fn write_through(offset: u64, data: &[u8]) -> Operation {
    Operation::Write {
        offset,
        data: IoBuf::copy_of(data),
        fua: true,
    }
}

#[test]
fn a_write_through_to_a_part_of_a_dirty_block_is_not_undone_by_its_write_back() {
    let (setup, client) = keeping("lru", 32, 64, 1.0);
    assert!(is_good(&setup.put(client, 3, 1, 1)));
    let through = write_through(3 * BLOCK + 512, &[2; 1024]);
    assert!(is_good(&setup.start(client, 0, through)));
    assert_eq!(setup.engine.status().dirty_blocks, 1, "the rest of it");
    let mut expected = vec![1; BLOCK as usize];
    expected[512..512 + 1024].fill(2);
    assert!(setup.cached(client, 3 * BLOCK, BLOCK) == expected);
    assert!(is_good(&setup.flush(client)));
    assert!(setup.stored(3 * BLOCK, BLOCK) == expected);
}

#[test]
fn a_block_is_not_written_back_while_another_write_to_it_is_under_way() {
    let (setup, client) = keeping("lru", 32, 64, 1.0);
    assert!(is_good(&setup.put(client, 3, 1, 1)));
    assert!(is_good(&setup.put(client, 8, 1, 1)));
    setup.store.hold(true);
    let through = write_through(3 * BLOCK, &[2; 512]);
    let through = setup.start(client, 0, through);
    let flush = setup.flush(client);
    assert_eq!(setup.held_writes(), [(3, 0), (8, 1)]);
    setup.store.release(0, false);
    assert!(is_good(&through));
    assert_eq!(setup.held_writes(), [(8, 1), (3, 1)]);
    setup.store.release_all();
    assert!(is_good(&flush));
    assert_eq!(setup.stored(3 * BLOCK, 513)[511..], [2, 1]);
}

#[test]
fn what_is_not_due_stays_while_a_flush_is_under_way() {
    let (setup, client) = keeping("lru", 32, 64, 1.0);
    assert!(is_good(&setup.put(client, 0, 12, 1)));
    setup.store.hold(true);
    let flush = setup.flush(client);
    assert!(is_good(&setup.put(client, 40, 6, 1)));
    assert_eq!(setup.held_writes(), [(0, 12)], "less than half are dirty");
    setup.store.release_all();
    assert!(is_good(&flush));
    assert_eq!(setup.engine.status().dirty_blocks, 6);
    // Half of the bound is passed by what nothing carries yet.
    assert!(is_good(&setup.put(client, 20, 11, 1)));
    assert!(!setup.held_writes().is_empty());
    setup.store.release_all();
}

#[test]
fn what_is_written_back_at_a_time_is_bounded() {
    const MIB: u64 = 1 << 20;
    let (setup, client) = keeping("lru", 4096, 4096, 1.0);
    setup.store.hold(true);
    assert!(is_good(&setup.put(client, 0, 3000, 1)));
    let flush = setup.flush(client);
    // As soon as one ends, another begins.
    for ended in 0..4 {
        let held = setup.held_writes();
        assert!(held.iter().all(|&(_, blocks)| blocks * BLOCK <= MIB / 2));
        let blocks: u64 = held.iter().map(|&(_, blocks)| blocks).sum();
        assert_eq!(blocks * BLOCK, 8 * MIB, "{ended} have ended: {held:?}");
        setup.store.release(0, false);
    }
    setup.store.release_all();
    assert!(is_good(&flush));
    assert!(setup.stored(0, 3000 * BLOCK).iter().all(|&byte| byte == 1));
    // By number, if they are small.
    for block in 0..40 {
        assert!(is_good(&setup.put(client, 2 * block, 1, 2)));
    }
    let flush = setup.flush(client);
    assert_eq!(setup.held_writes().len(), 32);
    setup.store.release_all();
    assert!(is_good(&flush));
    assert_eq!(setup.engine.status().dirty_blocks, 0);
}

#[test]
fn write_backs_that_have_ended_do_not_count_against_later_ones() {
    let (setup, client) = keeping("lru", 64, 64, 1.0);
    for round in 0..40 {
        // 40 runs, and 10 MiB.
        assert!(is_good(&setup.put(client, 0, 64, round)));
        assert!(is_good(&setup.flush(client)), "round {round}");
    }
    let status = setup.engine.status();
    assert_eq!((status.write_backs, status.write_back_blocks), (40, 2560));
    assert_eq!(status.buffer_bytes, 0);
}

#[test]
fn of_many_dirty_blocks_none_is_a_hole() {
    let (setup, client) = keeping("lru", 32, 64, 1.0);
    setup.store.set(|inside| inside.is_hole = true);
    for block in [2, 5, 6, 9, 10, 11] {
        assert!(is_good(&setup.put(client, block, 1, 1)));
    }
    for step in [1, 2, 3, 6, 64] {
        setup.engine.set_step_blocks(step);
        let of = |first: u64, end: u64| {
            let (offset, length) = (first * BLOCK, (end - first) * BLOCK);
            let extents = setup.engine.extents(setup.volume, offset, length);
            let pair = |extent: &Extent| (extent.length / BLOCK, !extent.hole);
            extents
                .expect("extents")
                .iter()
                .map(pair)
                .collect::<Vec<_>>()
        };
        let (hole, data) = (false, true);
        let all = [
            (2, hole),
            (1, data),
            (2, hole),
            (2, data),
            (2, hole),
            (3, data),
            (52, hole),
        ];
        assert_eq!(of(0, 64), all, "{step} at a time");
        assert_eq!(of(6, 11), [(1, data), (2, hole), (2, data)], "{step}");
    }
}

#[test]
fn blocks_that_are_yet_to_be_loaded_are_written_and_not_loaded_over() {
    let (setup, client) = keeping("lru", 1024, 1024, 1.0);
    setup.store.hold(true);
    // As after a restart. Blocks are read one MiB at a time, the first ones first.
    let residents: Vec<_> = (0..1000).map(BlockId::on_first).collect();
    let history = residents.clone();
    setup.engine.recall(&WarmState { residents, history });
    assert_eq!(setup.engine.status().loading_blocks, 1000);
    let part = setup.start(client, 0, write(500 * BLOCK + 512, &[5; 1024]));
    assert!(is_good(&setup.put(client, 600, 1, 6)), "kept at once");
    setup.engine.audit();
    assert_eq!(setup.engine.status().dirty_blocks, 1);
    setup.store.hold(false);
    setup.store.release_all();
    assert!(is_good(&part));
    let mut expected: Vec<u8> = (500 * BLOCK..501 * BLOCK).map(initial).collect();
    expected[512..512 + 1024].fill(5);
    assert!(setup.cached(client, 500 * BLOCK, BLOCK) == expected);
    assert!(setup.cached(client, 600 * BLOCK, BLOCK) == [6; BLOCK as usize]);
    assert_eq!(setup.engine.status().loading_blocks, 0);
    assert!(is_good(&setup.flush(client)));
    assert!(setup.stored(500 * BLOCK, BLOCK) == expected);
    assert!(setup.stored(600 * BLOCK, BLOCK) == [6; BLOCK as usize]);
}

#[test]
fn a_write_through_to_a_dirty_block_beside_the_cache_is_not_undone_either() {
    let (setup, client) = keeping("lru", 4, 64, 1.0);
    setup.store.set(|inside| inside.fail_writes = true);
    assert!(is_good(&setup.put(client, 7, 1, 1)));
    setup.cached(client, 20 * BLOCK, 4 * BLOCK);
    let status = setup.engine.status();
    assert_eq!(
        (status.dirty_evicted_blocks, status.write_back_errors),
        (1, 1)
    );
    setup.store.set(|inside| inside.fail_writes = false);
    let through = write_through(7 * BLOCK + 512, &[2; 1024]);
    assert!(is_good(&setup.start(client, 0, through)));
    assert_eq!(setup.engine.status().dirty_evicted_blocks, 1);
    let mut expected = vec![1; BLOCK as usize];
    expected[512..512 + 1024].fill(2);
    let told = setup.flush(client);
    assert!(take(&told).expect("an answer").is_err(), "the failure");
    assert!(is_good(&setup.flush(client)));
    assert!(setup.stored(7 * BLOCK, BLOCK) == expected);
    assert!(setup.cached(client, 7 * BLOCK, BLOCK) == expected);
}
