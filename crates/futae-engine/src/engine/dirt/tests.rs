//! Dirty blocks of one volume: their ages, their runs, and their data.

use super::*;

const AGE: Duration = Duration::from_secs(30);

fn marked(indexes: &[u64]) -> (Dirt, Instant) {
    let (mut dirt, now) = (Dirt::default(), Instant::now());
    for &index in indexes {
        dirt.mark(index, now);
    }
    dirt.audit();
    (dirt, now)
}

#[test]
fn runs_are_ascending_merged_and_go_round() {
    let (mut dirt, _) = marked(&[9, 3, 4, 5, 20, 6]);
    let mut runs = Vec::new();
    assert_eq!(dirt.next_run(false, 3, |_| true), None, "nothing is due");
    while let Some(run) = dirt.next_run(true, 3, |_| true) {
        run.clone().for_each(|index| dirt.carry(index));
        runs.push(run);
    }
    assert_eq!(runs, [3..6, 6..7, 9..10, 20..21]);
    dirt.audit();
    dirt.mark(1, Instant::now());
    assert_eq!(dirt.next_run(true, 3, |index| index != 1), None);
    assert_eq!(dirt.next_run(true, 3, |_| true), Some(1..2), "round again");
}

#[test]
fn many_old_blocks_become_due_some_at_a_time() {
    let (mut dirt, now) = marked(&(0..2500).collect::<Vec<_>>());
    let mut steps = Vec::new();
    while !dirt.age(now + AGE, AGE) {
        steps.push(dirt.due.len());
    }
    assert_eq!((steps, dirt.due.len()), (vec![1024, 2048], 2500));
}

#[test]
fn all_that_is_hurried_becomes_due_some_at_a_time() {
    let (mut dirt, now) = marked(&(0..2500).rev().collect::<Vec<_>>());
    for index in 0..700 {
        dirt.carry(index);
        dirt.fail(index, now).expect("carried");
    }
    dirt.carry(2000);
    dirt.mark(2000, now);
    dirt.hurry();
    assert_eq!(dirt.due.len(), 0, "nothing yet");
    dirt.mark(3000, now);
    assert_eq!(dirt.catch_up(600), 600);
    dirt.carry(7);
    dirt.fail(7, now).expect("carried");
    let mut looked = Vec::new();
    while dirt.is_behind() {
        looked.push(dirt.catch_up(1024));
        dirt.audit();
    }
    // Entries of blocks that failed are stale, and are skipped.
    assert_eq!(looked.iter().sum::<u64>(), 100 + 2500 + 1, "{looked:?}");
    assert!(looked.iter().all(|&blocks| blocks <= 1024), "{looked:?}");
    assert!(dirt.is_failing() && !dirt.due.contains(&7), "failed again");
    assert!(!dirt.due.contains(&3000), "written after the flush came");
    assert!(!dirt.due.contains(&2000), "on its way");
    drop(dirt.saved(2000));
    assert!(dirt.due.contains(&2000), "written before the flush came");
    assert_eq!(dirt.due.len(), 2500 - 1);
}

#[test]
fn a_search_for_what_may_be_written_is_bounded_and_goes_on() {
    let (mut dirt, _) = marked(&(0..3000).collect::<Vec<_>>());
    let looked = std::cell::Cell::new(0);
    let is_free = |index| {
        looked.set(looked.get() + 1);
        index >= 2500
    };
    assert_eq!(dirt.next_run(true, 9, is_free), None);
    assert_eq!(looked.get(), SEARCH_BLOCKS_MAX);
    assert_eq!(dirt.next_run(true, 9, is_free), None);
    assert_eq!(dirt.next_run(true, 9, is_free), Some(2500..2509));
}

#[test]
fn the_only_dirty_block_is_found_once_it_may_be_written() {
    let (mut dirt, _) = marked(&[0]);
    assert_eq!(dirt.next_run(true, 9, |_| false), None);
    assert_eq!(dirt.next_run(true, 9, |_| true), Some(0..1));
}

#[test]
fn a_block_written_while_it_is_carried_stays_dirty() {
    let (mut dirt, now) = marked(&[7]);
    dirt.carry(7);
    dirt.mark(7, now);
    let (change, cleaned) = dirt.saved(7).expect("carried");
    assert!(cleaned.is_none() && dirt.has(7));
    assert!(change.frees(1) && !change.frees(2));
    dirt.carry(7);
    let (change, cleaned) = dirt.saved(7).expect("carried");
    assert!(cleaned.is_some() && change.frees(2) && !dirt.has(7));
    dirt.audit();
}

#[test]
fn what_is_hurried_while_it_is_carried_is_carried_again_at_once() {
    let (mut dirt, now) = marked(&[7]);
    dirt.carry(7);
    dirt.mark(7, now);
    dirt.hurry();
    dirt.catch_up(9);
    assert_eq!(dirt.next_run(false, 9, |_| true), None);
    drop(dirt.saved(7));
    assert_eq!(dirt.next_run(false, 9, |_| true), Some(7..8));
}

#[test]
fn ages_of_clean_blocks_are_forgotten() {
    let (mut dirt, now) = marked(&[1]);
    for _ in 0..3 * Ages::SPARE {
        dirt.mark(7, now);
        drop(dirt.settle(7));
    }
    assert!(dirt.ages.len() <= Ages::SPARE + 4);
    dirt.age(now + AGE, AGE);
    assert_eq!(dirt.next_run(false, 9, |_| true), Some(1..2));
}

#[test]
fn ages_of_blocks_that_were_many_are_forgotten() {
    let (mut dirt, now) = marked(&(0..5000).collect::<Vec<_>>());
    (1..5000).for_each(|index| drop(dirt.settle(index)));
    for _ in 0..Ages::SPARE {
        dirt.mark(7, now);
        drop(dirt.settle(7));
    }
    let mut entries = Vec::new();
    while let Some((_, _, index)) = dirt.ages.oldest() {
        entries.push(index);
        dirt.ages.take_oldest();
    }
    assert!(entries.len() <= Ages::SPARE + 4, "{}", entries.len());
    assert_eq!(entries[0], 0, "what is dirty is not forgotten");
}

/// Else each write would look at all dirty blocks.
#[test]
fn ages_of_many_dirty_blocks_are_not_gone_through_at_each_write() {
    let (mut ages, now) = (Ages::default(), Instant::now());
    let looked = std::cell::Cell::new(0);
    for index in 0..3 * Ages::SPARE {
        let at = index as u64;
        ages.note(now, at, at, index + 1, |_, _| {
            looked.set(looked.get() + 1);
            true
        });
    }
    assert_eq!(looked.get(), 0);
}

#[test]
fn a_failure_keeps_the_block_and_is_tried_again_later() {
    let (mut dirt, now) = marked(&[7, 8]);
    dirt.carry(7);
    let change = dirt.fail(7, now).expect("carried");
    assert!(change.frees(2), "who waited is told");
    assert!(dirt.has(7) && dirt.is_failing());
    assert_eq!(dirt.next_run(true, 9, |_| true), Some(8..9));
    dirt.age(now + RETRY_INTERVAL / 2, AGE);
    assert!(
        !dirt.is_behind(),
        "a failing store is not asked all the time"
    );
    dirt.age(now + RETRY_INTERVAL, AGE);
    assert_eq!(dirt.catch_up(9), 1);
    assert_eq!(dirt.next_run(false, 9, |_| true), Some(7..9));
    dirt.audit();
}

#[test]
fn blocks_become_due_by_age() {
    let (mut dirt, now) = marked(&[7]);
    dirt.mark(9, now + AGE / 2);
    dirt.age(now + AGE, AGE);
    assert_eq!(dirt.next_run(false, 9, |_| true), Some(7..8));
    dirt.carry(7);
    assert_eq!(dirt.next_run(false, 9, |_| true), None);
    dirt.mark(7, now + AGE);
    dirt.age(now + 2 * AGE, AGE);
    dirt.audit();
    assert_eq!(dirt.next_run(false, 9, |_| true), Some(9..10));
    dirt.carry(9);
    drop(dirt.saved(7));
    let again = dirt.next_run(false, 9, |_| true);
    assert_eq!(again, Some(7..8), "too old while it was carried");
}

#[test]
fn unframed_is_kept_until_the_store_has_it() {
    let (mut dirt, _) = marked(&[7]);
    dirt.evict(7, IoBuf::copy_of(&[1]), Some(4));
    assert_eq!(dirt.next_run(false, 9, |_| true), Some(7..8), "at once");
    dirt.carry(7);
    assert_eq!(dirt.unframed(7).expect("kept").as_slice(), [1]);
    let (_, cleaned) = dirt.saved(7).expect("carried");
    let cleaned = cleaned.expect("clean");
    assert!(cleaned.evicted_under == Some(4) && cleaned.unframed.is_some());
    assert_eq!(dirt.unframed_blocks(), 0);
    let (mut dirt, _) = marked(&[7]);
    dirt.evict(7, IoBuf::copy_of(&[1]), Some(4));
    assert!(dirt.adopt(7).is_some() && dirt.adopt(7).is_none());
    assert!(dirt.settle(7).expect("dirty").1.evicted_under.is_none());
    dirt.audit();
}

/// `[dirty, carried, unframed]`, and whether some failed and some move.
fn counts(dirt: &Dirt) -> ([u64; 3], bool, bool) {
    let counts = [dirt.len(), dirt.carried(), dirt.unframed_blocks()];
    (counts, dirt.is_failing(), dirt.moves())
}

#[test]
fn blocks_are_counted_as_what_they_are() {
    let (mut dirt, now) = marked(&[]);
    assert_eq!(counts(&dirt), ([0, 0, 0], false, false));
    dirt.mark(7, now);
    assert_eq!(counts(&dirt), ([1, 0, 0], false, true));
    [3, 4, 5, 7].iter().for_each(|&index| dirt.mark(index, now));
    dirt.evict(7, IoBuf::copy_of(&[1]), None);
    dirt.evict(5, IoBuf::copy_of(&[1]), None);
    assert_eq!(counts(&dirt), ([4, 0, 2], false, true));
    dirt.carry(3);
    dirt.carry(4);
    dirt.carry(5);
    assert_eq!(counts(&dirt), ([4, 3, 2], false, true));
    dirt.fail(3, now).expect("carried");
    assert_eq!(counts(&dirt), ([4, 2, 2], true, true));
    drop(dirt.saved(4));
    drop(dirt.saved(5));
    assert_eq!(counts(&dirt), ([2, 0, 1], true, true));
    drop(dirt.settle(7));
    assert_eq!(counts(&dirt), ([1, 0, 0], true, false), "nothing moves");
    drop(dirt.settle(3));
    assert_eq!(counts(&dirt), ([0, 0, 0], false, false));
}

#[test]
fn dirty_blocks_of_a_range_are_found_in_order() {
    let (dirt, _) = marked(&[9, 3, 5, 4]);
    assert_eq!((dirt.count(0..3), dirt.count(3..9)), (0, 3));
    assert_eq!(dirt.within(3..10, u64::MAX), [3, 4, 5, 9]);
    assert_eq!(dirt.within(4..9, 9), [4, 5]);
    assert_eq!(dirt.within(3..10, 2), [3, 4]);
    assert!(dirt.within(5..5, 9).is_empty());
    assert!(dirt.within(6..9, 9).is_empty() && dirt.within(3..10, 0).is_empty());
    #[expect(clippy::reversed_empty_ranges, reason = "callers may ask for one")]
    let reversed = dirt.within(9..3, 9);
    assert!(reversed.is_empty());
}

#[test]
fn what_goes_before_it_is_written_frees_only_flushes_that_waited_for_it() {
    let (mut dirt, now) = marked(&[7, 8]);
    let flushed = dirt.stamp();
    assert_eq!(flushed, 2, "one for each write");
    dirt.mark(9, now);
    let (change, _) = dirt.settle(9).expect("dirty");
    assert!(!change.frees(flushed) && change.frees(dirt.stamp()));
    let (change, _) = dirt.settle(7).expect("dirty");
    assert!(change.frees(flushed) && !change.frees(0));
    // The newer of two writes is not carried.
    dirt.carry(8);
    dirt.mark(8, now);
    let (change, _) = dirt.settle(8).expect("dirty");
    assert!(change.frees(flushed));
}

#[test]
fn a_block_that_fails_again_at_once_is_not_tried_again_by_the_same_flush() {
    let (mut dirt, now) = marked(&[7]);
    dirt.carry(7);
    dirt.fail(7, now).expect("carried");
    dirt.hurry();
    assert_eq!(dirt.catch_up(1), 1);
    assert_eq!(dirt.next_run(false, 9, |_| true), Some(7..8));
    dirt.carry(7);
    dirt.fail(7, now).expect("carried");
    while dirt.is_behind() {
        dirt.catch_up(1);
    }
    assert_eq!(dirt.next_run(true, 9, |_| true), None);
    assert!(dirt.is_failing());
}

#[test]
fn data_beside_the_cache_is_kept_for_a_block_with_or_without_a_slot() {
    let new = || IoBuf::copy_of(&[1]);
    let (mut dirt, _) = marked(&[7, 8]);
    assert!(dirt.hold(9, new).is_none(), "clean");
    for held in [1, 2] {
        let data = dirt.hold(7, new).expect("dirty").as_mut_slice();
        assert_eq!(data, [held], "made once");
        data[0] += 1;
    }
    assert_eq!(dirt.unframed(7).expect("kept").as_slice(), [3]);
    assert!(dirt.unframed(8).is_none() && dirt.unframed_mut(8).is_none());
    dirt.unframed_mut(7).expect("kept").as_mut_slice()[0] = 9;
    assert_eq!(dirt.unframed_blocks(), 1);
    assert_eq!(dirt.next_run(false, 9, |_| true), None);
    dirt.lose_slot(7, Some(4));
    assert_eq!(dirt.next_run(false, 1, |_| true), Some(7..8), "at once");
    dirt.regain_slot(7);
    let (_, cleaned) = dirt.settle(7).expect("dirty");
    assert_eq!(cleaned.evicted_under, None, "it is back");
    assert_eq!(cleaned.unframed.expect("kept").as_slice(), [9]);
    dirt.audit();
}
