//! One client against the others: nothing that one asks for holds up what another asks for.

mod common;

use common::{BLOCK, ManualStore, Setup, initial, setup, setup_of, setup_writing, take, write};
use futae_engine::{
    ClientId, Demotion, Engine, Extent, IoBuf, OnEviction, Operation, Request, Store,
    StoreOperation, WriteBackOptions,
};
use futae_policy::{BlockId, Class, VolumeId};
use futae_testkit::store::MemoryStore;
use std::sync::{Arc, mpsc};

fn ask(engine: &Arc<Engine>, volume: VolumeId, length: u64) -> mpsc::Receiver<Vec<Extent>> {
    let (sender, receiver) = mpsc::channel();
    let done = move |extents: Result<_, _>| sender.send(extents.expect("extents")).expect("asked");
    engine.extents_later(volume, 0, length, Box::new(done));
    receiver
}

#[test]
fn a_store_that_is_slow_to_tell_its_extents_holds_nobody_up() {
    let setup = setup("lru", 8, 16, OnEviction::None);
    let slow = MemoryStore::new(vec![0; 16 * BLOCK as usize]);
    slow.hold_questions(true);
    let below: Arc<dyn Store> = Arc::clone(&slow) as _;
    let other = setup.engine.add_volume("slow", below, Class::NORMAL);
    let other = other.expect("a volume");
    // Were they asked for on this thread, it would never get on.
    let waiting: Vec<_> = (0..200)
        .map(|at| ask(&setup.engine, other, BLOCK + at))
        .collect();
    let quick = ask(&setup.engine, setup.volume, BLOCK);
    assert!(!quick.recv().expect("an answer")[0].hole);
    let at_once = waiting
        .iter()
        .filter_map(|answer| answer.try_recv().ok())
        .inspect(|extents| assert!(!extents[0].hole))
        .count();
    assert!((200 - 65..=200 - 64).contains(&at_once), "{at_once}");
    slow.hold_questions(false);
    let mut holes = 0;
    for answer in waiting {
        holes += answer
            .recv()
            .map_or(0, |extents| usize::from(extents[0].hole));
    }
    assert_eq!(holes + at_once, 200, "each is answered once");
}

#[test]
fn reads_and_demotions_of_a_batch_go_together_to_each_of_several_stores() {
    let setup = setup("lru", 2, 64, OnEviction::Demote);
    let stores = [ManualStore::new(64), ManualStore::new(64)];
    let volumes = stores.clone().map(|store| {
        let volume = setup.engine.add_volume("below", store, Class::NORMAL);
        volume.expect("a volume")
    });
    let request = |volume, block: u64| Request {
        volume,
        client: ClientId(1),
        sequence: 0,
        operation: Operation::Read {
            offset: block * BLOCK,
            length: BLOCK,
        },
        done: Box::new(drop),
    };
    let mut fill: Vec<_> = volumes.iter().map(|&volume| request(volume, 0)).collect();
    setup.engine.submit_batch(&mut fill);
    for store in &stores {
        store.set(|inside| inside.alone.clear());
    }
    // Each read evicts a block of its own volume.
    let mut batch: Vec<_> = volumes.iter().map(|&volume| request(volume, 1)).collect();
    setup.engine.submit_batch(&mut batch);
    for store in &stores {
        let alone = store.get(|inside| inside.alone.clone());
        assert!(alone.is_empty(), "on their own: {alone:?}");
    }
}

/// Blocks that were decided on at most at a time, and blocks that are resident.
fn longest_step(setup: &Setup) -> (u64, u64) {
    let status = setup.engine.status();
    (status.lock_step_blocks_max, status.resident_blocks)
}

#[test]
fn a_long_range_is_decided_on_in_bounded_steps() {
    const BLOCKS: u64 = 6000;
    let setup = setup("lru", BLOCKS as u32, BLOCKS, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    let all = BLOCKS * BLOCK;
    let read = |operation| take(&setup.start(client, 0, operation)).expect("answered");
    let expected: Vec<u8> = (0..all).map(initial).collect();
    assert!(read(setup.read(0, BLOCKS)).expect("a read") == expected);
    assert!(read(setup.read(0, BLOCKS)).expect("a second read") == expected);
    assert_eq!(longest_step(&setup), (1024, BLOCKS));

    // While the first blocks are dropped and until the store has answered, nobody reads any of it.
    setup.store.set(|inside| inside.hold = true);
    let zeroes = Operation::WriteZeroes {
        offset: 0,
        length: all,
        fua: false,
        no_hole: true,
    };
    let zeroing = setup.start(client, 0, zeroes);
    assert_eq!(longest_step(&setup), (1024, 0));
    let reading = setup.start(client, 0, setup.read(5999, 1));
    assert_eq!(setup.store.get(|inside| inside.held.len()), 1);
    setup.store.set(|inside| inside.hold = false);
    setup.store.release_all();
    take(&zeroing).expect("answered").expect("zeroed");
    let zero = take(&reading).expect("answered").expect("read");
    assert!(zero.iter().all(|&byte| byte == 0));

    let data = vec![7; all as usize];
    read(write(0, &data)).expect("a write");
    assert!(read(setup.read(0, BLOCKS)).expect("a read") == data);
    let offset = 0;
    setup
        .engine
        .wait(
            setup.volume,
            client,
            Operation::Demote(Demotion::new(offset, IoBuf::copy_of(&data))),
        )
        .expect("taken");
    assert_eq!(longest_step(&setup), (1024, BLOCKS));
    setup.engine.audit();
}

#[test]
fn a_batch_and_what_waited_for_a_write_go_on_in_bounded_steps() {
    let setup = setup("lru", 64, 4096, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    setup.store.set(|inside| inside.hold = true);
    let trim = Operation::Trim {
        offset: 0,
        length: 4096 * BLOCK,
    };
    let trimmed = setup.start(client, 0, trim);
    let waiting: Vec<_> = (0..8)
        .map(|at| setup.start(client, 0, setup.read(at * 500, 500)))
        .collect();
    setup.store.set(|inside| inside.hold = false);
    setup.store.release_all();
    take(&trimmed).expect("answered").expect("trimmed");
    for read in waiting {
        take(&read).expect("answered").expect("read");
    }
    assert_eq!(longest_step(&setup).0, 1000);
    let request = |at: u64| Request {
        volume: setup.volume,
        client,
        sequence: 0,
        operation: setup.read(at * 500, 500),
        done: Box::new(drop),
    };
    setup
        .engine
        .submit_batch(&mut (0..8).map(request).collect());
    assert_eq!(longest_step(&setup).0, 1000);
    setup.engine.audit();
}

#[test]
fn a_range_is_dropped_by_what_is_resident_of_it() {
    let setup = setup("lru", 1024, 1 << 14, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    for at in (0..1024).rev() {
        let block = at * 16;
        take(&setup.start(client, 0, setup.read(block, 1)))
            .expect("answered")
            .expect("read");
    }
    let trim = |block: u64, blocks: u64| Operation::Trim {
        offset: block * BLOCK,
        length: blocks * BLOCK,
    };
    take(&setup.start(client, 0, trim(1, 15)))
        .expect("answered")
        .expect("trimmed");
    assert_eq!(longest_step(&setup), (1, 1024), "none of them was there");
    take(&setup.start(client, 0, trim(0, 512 * 16)))
        .expect("answered")
        .expect("trimmed");
    assert_eq!(
        longest_step(&setup),
        (512, 1024 - 512),
        "7,680 others were not there"
    );
    setup.engine.audit();
}

#[test]
fn a_notice_of_any_length_reads_little_at_a_time_and_little_in_all() {
    const BLOCKS: u64 = 16 << 10;
    let setup = setup("lru", 4096, BLOCKS, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    setup.store.set(|inside| inside.hold = true);
    let notice = || Operation::Notice {
        offset: 0,
        length: BLOCKS * BLOCK,
    };
    let answers = [(); 3].map(|()| setup.start(client, 0, notice()));
    for answer in answers {
        take(&answer).expect("answered at once").expect("taken");
    }
    let held = || {
        setup.store.get(|inside| {
            let bytes = inside.held.iter().map(|(operation, _)| match operation {
                StoreOperation::Read { buffer, .. } => buffer.len() as u64,
                _ => 0,
            });
            bytes.collect::<Vec<_>>()
        })
    };
    let mut most = 0;
    while !held().is_empty() {
        assert!(held().iter().all(|&bytes| bytes <= 1 << 20), "{:?}", held());
        most = most.max(held().iter().sum());
        setup.store.release(0, false);
    }
    assert!(most <= 8 << 20, "{most} bytes at a time");
    // The first notice took all of what may wait, and had begun when the others came.
    let read: usize = setup
        .store
        .get(|inside| inside.reads.iter().map(|read| read.1).sum());
    assert!(read as u64 / BLOCK <= 3 * 4096 / 4, "{read} bytes in all");
    assert!(longest_step(&setup).0 <= 1024);
    setup.engine.audit();
}

#[test]
fn notices_go_on_by_themselves_and_are_answered_by_what_they_read() {
    let setup = setup("lru", 4096, 4096, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    // Every other block is here already: many short reads.
    for block in (0..900).step_by(2) {
        take(&setup.start(client, 0, setup.read(block, 1)));
    }
    setup.store.set(|inside| inside.hold = true);
    setup.engine.notice(setup.volume, 0, 900 * BLOCK);
    setup.engine.notice(setup.volume, 1000 * BLOCK, 100 * BLOCK);
    let begun = setup.store.get(|inside| inside.held.len());
    assert_eq!(begun, 450, "the second one waits");
    setup.store.set(|inside| inside.hold = false);
    setup.store.release_all();
    let status = setup.engine.status();
    assert_eq!((status.notice_reads, status.resident_blocks), (550, 1000));
    let reads = setup.store.get(|inside| inside.reads.len());
    let hit = take(&setup.start(client, 0, setup.read(1000, 100)));
    assert_eq!(
        hit.expect("answered").expect("read")[0],
        initial(1000 * BLOCK)
    );
    assert_eq!(setup.store.get(|inside| inside.reads.len()), reads);
    setup.engine.audit();
}

/// The memory of a frame is given back under the lock, and a large frame takes longer.
#[test]
fn a_cache_of_large_blocks_shrinks_in_steps_of_bounded_bytes() {
    const LARGE: u64 = 1 << 20;
    const BLOCKS: u64 = 24;
    let setup = setup_of(
        LARGE,
        "lru",
        BLOCKS as u32,
        BLOCKS * LARGE,
        OnEviction::None,
    );
    let client = setup.engine.join(setup.volume);
    for block in 0..BLOCKS {
        let read = Operation::Read {
            offset: block * LARGE,
            length: LARGE,
        };
        take(&setup.start(client, 0, read));
    }
    assert_eq!(longest_step(&setup), (1, BLOCKS));
    setup.engine.resize(1).expect("smaller");
    assert_eq!(longest_step(&setup), (4, 1), "4 MiB");
    setup.engine.audit();
}

/// A cache in which every block of a volume is resident, asked for one at a time.
fn filled(policy: &str, blocks: u64) -> Setup {
    let setup = setup(policy, blocks as u32, blocks, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    for block in 0..blocks {
        take(&setup.start(client, 0, setup.read(block, 1)));
    }
    assert_eq!(longest_step(&setup), (1, blocks));
    setup
}

#[test]
fn what_is_kept_over_a_restart_is_taken_down_and_up_in_bounded_steps() {
    const BLOCKS: u64 = 5000;
    let first = filled("lru", BLOCKS);
    let memory = first.engine.warm_state();
    assert_eq!(longest_step(&first), (1024, BLOCKS));
    let names: Vec<_> = (0..BLOCKS).rev().map(BlockId::on_first).collect();
    assert!(memory.residents == names, "the last used comes first");

    let second = setup("lru", BLOCKS as u32, BLOCKS, OnEviction::None);
    second.store.set(|inside| inside.hold = true);
    second.engine.recall(&memory);
    assert_eq!(longest_step(&second), (1024, BLOCKS));
    let first_read = second.store.get(|inside| match &inside.held[0].0 {
        StoreOperation::Read { offset, .. } => *offset,
        other => panic!("{other:?}"),
    });
    assert_eq!(first_read, (BLOCKS - 1) * BLOCK, "the safest first");
    second.store.release_all();
    assert!(second.engine.warm_state() == memory);
    assert_eq!(second.engine.status().loading_blocks, 0);
    second.engine.audit();
}

#[test]
fn groups_of_a_policy_are_kept_apart_over_a_restart() {
    let setup = setup("lfu", 8, 8, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    for block in [4, 4, 4, 2, 2, 6, 6, 1] {
        take(&setup.start(client, 0, setup.read(block, 1)));
    }
    let names = [4, 6, 2, 1].map(BlockId::on_first);
    assert_eq!(setup.engine.warm_state().residents, names);
}

#[test]
fn volumes_get_other_classes_in_bounded_steps_by_their_own_blocks() {
    const BLOCKS: u64 = 3000;
    let setup = filled("directory(lru, max_protected=0.9)", BLOCKS);
    let other = ManualStore::new(100);
    let other = setup.engine.add_volume("other", other, Class::NORMAL);
    let other = other.expect("a volume");
    let client = setup.engine.join(other);
    for block in (0..100).rev() {
        let read = setup.engine.read_blocking(other, client, block * BLOCK, 1);
        read.expect("a read");
    }
    setup.engine.set_classes(&[(other, Class::PROTECTED)], true);
    assert_eq!(longest_step(&setup), (100, BLOCKS), "its blocks only");
    setup
        .engine
        .set_classes(&[(setup.volume, Class::PROTECTED)], true);
    assert_eq!(longest_step(&setup), (1024, BLOCKS));
    setup.engine.audit();
    // Protected blocks of one volume go in the order of their last use when there are too many.
    setup
        .engine
        .set_classes(&[(setup.volume, Class::NORMAL)], true);
    setup.engine.resize(100).expect("smaller");
    let memory = setup.engine.warm_state();
    let kept: Vec<_> = (0..100).map(|index| BlockId::new(other, index)).collect();
    assert_eq!(memory.residents, kept);
    setup.engine.audit();
}

#[test]
fn the_extents_of_a_dirty_volume_are_found_in_bounded_steps() {
    const BLOCKS: u64 = 3000;
    let how = WriteBackOptions {
        dirty_max: 1.0,
        ..WriteBackOptions::default()
    };
    let setup = setup_writing(
        BLOCK,
        "lru",
        2 * BLOCKS as u32,
        BLOCKS * BLOCK,
        OnEviction::None,
        Some(how),
    );
    let client = setup.engine.join(setup.volume);
    for block in 0..BLOCKS {
        let data = vec![1; BLOCK as usize];
        take(&setup.start(client, 0, write(block * BLOCK, &data)));
    }
    assert_eq!(longest_step(&setup), (1, BLOCKS));
    setup.store.set(|inside| inside.is_hole = true);
    let all = BLOCKS * BLOCK;
    let extents = setup.engine.extents(setup.volume, 0, all);
    let extents = extents.expect("extents");
    let data = extents.iter().filter(|extent| !extent.hole);
    assert_eq!(data.map(|extent| extent.length).sum::<u64>(), all);
    assert_eq!(longest_step(&setup), (1024, BLOCKS));

    // Nor does a flush of all of it look at more at a time.
    setup.store.set(|inside| inside.hold = true);
    let flushed = setup.start(client, 0, Operation::Flush);
    let later = vec![2; BLOCK as usize];
    take(&setup.start(client, 0, write(0, &later)));
    setup.store.release_all();
    take(&flushed).expect("answered").expect("flushed");
    assert_eq!(longest_step(&setup).0, 1024);
    let stored = setup.store.get(|inside| inside.bytes.clone());
    assert!(stored[BLOCK as usize..].iter().all(|&byte| byte == 1));
    setup.engine.audit();
}
