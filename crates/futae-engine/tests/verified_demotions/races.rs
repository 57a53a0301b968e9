//! An old hash never outlives the content that it is of.

use crate::common::{BLOCK, Setup, fresh, take, write};
use crate::{PLAIN, counts, hand, read, verifying, verifying_and_writing};
use futae_engine::{ClientId, Operation, WriteBackOptions};
use std::time::Duration;

const NEW: [u8; BLOCK as usize] = [0xBB; BLOCK as usize];
const NEWER: [u8; BLOCK as usize] = [0xCC; BLOCK as usize];

fn hold(setup: &Setup, hold: bool) {
    setup.store.set(|inside| inside.hold = hold);
}

fn start(setup: &Setup, operation: Operation) -> crate::common::Answer {
    setup.start(ClientId::NOBODY, 0, operation)
}

fn do_now(setup: &Setup, operation: Operation) {
    take(&start(setup, operation))
        .expect("answered")
        .expect("well");
}

#[test]
fn while_a_write_is_under_way_nothing_enters_and_then_only_what_was_written() {
    for (whole, good) in [(true, true), (false, true), (true, false)] {
        let setup = verifying(PLAIN);
        read(&setup, 3);
        hold(&setup, true);
        let data = if whole { &NEW[..] } else { &NEW[..512] };
        start(&setup, write(3 * BLOCK, data));
        hand(&setup, 3, &fresh(3));
        hand(&setup, 3, &NEW);
        assert_eq!(counts(&setup), [0, 0, 0, 2, 0]);
        setup.store.release(0, !good);
        hold(&setup, false);
        hand(&setup, 3, &fresh(3));
        match (whole, good) {
            (true, true) => assert_eq!(counts(&setup), [0, 0, 1, 2, 0]),
            _ => assert_eq!(counts(&setup), [0, 1, 0, 2, 0], "nobody knows"),
        }
        if whole && good {
            hand(&setup, 3, &NEW);
            assert_eq!(counts(&setup)[0], 1);
        }
        // What a read finds then is what may come back.
        let now = read(&setup, 3);
        assert_eq!(
            now,
            setup
                .store
                .get(|inside| inside.bytes[3 * BLOCK as usize..][..4096].to_vec())
        );
        if !(whole && good) {
            hand(&setup, 3, &now);
            assert_eq!(counts(&setup)[0], 1);
        }
    }
}

#[test]
fn a_read_that_lands_before_a_write_leaves_no_hash_behind_it() {
    let setup = verifying(PLAIN);
    hold(&setup, true);
    let reading = start(&setup, setup.read(3, 1));
    let writing = start(&setup, write(3 * BLOCK, &NEW));
    setup.store.release(0, false);
    assert_eq!(take(&reading).expect("read").expect("well"), fresh(3));
    hand(&setup, 3, &fresh(3));
    assert_eq!(counts(&setup), [0, 0, 0, 1, 0], "the write has begun");
    setup.store.release(0, false);
    take(&writing).expect("written").expect("well");
    hand(&setup, 3, &fresh(3));
    assert_eq!(counts(&setup), [0, 0, 1, 1, 0]);
    hand(&setup, 3, &NEW);
    assert_eq!(counts(&setup), [1, 0, 1, 1, 0]);
}

#[test]
fn a_read_of_parts_of_blocks_says_nothing_as_a_write_may_overtake_it() {
    let setup = verifying(PLAIN);
    hold(&setup, true);
    // It ends in the middle of block 4, so it does not keep writes to that block away.
    let (offset, length) = (4 * BLOCK, BLOCK / 2);
    let reading = start(&setup, Operation::Read { offset, length });
    let reading_whole = start(&setup, setup.read(5, 1));
    let writing = start(&setup, write(4 * BLOCK, &NEW));
    let bytes = setup.store.get(|inside| inside.held.len());
    assert_eq!(bytes, 3, "the write does not wait");
    setup.store.release(2, false);
    take(&writing).expect("written").expect("well");
    setup.store.release_all();
    take(&reading).expect("read").expect("well");
    take(&reading_whole).expect("read").expect("well");
    hand(&setup, 4, &fresh(4));
    assert_eq!(counts(&setup), [0, 0, 1, 0, 0]);
    hand(&setup, 4, &NEW);
    assert_eq!(counts(&setup), [1, 0, 1, 0, 0]);
    // Nor does it say what the rest of the block is.
    read_part(&setup, 9);
    hand(&setup, 9, &fresh(9));
    assert_eq!(counts(&setup), [1, 1, 1, 0, 0]);
}

fn read_part(setup: &Setup, block: u64) {
    hold(setup, false);
    let offset = block * BLOCK;
    let length = BLOCK / 2;
    do_now(setup, Operation::Read { offset, length });
}

#[test]
fn a_trim_or_zeroing_forgets_a_few_blocks_or_the_volume() {
    for (length, zeroes) in [(BLOCK, true), (BLOCK, false), (10, true)] {
        let setup = verifying(PLAIN);
        read(&setup, 3);
        read(&setup, 4);
        let offset = 3 * BLOCK;
        do_now(
            &setup,
            match zeroes {
                true => Operation::WriteZeroes {
                    offset,
                    length,
                    fua: false,
                    no_hole: false,
                },
                false => Operation::Trim { offset, length },
            },
        );
        hand(&setup, 3, &fresh(3));
        assert_eq!(counts(&setup), [0, 1, 0, 0, 0]);
        hand(&setup, 4, &fresh(4));
        assert_eq!(counts(&setup), [1, 1, 0, 0, 0]);
    }
    let bytes = 2000 * BLOCK;
    let setup = crate::common::setup("exclusive", 4, 2000, futae_engine::OnEviction::None);
    setup.engine.verify_demotions(PLAIN).expect("verification");
    read(&setup, 1999);
    read(&setup, 0);
    let (offset, length) = (BLOCK, bytes - BLOCK);
    do_now(&setup, Operation::Trim { offset, length });
    hand(&setup, 1999, &fresh(1999));
    hand(&setup, 0, &fresh(0));
    assert_eq!(
        counts(&setup),
        [0, 2, 0, 0, 0],
        "it costs what is known of block 0, too"
    );
    read(&setup, 0);
    hand(&setup, 0, &fresh(0));
    assert_eq!(counts(&setup), [1, 2, 0, 0, 0]);
}

#[test]
fn a_trim_of_up_to_1024_blocks_forgets_no_others() {
    for (first, blocks, knows_others) in [
        (0, 1024, true),
        (1000, 1024, true),
        (0, 1025, false),
        (1000, 1025, false),
    ] {
        let setup = crate::common::setup("exclusive", 4, 4000, futae_engine::OnEviction::None);
        setup.engine.verify_demotions(PLAIN).expect("verification");
        let end = first + blocks;
        for block in [first, end - 1, end, 3999] {
            read(&setup, block);
        }
        let (offset, length) = (first * BLOCK, blocks * BLOCK);
        do_now(&setup, Operation::Trim { offset, length });
        hand(&setup, first, &fresh(first));
        hand(&setup, end - 1, &fresh(end - 1));
        assert_eq!(counts(&setup), [0, 2, 0, 0, 0], "{blocks} from {first}");
        hand(&setup, end, &fresh(end));
        hand(&setup, 3999, &fresh(3999));
        let [verified, unknown] = if knows_others { [2, 2] } else { [0, 4] };
        let expected = [verified, unknown, 0, 0, 0];
        assert_eq!(counts(&setup), expected, "{blocks} from {first}");
    }
}

#[test]
fn what_came_over_an_earlier_connection_of_the_store_is_not_known() {
    let setup = verifying(PLAIN);
    read(&setup, 3);
    hold(&setup, true);
    let reading = start(&setup, setup.read(4, 1));
    setup.store.set(|inside| inside.generation = 7);
    setup.store.release_all();
    hold(&setup, false);
    take(&reading).expect("read").expect("well");
    hand(&setup, 3, &fresh(3));
    hand(&setup, 4, &fresh(4));
    assert_eq!(counts(&setup), [0, 2, 0, 0, 0]);
    read(&setup, 4);
    hand(&setup, 4, &fresh(4));
    assert_eq!(counts(&setup), [1, 2, 0, 0, 0]);
}

#[test]
fn a_long_write_in_steps_is_known_block_by_block_when_it_is_over() {
    let setup = verifying(PLAIN);
    setup.engine.set_step_blocks(1);
    let data: Vec<u8> = (0..8 * BLOCK).map(|at| (at / 100) as u8).collect();
    do_now(&setup, write(10 * BLOCK + 5, &data[5..]));
    for block in 10..18u64 {
        hand(
            &setup,
            block,
            &data[((block - 10) * BLOCK) as usize..][..BLOCK as usize],
        );
    }
    let [verified, unknown, different, busy, resident] = counts(&setup);
    assert_eq!([different, busy], [0, 0]);
    assert!(
        unknown >= 1 && verified + unknown + resident == 8,
        "{:?}",
        counts(&setup)
    );
}

fn writing_back() -> Setup {
    let how = WriteBackOptions {
        dirty_max: 0.5,
        dirty_age_max: Duration::from_secs(1000),
    };
    verifying_and_writing(PLAIN, Some(how))
}

/// Has the clean block leave the cache: the policy keeps what was demoted last.
fn push_out(setup: &Setup) {
    setup.engine.resize(1).expect("resize");
    read(setup, 60);
    hand(setup, 60, &fresh(60));
    setup.engine.resize(4).expect("resize");
}

#[test]
fn a_kept_write_is_known_once_the_store_has_it() {
    let setup = writing_back();
    read(&setup, 3);
    hand(&setup, 3, &fresh(3));
    hold(&setup, true);
    do_now(&setup, write(3 * BLOCK, &NEW));
    hand(&setup, 3, &fresh(3));
    assert_eq!(counts(&setup), [1, 0, 0, 0, 1], "its data is here");
    let flushing = start(&setup, Operation::Flush);
    // Written again while the first content is on its way.
    do_now(&setup, write(3 * BLOCK, &NEWER));
    setup.store.release_all();
    hold(&setup, false);
    take(&flushing).expect("flushed").expect("well");
    do_now(&setup, Operation::Flush);
    push_out(&setup);
    let before = counts(&setup);
    hand(&setup, 3, &NEW);
    hand(&setup, 3, &fresh(3));
    assert_eq!(counts(&setup)[2], before[2] + 2);
    hand(&setup, 3, &NEWER);
    assert_eq!(counts(&setup)[0], before[0] + 1);
    assert_eq!(read(&setup, 3), NEWER);
}

#[test]
fn a_kept_write_of_a_part_or_one_that_fails_leaves_no_hash() {
    let setup = writing_back();
    read(&setup, 3);
    hand(&setup, 3, &fresh(3));
    do_now(&setup, write(3 * BLOCK, &NEW[..100]));
    setup.store.set(|inside| inside.fail_writes = true);
    let answer = start(&setup, Operation::Flush);
    take(&answer).expect("answered").expect_err("failed");
    hand(&setup, 3, &fresh(3));
    assert_eq!(counts(&setup), [1, 0, 0, 0, 1]);
    let mut wanted = fresh(3);
    wanted[..100].copy_from_slice(&NEW[..100]);
    assert_eq!(read(&setup, 3), wanted);
    setup.store.set(|inside| inside.fail_writes = false);
    do_now(&setup, Operation::Flush);
    push_out(&setup);
    let before = counts(&setup);
    hand(&setup, 3, &fresh(3));
    assert_eq!(counts(&setup)[2], before[2] + 1);
    hand(&setup, 3, &wanted);
    assert_eq!(
        counts(&setup)[0],
        before[0] + 1,
        "the write-back brought all of it"
    );
}
