//! Demoted data is believed only under the rules: never when a newer write has been seen, never
//! from a volume that several clients use.

mod common;

use common::{BLOCK, Setup, fresh, setup, setup_of, take, write};
use futae_engine::{ClientId, Demotion, IoBuf, OnEviction, Operation};
use futae_policy::Prng;

fn demote(block: u64, fill: u8) -> Operation {
    let data = IoBuf::copy_of(&vec![fill; BLOCK as usize]);
    Operation::Demote(Demotion::new(block * BLOCK, data))
}

fn read_block(setup: &Setup, client: ClientId, block: u64) -> Vec<u8> {
    let read = setup
        .engine
        .read_blocking(setup.volume, client, block * BLOCK, BLOCK);
    read.expect("a read").as_slice().to_vec()
}

#[test]
fn a_demoted_block_is_served_from_memory() {
    let setup = setup("exclusive", 4, 16, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    let data = fresh(3);
    setup.start(
        client,
        1,
        Operation::Demote(Demotion::new(3 * BLOCK, IoBuf::copy_of(&data))),
    );
    assert_eq!(read_block(&setup, client, 3), data);
    assert!(
        setup.store.get(|inside| inside.reads.is_empty()),
        "the store was not asked"
    );
    assert_eq!(read_block(&setup, client, 4), fresh(4));
    assert_eq!(read_block(&setup, client, 4), fresh(4));
    assert_eq!(
        setup.store.get(|inside| inside.reads.len()),
        2,
        "a missed block is not kept"
    );
}

#[test]
fn a_demotion_that_is_lost_costs_a_read_of_the_store() {
    let setup = setup("exclusive", 8, 16, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    let arrives = |block: u64| block.is_multiple_of(2);
    for block in (0..8).filter(|&block| arrives(block)) {
        let data = IoBuf::copy_of(&fresh(block));
        let offset = block * BLOCK;
        setup.start(
            client,
            block + 1,
            Operation::Demote(Demotion::new(offset, data)),
        );
    }
    for block in 0..8 {
        assert_eq!(read_block(&setup, client, block), fresh(block));
    }
    let reads = setup.store.get(|inside| inside.reads.clone());
    let lost = (0..8).filter(|&block| !arrives(block));
    let wanted: Vec<_> = lost.map(|block| (block * BLOCK, BLOCK as usize)).collect();
    assert_eq!(reads, wanted, "what was lost, and nothing else");
    // What arrived may go at any time, too.
    setup.engine.resize(1).expect("smaller");
    for block in 0..8 {
        assert_eq!(read_block(&setup, client, block), fresh(block));
    }
}

#[test]
fn older_than_a_write_is_never_served() {
    for write_is_held in [false, true] {
        for demotion_first in [false, true] {
            let setup = setup("exclusive", 4, 16, OnEviction::None);
            let client = setup.engine.join(setup.volume);
            setup.store.set(|inside| inside.hold = write_is_held);
            if demotion_first {
                setup.start(client, 5, demote(2, 0xAA));
            }
            let answer = setup.start(client, 9, write(2 * BLOCK, &[0xBB; BLOCK as usize]));
            if !demotion_first {
                setup.start(client, 5, demote(2, 0xAA));
            }
            setup.store.release_all();
            setup.store.set(|inside| inside.hold = false);
            take(&answer).expect("answered").expect("written");
            let case = format!("write held: {write_is_held}, demotion first: {demotion_first}");
            assert_eq!(
                read_block(&setup, client, 2),
                [0xBB; BLOCK as usize],
                "{case}"
            );
            setup.start(client, 6, demote(2, 0xAA));
            assert_eq!(
                read_block(&setup, client, 2),
                [0xBB; BLOCK as usize],
                "{case}, again"
            );
        }
    }
}

#[test]
fn a_write_says_nothing_of_its_neighbours() {
    let setup = setup("exclusive", 4, 16, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    setup.start(client, 9, write(2 * BLOCK, &[0xBB; BLOCK as usize]));
    for block in [1, 3] {
        let demotion = Demotion::new(block * BLOCK, IoBuf::copy_of(&fresh(block)));
        setup.start(client, 5, Operation::Demote(demotion));
        assert_eq!(read_block(&setup, client, block), fresh(block));
    }
    let status = setup.engine.status();
    assert_eq!((status.demotions_refused, status.counters.hits), (0, 2));
}

#[test]
fn a_trim_or_zeroing_counts_as_a_write() {
    let setup = setup("exclusive", 4, 16, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    let zero = Operation::WriteZeroes {
        offset: 0,
        length: 4 * BLOCK,
        fua: false,
        no_hole: false,
    };
    setup.start(client, 9, zero);
    setup.start(client, 8, demote(1, 0xAA));
    assert_eq!(read_block(&setup, client, 1), [0; BLOCK as usize]);
    assert_eq!(setup.engine.status().demotions_refused, 1);
}

/// Blocks of two sectors; the last of the volume is short.
#[test]
fn after_a_failed_write_a_block_is_believed_once_it_was_written_whole() {
    const SIZE: u64 = 2 * BLOCK;
    let setup = setup_of(SIZE, "exclusive", 8, 33 * BLOCK, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    let put = |sequence: u64, offset: u64, length: u64| {
        let answer = setup.start(client, sequence, write(offset, &vec![1; length as usize]));
        take(&answer).expect("answered").is_ok()
    };
    let mut sequence = 100;
    let mut refused_of = |blocks: [u64; 6]| {
        blocks.map(|block| {
            sequence += 1;
            let before = setup.engine.status().demotions_refused;
            let length = SIZE.min(33 * BLOCK - block * SIZE);
            let data = IoBuf::copy_of(&vec![2; length as usize]);
            let demotion = Demotion::new(block * SIZE, data);
            setup.start(client, sequence, Operation::Demote(demotion));
            setup.engine.status().demotions_refused - before
        })
    };
    setup.store.set(|inside| inside.fail_writes = true);
    assert!(!put(1, 3 * SIZE, 3 * SIZE), "it fails");
    assert!(!put(2, 16 * SIZE, BLOCK), "it fails");
    setup.store.set(|inside| inside.fail_writes = false);
    assert_eq!(refused_of([2, 3, 4, 5, 6, 16]), [0, 1, 1, 1, 0, 1]);
    assert!(put(3, 3 * SIZE + BLOCK, 2 * SIZE));
    assert_eq!(refused_of([2, 3, 4, 5, 6, 16]), [0, 1, 0, 1, 0, 1]);
    assert!(put(4, 16 * SIZE, BLOCK));
    assert_eq!(refused_of([2, 3, 4, 5, 6, 16]), [0, 1, 0, 1, 0, 0]);
}

#[test]
fn never_from_a_volume_that_several_clients_use() {
    let setup = setup("exclusive", 4, 16, OnEviction::None);
    let first = setup.engine.join(setup.volume);
    let second = setup.engine.join(setup.volume);
    setup.start(second, 1, write(2 * BLOCK, &[0xBB; BLOCK as usize]));
    setup.start(first, 100, demote(2, 0xAA));
    assert_eq!(read_block(&setup, first, 2), [0xBB; BLOCK as usize]);
    setup.engine.leave(setup.volume, second);
    setup.start(first, 101, demote(2, 0xAA));
    assert_eq!(
        read_block(&setup, first, 2),
        [0xBB; BLOCK as usize],
        "its cache may be out of date"
    );
    assert_eq!(setup.engine.status().demotions_refused, 2);
}

#[test]
fn a_part_of_a_block_is_not_a_block() {
    let setup = setup("exclusive", 4, 16, OnEviction::None);
    let client = setup.engine.join(setup.volume);
    let data = IoBuf::copy_of(&[0xAA; 512]);
    setup.start(client, 1, Operation::Demote(Demotion::new(0, data)));
    assert_eq!(read_block(&setup, client, 0), fresh(0));
}

/// A client with a cache of its own that decides in one order while its messages arrive in
/// another: whatever the order, a read never sees anything but the last acknowledged write.
#[test]
fn any_order_of_arrival_is_safe() {
    for seed in 0..300 {
        let setup = setup("exclusive", 3, 4, OnEviction::None);
        let client = setup.engine.join(setup.volume);
        let mut prng = Prng::new(seed);
        let mut truth: Vec<Vec<u8>> = (0..4).map(fresh).collect();
        let mut late: Vec<(u64, u64, Vec<u8>)> = Vec::new();
        for sequence in 1..400u64 {
            let block = prng.below(4);
            match prng.below(4) {
                // Decided now, with what is true now; sent some time later.
                0 => late.push((sequence, block, truth[block as usize].clone())),
                1 => {
                    let data = vec![prng.bits() as u8; BLOCK as usize];
                    setup.start(client, sequence, write(block * BLOCK, &data));
                    truth[block as usize] = data;
                }
                2 if !late.is_empty() => {
                    let (then, block, data) = late.remove(prng.below(late.len() as u64) as usize);
                    let data = IoBuf::copy_of(&data);
                    setup.start(
                        client,
                        then,
                        Operation::Demote(Demotion::new(block * BLOCK, data)),
                    );
                }
                _ => assert_eq!(read_block(&setup, client, block), truth[block as usize]),
            }
            setup.engine.audit();
        }
        let status = setup.engine.status();
        assert!(
            status.demotions_refused > 0 && status.counters.hits > 0,
            "seed {seed}"
        );
    }
}

/// A cache outlives the connections of its store: what it read over an earlier one may be stale.
#[test]
fn what_came_before_a_reconnect_is_never_demoted() {
    let setup = setup("lru", 2, 16, OnEviction::Demote);
    let client = setup.engine.join(setup.volume);
    let demoted = || -> Vec<u64> {
        let all = setup.store.get(|inside| inside.demotions.clone());
        all.iter().map(|(_, offset, _)| offset / BLOCK).collect()
    };
    read_block(&setup, client, 0);
    // On its way when the connection is lost, and answered after that.
    setup.store.set(|inside| inside.hold = true);
    let read = Operation::Read {
        offset: BLOCK,
        length: BLOCK,
    };
    let late = setup.start(client, 0, read);
    setup.store.set(|inside| inside.generation += 1);
    setup.store.set(|inside| inside.hold = false);
    setup.store.release_all();
    take(&late).expect("an answer").expect("read");
    for block in 2..6 {
        read_block(&setup, client, block);
    }
    assert_eq!(demoted(), [2, 3], "0 and 1 are of the connection before");
    // A part written now does not make the rest any newer.
    setup.store.set(|inside| inside.generation += 1);
    let part = Operation::Write {
        offset: 5 * BLOCK,
        data: IoBuf::copy_of(&[7; 512]),
        fua: false,
    };
    setup
        .engine
        .wait(setup.volume, client, part)
        .expect("written");
    for block in 6..9 {
        read_block(&setup, client, block);
    }
    assert_eq!(demoted(), [2, 3, 6]);
}
