//! Who may demote what, without anything else going on.

use crate::common::{BLOCK, ManualStore, setup, setup_of, take, write};
use crate::{PLAIN, counts, fresh, hand, read, status, verifying};
use futae_engine::{
    Batch, ClientId, Demotion, IoBuf, OnEviction, OnRefusal, Operation, ReadRange, Request,
    Verification,
};
use futae_policy::{Class, VolumeId};
use std::time::Duration;

#[test]
fn what_was_served_comes_back_and_is_served_from_memory() {
    let setup = verifying(PLAIN);
    assert_eq!(read(&setup, 3), fresh(3));
    assert_eq!(
        setup.engine.status().resident_blocks,
        0,
        "an exclusive cache"
    );
    hand(&setup, 3, &fresh(3));
    assert_eq!(counts(&setup), [1, 0, 0, 0, 0]);
    let reads = setup.store.get(|inside| inside.reads.len());
    assert_eq!(read(&setup, 3), fresh(3));
    assert_eq!(setup.store.get(|inside| inside.reads.len()), reads);
    hand(&setup, 3, &[9; BLOCK as usize]);
    assert_eq!(counts(&setup), [1, 0, 0, 0, 1], "resident: not looked at");
    let accepted = setup.engine.status().bytes_demoted_in;
    assert_eq!(accepted, BLOCK, "not of the resident block");
    assert_eq!(read(&setup, 3), fresh(3));
}

#[test]
fn forged_torn_foreign_and_unasked_pages_are_refused() {
    let setup = verifying(PLAIN);
    let (mut forged, mut torn) = (fresh(3), fresh(3));
    forged[4095] ^= 1;
    torn[2048..].fill(0);
    hand(&setup, 3, &fresh(3));
    assert_eq!(counts(&setup), [0, 1, 0, 0, 0], "never served");
    read(&setup, 3);
    read(&setup, 4);
    for data in [&forged, &torn, &fresh(4), &vec![0; BLOCK as usize]] {
        hand(&setup, 3, data);
    }
    assert_eq!(counts(&setup), [0, 1, 4, 0, 0]);
    assert_eq!(setup.engine.status().demotions_refused, 5);
    assert_eq!(setup.engine.status().resident_blocks, 0);
    assert_eq!(read(&setup, 3), fresh(3));
}

#[test]
fn parts_of_blocks_are_refused_and_what_is_out_of_range_is_an_error() {
    let setup = setup_of(4 * BLOCK, "exclusive", 4, 10 * BLOCK, OnEviction::None);
    setup.engine.verify_demotions(PLAIN).expect("verification");
    let nobody = ClientId::NOBODY;
    let all = setup
        .engine
        .read_blocking(setup.volume, nobody, 0, 10 * BLOCK);
    let all = all.expect("a read").as_slice().to_vec();
    let part = |first: u64, end: u64| {
        let data = &all[(first * BLOCK) as usize..(end * BLOCK) as usize];
        hand(&setup, first, data);
        counts(&setup)
    };
    assert_eq!(part(0, 1), [0, 1, 0, 0, 0]);
    assert_eq!(part(1, 9), [1, 3, 0, 0, 0], "one whole block and two parts");
    assert_eq!(part(8, 10), [2, 3, 0, 0, 0], "the last one is short");
    for offset in [10 * BLOCK, u64::MAX, u64::MAX - 5, 9 * BLOCK + 1] {
        let handed = Demotion::by_agent(offset, IoBuf::copy_of(&all[..BLOCK as usize]));
        let answer = setup.start(nobody, 0, Operation::Demote(handed));
        take(&answer).expect("answered").expect_err("out of range");
    }
    assert_eq!(counts(&setup), [2, 3, 0, 0, 0]);
}

#[test]
fn a_volume_may_have_several_clients() {
    let setup = verifying(PLAIN);
    let (one, other) = (
        setup.engine.join(setup.volume),
        setup.engine.join(setup.volume),
    );
    let demote = |client, sequence, data: &[u8]| {
        let data = IoBuf::copy_of(data);
        let operation = Operation::Demote(Demotion::new(5 * BLOCK, data));
        let answer = setup.start(client, sequence, operation);
        take(&answer).expect("answered").expect("taken");
    };
    let new = [1; BLOCK as usize];
    read(&setup, 5);
    let answer = setup.start(one, 9, write(5 * BLOCK, &new));
    take(&answer).expect("answered").expect("written");
    demote(other, 1, &fresh(5));
    assert_eq!(
        counts(&setup),
        [0, 0, 1, 0, 0],
        "it does not know of the write"
    );
    demote(other, 1, &new);
    assert_eq!(counts(&setup), [1, 0, 1, 0, 0], "true, from any client");
    assert_eq!(read(&setup, 5), new);
}

#[test]
fn a_volume_that_gets_the_number_of_another_has_none_of_its_hashes() {
    let setup = verifying(PLAIN);
    for unknown in 1..4 {
        read(&setup, 3);
        let taken = setup
            .engine
            .take_out_volume(setup.volume, Duration::from_secs(60));
        taken.expect("nothing is dirty");
        let store = ManualStore::new(64);
        let volume = setup.engine.add_volume("next", store, Class::NORMAL);
        assert_eq!(volume.expect("a volume"), setup.volume);
        hand(&setup, 3, &fresh(3));
        assert_eq!(counts(&setup), [0, unknown, 0, 0, 0]);
    }
}

/// Demotes pages whose hashes nobody has made before the lock is taken.
struct Unhashed(ClientId, VolumeId, Vec<Operation>);

impl Batch for Unhashed {
    fn read(&self, _: usize) -> Option<ReadRange> {
        None
    }
    fn fill(&mut self, _: usize, _: usize, _: &[u8]) {}
    fn filled(&mut self, _: usize) {}
    fn request(&mut self, _: usize) -> Request {
        Request {
            volume: self.1,
            client: self.0,
            sequence: 1,
            operation: self.2.remove(0),
            done: Box::new(drop),
        }
    }
}

#[test]
fn nothing_goes_round_the_hashes_in_a_batch() {
    let setup = verifying(PLAIN);
    let client = setup.engine.join(setup.volume);
    read(&setup, 5);
    read(&setup, 6);
    let offset = 5 * BLOCK;
    let page = |data: &[u8]| IoBuf::copy_of(data);
    let forged = page(&[1; BLOCK as usize]);
    let operations = vec![
        Operation::Demote(Demotion::new(offset, forged)),
        Operation::Demote(Demotion::by_agent(offset, page(&fresh(6)))),
        setup
            .engine
            .hashed(Operation::Demote(Demotion::new(offset, page(&fresh(4))))),
        Operation::Demote(Demotion::new(offset, page(&fresh(5)))),
        Operation::Demote(Demotion::by_agent(offset + BLOCK, page(&fresh(6)))),
    ];
    let mut batch = Unhashed(client, setup.volume, operations);
    setup.engine.run_batch(5, &mut batch);
    assert_eq!(counts(&setup), [2, 0, 3, 0, 0]);
    assert_eq!((read(&setup, 5), read(&setup, 6)), (fresh(5), fresh(6)));
}

#[test]
fn what_is_refused_may_count_as_a_notice() {
    let how = Verification {
        on_refusal: OnRefusal::Notice,
        ..PLAIN
    };
    let setup = verifying(how);
    let data: Vec<u8> = (2..5).flat_map(fresh).collect();
    setup.engine.set_step_blocks(2);
    hand(&setup, 2, &data);
    assert_eq!(counts(&setup), [0, 3, 0, 0, 0]);
    let engine = setup.engine.status();
    assert_eq!((engine.notice_reads, engine.resident_blocks), (3, 3));
    assert_eq!(engine.lock_step_blocks_max, 2);
    let one = setup.engine.join(setup.volume);
    let data = IoBuf::copy_of(&fresh(9));
    let offset = 9 * BLOCK;
    setup.start(one, 1, Operation::Demote(Demotion::new(offset, data)));
    let engine = setup.engine.status();
    assert_eq!(
        engine.notice_reads, 3,
        "a client that demotes says what it means"
    );
    // A cache that does not verify takes it for a notice, too.
    let setup = self::setup("exclusive", 4, 64, OnEviction::None);
    read(&setup, 3);
    hand(&setup, 3, &fresh(3));
    let engine = setup.engine.status();
    assert_eq!((counts(&setup), engine.notice_reads), ([0, 1, 0, 0, 0], 1));
}

#[test]
fn refused_neighbours_are_read_together_and_no_others() {
    let how = Verification {
        on_refusal: OnRefusal::Notice,
        ..PLAIN
    };
    let setup = verifying(how);
    read(&setup, 3);
    let data: Vec<u8> = (2..6).flat_map(fresh).collect();
    hand(&setup, 2, &data);
    assert_eq!(counts(&setup), [1, 3, 0, 0, 0]);
    let reads = setup.store.get(|inside| inside.reads.clone());
    let read = |first: u64, blocks: u64| (first * BLOCK, (blocks * BLOCK) as usize);
    assert_eq!(reads, [read(3, 1), read(2, 1), read(4, 2)]);
    assert_eq!(setup.engine.status().resident_blocks, 4);
}

#[test]
fn memory_for_hashes_is_bounded_and_the_oldest_go() {
    let setup = verifying(Verification {
        memory_bytes: 40 * 20,
        ..PLAIN
    });
    (0..64).for_each(|block| drop(read(&setup, block)));
    let known = status(&setup);
    assert!(known.hash_bytes <= 40 * 20, "{known:?}");
    assert!(known.hash_entries <= known.hash_entries_max && known.hash_entries > 0);
    (0..64).for_each(|block| hand(&setup, block, &fresh(block)));
    let [verified, unknown, ..] = counts(&setup);
    assert!(
        verified <= 32 && verified + unknown == 64,
        "{verified} {unknown}"
    );
    hand(&setup, 63, &fresh(63));
    assert_eq!(counts(&setup)[4], 1, "the latest was known");
}

#[test]
fn a_test_finds_what_entered_wrong() {
    let how = Verification {
        compare_with_store: true,
        ..PLAIN
    };
    let setup = verifying(how);
    for block in [3, 4, 5] {
        read(&setup, block);
    }
    hand(&setup, 3, &fresh(3));
    // Behind the cache's back, which no cache can know.
    setup
        .store
        .set(|inside| inside.bytes[4 * BLOCK as usize] ^= 1);
    hand(&setup, 4, &fresh(4));
    let known = status(&setup);
    assert_eq!((known.demotions_compared, known.demotions_wrong), (2, 1));
    setup.store.set(|inside| inside.hold = true);
    hand(&setup, 5, &fresh(5));
    let answer = setup.start(ClientId::NOBODY, 0, write(5 * BLOCK, &[0; 9]));
    setup.store.release_all();
    take(&answer).expect("answered").expect("written");
    let known = status(&setup);
    assert_eq!((known.demotions_compared, known.demotions_wrong), (3, 1));
}

#[test]
fn a_volume_whose_pages_keep_differing_is_told() {
    let setup = verifying(PLAIN);
    read(&setup, 7);
    for _ in 0..300 {
        assert!(
            status(&setup).demotions_different > 255 || !setup.engine.keeps_differing(setup.volume)
        );
        hand(&setup, 7, &[3; BLOCK as usize]);
    }
    assert!(setup.engine.keeps_differing(setup.volume));
    let volume = &setup.engine.status().volumes[0];
    assert!(volume.demotions_keep_differing && volume.demotions_different == 300);
}

#[test]
fn blocks_that_come_in_pieces_cannot_be_verified() {
    let setup = setup_of(2 << 20, "exclusive", 1, 4 << 20, OnEviction::None);
    let error = setup.engine.verify_demotions(PLAIN).expect_err("too large");
    assert!(error.to_string().contains("1MiB"), "{error}");
}
