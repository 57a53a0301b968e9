//! Blocks that are loaded in the background: those that a policy chooses by itself, those of an
//! earlier run, and all that are too large to wait for.

mod common;

use common::{BLOCK, ManualStore, Setup, initial, setup_of, take, write};
use futae_engine::{Engine, EngineOptions, OnEviction, Operation, Store, WarmState};
use futae_policy::{BlockId, Class, Kind, PolicySpec, Shape, Trait};
use std::sync::Arc;

const PIECE: u64 = 1 << 20;
/// Four pieces.
const LARGE: u64 = 4 << 20;

/// Large blocks over a store of `blocks` and a half.
fn large(policy: &str, slots: u32, blocks: u64) -> Setup {
    sized(LARGE, policy, slots, blocks * LARGE + LARGE / 2)
}

fn sized(block_bytes: u64, policy: &str, slots: u32, bytes: u64) -> Setup {
    setup_of(block_bytes, policy, slots, bytes, OnEviction::None)
}

fn read(offset: u64, length: u64) -> Operation {
    Operation::Read { offset, length }
}

fn lengths(setup: &Setup) -> Vec<u64> {
    setup
        .store
        .get(|inside| inside.reads.iter().map(|read| read.1 as u64).collect())
}

#[test]
fn a_large_block_is_loaded_in_pieces_and_read_around_until_it_is_whole() {
    let setup = large("lru", 2, 4);
    let client = setup.engine.join(setup.volume);
    setup.store.set(|inside| inside.hold = true);
    let first = setup.start(client, 0, read(LARGE + 5, 100));
    let held = || setup.store.get(|inside| inside.held.len());
    assert_eq!(held(), 2, "what is asked for, and the first piece");
    setup.store.release(0, false);
    let data = take(&first).expect("answered").expect("read");
    assert_eq!(data[0], initial(LARGE + 5), "nobody waits for the block");
    // It has its slot, but not its data: read around the cache, another block at the same time.
    let again = setup.start(client, 0, read(LARGE + 3 * PIECE, 10));
    let other = setup.start(client, 0, read(3 * LARGE, 10));
    assert_eq!(held(), 3, "one piece at a time, of one block at a time");
    setup.store.release(1, false);
    setup.store.release(1, false);
    for (answer, at) in [(again, LARGE + 3 * PIECE), (other, 3 * LARGE)] {
        assert_eq!(
            take(&answer).expect("answered").expect("read")[0],
            initial(at)
        );
    }
    assert_eq!(setup.engine.status().loading_blocks, 2);
    setup.engine.audit();
    setup.store.set(|inside| inside.hold = false);
    setup.store.release_all();
    let status = setup.engine.status();
    assert_eq!((status.loading_blocks, status.loading_reads), (0, 1));
    // Three reads that were passed on, and two blocks in four pieces each.
    assert_eq!((status.store_read_blocks, status.store_reads), (5, 11));
    assert_eq!(
        lengths(&setup),
        [
            100, 10, 10, PIECE, PIECE, PIECE, PIECE, PIECE, PIECE, PIECE, PIECE
        ]
    );
    let before = lengths(&setup).len();
    let hit = setup.start(client, 0, read(LARGE + PIECE - 4, 8));
    assert_eq!(
        take(&hit).expect("answered").expect("read")[4],
        initial(LARGE + PIECE)
    );
    assert_eq!(lengths(&setup).len(), before, "answered from memory");
    setup.engine.audit();
}

#[test]
fn the_log_says_when_a_block_is_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let options = EngineOptions {
        block_bytes: LARGE,
        capacity_blocks: 2,
        policy: "lru".parse().expect("a policy"),
        seed: 1,
        on_eviction: OnEviction::None,
        decision_log: Some(path.clone()),
        write_back: None,
    };
    let engine = Engine::new(&options).expect("an engine");
    let store = ManualStore::new(4 * LARGE / BLOCK);
    let below: Arc<dyn Store> = Arc::clone(&store) as _;
    let volume = engine.add_volume("test", below, Class::NORMAL);
    let volume = volume.expect("a volume");
    let setup = Setup {
        engine,
        store,
        volume,
    };
    let client = setup.engine.join(volume);
    setup.store.set(|inside| inside.hold = true);
    setup.start(client, 0, read(LARGE, 100));
    setup.start(client, 0, read(LARGE, 100));
    setup.store.set(|inside| inside.hold = false);
    setup.store.release_all();
    setup.start(client, 0, read(LARGE, 100));
    setup.engine.sync_log();
    let log = std::fs::read_to_string(path).expect("the log");
    let wanted = [
        "read 0 1 admit",
        "read 0 1 hit",
        "# loaded 0 1",
        "read 0 1 hit",
    ];
    assert_eq!(log.lines().collect::<Vec<_>>(), wanted);
    assert_eq!(setup.engine.status().loading_reads, 1);
}

#[test]
fn a_short_last_block_is_loaded_to_its_end() {
    let setup = large("lru", 1, 1);
    let client = setup.engine.join(setup.volume);
    setup.start(client, 0, read(LARGE + 1, 1));
    assert_eq!(lengths(&setup), [1, PIECE, PIECE]);
    let last = setup.start(client, 0, read(LARGE + LARGE / 2 - 1, 1));
    let data = take(&last).expect("answered").expect("read");
    assert_eq!(data[0], initial(LARGE + LARGE / 2 - 1));
    assert_eq!(setup.engine.status().loading_reads, 0);
}

#[test]
fn writes_to_a_block_that_is_being_loaded_are_not_lost() {
    let setup = large("lru", 1, 1);
    let client = setup.engine.join(setup.volume);
    setup.store.set(|inside| inside.hold = true);
    setup.start(client, 0, read(0, 1));
    setup.store.release(0, false);
    // The first piece is on its way. A write into it waits; one elsewhere does not.
    let inside = setup.start(client, 0, write(10, &[1; 10]));
    let behind = setup.start(client, 0, write(2 * PIECE, &[2; 10]));
    assert_eq!(setup.store.get(|inside| inside.held.len()), 2);
    setup.store.release(1, false);
    assert!(take(&behind).expect("answered").is_ok() && take(&inside).is_none());
    setup.store.release(0, false);
    // Now the write into the loaded part, and the next piece; then one into a piece to come, which
    // waits for it.
    let ahead = setup.start(client, 0, write(3 * PIECE + 1, &[3; 10]));
    setup.store.set(|inside| inside.hold = false);
    setup.store.release_all();
    for answer in [inside, ahead] {
        assert!(take(&answer).expect("answered").is_ok());
    }
    let status = setup.engine.status();
    assert_eq!((status.loading_blocks, status.resident_blocks), (0, 1));
    let whole = setup.start(client, 0, read(0, LARGE));
    let whole = take(&whole).expect("answered").expect("read");
    let below = setup
        .store
        .get(|inside| inside.bytes[..LARGE as usize].to_vec());
    assert!(whole == below, "the cache and the store differ");
    assert_eq!((whole[10], whole[2 << 20], whole[(3 << 20) + 1]), (1, 2, 3));
    setup.engine.audit();
}

#[test]
fn a_block_that_goes_while_it_is_loaded_and_comes_again_is_loaded_anew() {
    let setup = large("lru", 1, 4);
    let client = setup.engine.join(setup.volume);
    setup.store.set(|inside| inside.hold = true);
    setup.start(client, 0, read(0, 1));
    setup.store.release(0, false);
    setup.store.release(0, false);
    // One piece is there, the second on its way. The block goes, is written to, and comes again.
    setup.start(client, 0, read(LARGE, 1));
    let written = setup.start(client, 0, write(0, &[9; 4]));
    setup.store.release(2, false);
    assert!(take(&written).expect("answered").is_ok());
    setup.start(client, 0, read(2 * BLOCK, 1));
    setup.store.set(|inside| inside.hold = false);
    setup.store.release_all();
    setup.engine.audit();
    assert_eq!(setup.engine.status().loading_blocks, 0);
    let data = setup.start(client, 0, read(0, 8));
    let data = take(&data).expect("answered").expect("read");
    assert_eq!(data[..4], [9; 4], "an old piece was taken for a new one");
}

#[test]
fn a_block_that_cannot_be_loaded_is_dropped_and_asked_for_again() {
    let setup = large("lru", 1, 1);
    let client = setup.engine.join(setup.volume);
    setup.store.set(|inside| inside.hold = true);
    let asked = setup.start(client, 0, read(0, 1));
    setup.store.release(0, false);
    assert!(take(&asked).expect("answered").is_ok());
    setup.store.release(0, true);
    let status = setup.engine.status();
    assert_eq!((status.resident_blocks, status.errors), (0, 1));
    setup.store.set(|inside| inside.hold = false);
    setup.start(client, 0, read(0, 1));
    let status = setup.engine.status();
    assert_eq!((status.resident_blocks, status.loading_blocks), (1, 0));
    setup.engine.audit();
}

#[test]
fn pinned_blocks_are_loaded_before_anybody_asks() {
    for block_bytes in [BLOCK, LARGE] {
        let setup = sized(block_bytes, "const(pin=1-2)", 2, 4 * block_bytes);
        setup.engine.begin_loading();
        let status = setup.engine.status();
        assert_eq!((status.resident_blocks, status.loading_blocks), (2, 0));
        assert_eq!((status.preload_reads, status.counters.requests), (2, 0));
        let client = setup.engine.join(setup.volume);
        setup.store.set(|inside| inside.fail_reads = true);
        let hit = setup.start(client, 0, read(block_bytes, 2 * block_bytes));
        let data = take(&hit).expect("answered").expect("from memory");
        assert_eq!(data[77], initial(block_bytes + 77));
    }
}

#[test]
fn the_rest_of_a_request_is_not_counted_again() {
    let setup = large("lfu-history(history=10,review=5)", 1, 4);
    let client = setup.engine.join(setup.volume);
    setup.start(client, 0, read(LARGE, 10));
    for part in 1..8 {
        let offset = LARGE + part * 10;
        let rest = setup.start(client, 0, Operation::ReadOn { offset, length: 10 });
        assert_eq!(
            take(&rest).expect("answered").expect("read")[0],
            initial(offset)
        );
    }
    let offset = 2 * LARGE - 5;
    setup.start(client, 0, Operation::ReadOn { offset, length: 10 });
    let status = setup.engine.status();
    assert_eq!((status.counters.requests, status.bytes_read), (2, 90));
}

#[test]
fn what_was_resident_is_loaded_again_after_a_restart() {
    for block_bytes in [BLOCK, LARGE] {
        let first = sized(block_bytes, "lru", 3, 8 * block_bytes);
        let client = first.engine.join(first.volume);
        for block in [1, 2, 3, 4, 2] {
            first.start(client, 0, read(block * block_bytes, 1));
        }
        let memory = first.engine.warm_state();
        let order = [2, 4, 3].map(BlockId::on_first);
        assert_eq!(memory.residents, order);
        // A smaller cache takes the safest of them.
        for (slots, kept) in [(5, &order[..]), (3, &order[..]), (2, &order[..2])] {
            let second = sized(block_bytes, "lru", slots, 8 * block_bytes);
            second.store.set(|inside| inside.hold = true);
            second.engine.recall(&memory);
            assert_eq!(second.engine.warm_state().residents, kept);
            let next = second.store.get(|inside| match &inside.held[0].0 {
                futae_engine::StoreOperation::Read { offset, .. } => *offset,
                other => panic!("{other:?}"),
            });
            assert_eq!(next, 2 * block_bytes, "the safest is loaded first");
            second.store.set(|inside| inside.hold = false);
            second.store.release_all();
            second.engine.audit();
            assert_eq!(second.engine.status().loading_blocks, 0);
            let client = second.engine.join(second.volume);
            second.store.set(|inside| inside.fail_reads = true);
            let hit = second.start(client, 0, read(4 * block_bytes + 3, 1));
            let data = take(&hit).expect("answered").expect("from memory");
            assert_eq!(data[0], initial(4 * block_bytes + 3));
        }
    }
}

#[test]
fn a_memory_of_blocks_that_are_not_there_or_twice_does_no_harm() {
    let setup = sized(BLOCK, "lru", 4, 8 * BLOCK);
    let residents = [3, 3, 99, 5].map(BlockId::on_first).to_vec();
    let history = residents.clone();
    setup.engine.recall(&WarmState { residents, history });
    setup.engine.audit();
    assert_eq!(
        setup.engine.warm_state().residents,
        [3, 5].map(BlockId::on_first)
    );
}

#[test]
fn blocks_of_every_policy_are_loaded_again_after_a_restart() {
    for &kind in Kind::ALL {
        let spec = PolicySpec::of(kind);
        let shape = Shape { slots: 8, seed: 1 };
        if spec.has(Trait::NeedsFuture) || futae_policy::build(&spec, &shape).is_err() {
            continue;
        }
        let first = sized(BLOCK, kind.name(), 8, 64 * BLOCK);
        let client = first.engine.join(first.volume);
        for block in [1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 7, 8, 9, 10, 1] {
            first.start(client, 0, read(block * BLOCK, BLOCK));
        }
        let memory = first.engine.warm_state();
        let second = sized(BLOCK, kind.name(), 8, 64 * BLOCK);
        second.engine.recall(&memory);
        second.engine.audit();
        let (resident, before) = (
            second.engine.status().resident_blocks,
            memory.residents.len(),
        );
        assert_eq!(resident, before as u64, "{}", kind.name());
    }
}
