//! Files that are written through.

use crate::common::{self, ManualStore, take};
use crate::lower::{add, append, engine, now, read, start, step};
use futae_engine::{SetupError, Store};
use futae_policy::{Class, Prng};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[test]
fn reads_end_where_the_file_ends() {
    let (engine, lower) = (engine("lru", 8), ManualStore::growing(vec![7; 5000]));
    let volume = add(&engine, &lower);
    for _ in 0..2 {
        assert_eq!(now(&engine, volume, read(4000, 9000)), vec![7; 1000]);
        assert_eq!(now(&engine, volume, read(5000, 1)), []);
        assert_eq!(now(&engine, volume, read(1 << 40, 4096)), []);
    }
}

#[test]
fn files_have_their_latencies_together() {
    let engine = engine("lru", 8);
    let files = [3000, 5000].map(|bytes| ManualStore::growing(vec![7; bytes]));
    for lower in &files {
        let volume = add(&engine, lower);
        now(&engine, volume, read(0, 1000));
        now(&engine, volume, read(0, 1000));
        let of_requests = engine.latencies(volume);
        assert!(Arc::ptr_eq(&of_requests, &engine.tree_latencies()));
    }
    let status = engine.status();
    assert_eq!(status.volumes.len(), 0);
    let of_store = status.tree_store_latencies.iter();
    let counts: Vec<_> = of_store.map(|it| (&*it.operation, it.count())).collect();
    assert_eq!(counts, [("read", 2)], "the misses");
}

#[test]
fn what_lies_between_the_old_end_and_a_write_is_zero_whatever_the_frame_held() {
    let engine = engine("lru", 1);
    let (other, lower) = (
        ManualStore::growing(vec![0xFF; 4096]),
        ManualStore::growing(vec![1; 100]),
    );
    let (other_volume, volume) = (add(&engine, &other), add(&engine, &lower));
    // The frame is full of something else before the short file is in it.
    assert_eq!(now(&engine, other_volume, read(0, 4096)), vec![0xFF; 4096]);
    assert_eq!(now(&engine, volume, read(0, 4096)), vec![1; 100]);
    now(&engine, volume, common::write(300, &[2; 10]));
    let wanted = [&[1; 100][..], &[0; 200], &[2; 10]].concat();
    assert_eq!(now(&engine, volume, read(0, 4096)), wanted);
    assert_eq!(lower.bytes(), wanted);
    // And so where the growing write begins in another block.
    now(&engine, volume, common::write(5000, &[3; 10]));
    let wanted = [&wanted[..], &vec![0; 4690][..], &[3; 10]].concat();
    assert_eq!(now(&engine, volume, read(0, 9000)), wanted);
    engine.audit();
}

#[test]
fn what_is_read_behind_a_growing_write_waits_for_it() {
    let (engine, lower) = (engine("lru", 8), ManualStore::growing(vec![1; 100]));
    let volume = add(&engine, &lower);
    lower.hold(true);
    let written = start(&engine, volume, common::write(6000, &[2; 50]));
    let seen = start(&engine, volume, read(50, 9000));
    lower.hold(false);
    assert!(take(&seen).is_none() && take(&written).is_none());
    lower.release(0, false);
    assert_eq!(take(&written).expect("answered").expect("well"), []);
    let wanted = [&[1; 50][..], &vec![0; 5900], &[2; 50]].concat();
    assert_eq!(take(&seen).expect("answered").expect("well"), wanted);
}

/// The store may answer a read of a block before the write to another part of it, and the other way round.
#[test]
fn a_read_waits_for_a_write_to_another_part_of_its_block() {
    for (bytes, written, wanted) in [
        (8192, (5000, 100), (5100, 100)),
        (8192, (4096, 4096), (8000, 100)),
        (5000, (4900, 50), (4990, 100)),
    ] {
        let (engine, lower) = (engine("lru", 8), ManualStore::growing(vec![1; bytes]));
        let volume = add(&engine, &lower);
        lower.hold(true);
        let (offset, length) = written;
        let write = start(&engine, volume, common::write(offset, &vec![2; length]));
        let seen = start(&engine, volume, read(wanted.0, wanted.1));
        assert_eq!(lower.held(), 1, "the write alone: {written:?}, {wanted:?}");
        let free = start(&engine, volume, read(0, 4096));
        assert_eq!(lower.held(), 2, "another block is free");
        lower.release_all();
        for answer in [write, seen, free] {
            take(&answer).expect("answered").expect("well");
        }
    }
}

#[test]
fn appended_data_has_a_place_each() {
    let (engine, lower) = (engine("lru", 8), ManualStore::growing(vec![]));
    let volume = add(&engine, &lower);
    lower.hold(true);
    let answers: Vec<_> = (1..=5u8)
        .map(|byte| start(&engine, volume, append(&vec![byte; 1000])))
        .collect();
    while lower.held() > 0 {
        lower.release(0, false);
    }
    for answer in answers {
        take(&answer).expect("answered").expect("well");
    }
    let wanted: Vec<u8> = (1..=5).flat_map(|byte| vec![byte; 1000]).collect();
    assert_eq!(lower.bytes(), wanted);
    lower.hold(false);
    assert_eq!(now(&engine, volume, read(0, 9000)), wanted);
}

#[test]
fn a_failed_growing_write_leaves_the_size_that_the_store_has() {
    let (engine, lower) = (engine("lru", 8), ManualStore::growing(vec![1; 100]));
    let volume = add(&engine, &lower);
    lower.hold(true);
    let written = start(&engine, volume, common::write(5000, &[2; 50]));
    lower.release(0, true);
    assert!(take(&written).expect("answered").is_err());
    lower.hold(false);
    assert_eq!(now(&engine, volume, read(0, 9000)), vec![1; 100]);
    now(&engine, volume, append(&[3; 10]));
    let wanted = [&[1; 100][..], &[3; 10]].concat();
    assert_eq!(now(&engine, volume, read(0, 9000)), wanted);
    engine.audit();
}

#[test]
fn a_change_waits_for_what_is_under_way_and_holds_up_what_comes() {
    let (engine, lower) = (engine("lru", 8), ManualStore::growing(vec![1; 8192]));
    let volume = add(&engine, &lower);
    lower.hold(true);
    let before = start(&engine, volume, read(0, 4096));
    let changer = {
        let (engine, lower) = (Arc::clone(&engine), Arc::clone(&lower));
        thread::spawn(move || {
            let work = || lower.set(|it| it.bytes.fill(2));
            engine.change(volume, 0, 8192, work).expect("changed");
        })
    };
    // Time for a change that does not wait to go wrong.
    thread::sleep(Duration::from_millis(50));
    assert!(!changer.is_finished(), "a read is under way");
    let after = start(&engine, volume, read(0, 4096));
    lower.hold(false);
    lower.release(0, false);
    changer.join().expect("changed");
    assert_eq!(take(&before).expect("answered").expect("well"), [1; 4096]);
    let after = take(&after).expect("answered").expect("well");
    assert!(after == [1; 4096] || after == [2; 4096], "torn");
    assert_eq!(now(&engine, volume, read(0, 9000)), vec![2; 8192]);
}

#[test]
fn a_read_of_a_file_that_became_longer_has_nothing_that_is_not_the_files() {
    let (engine, lower) = (engine("lru", 8), ManualStore::growing(vec![1; 100]));
    let volume = add(&engine, &lower);
    lower.hold(true);
    let before = start(&engine, volume, read(0, 4096));
    // Behind the block that is being read.
    let work = || lower.set(|it| it.bytes.resize(9000, 0));
    engine.change(volume, 8192, 808, work).expect("changed");
    let after = start(&engine, volume, read(0, 4096));
    lower.hold(false);
    lower.release_all();
    assert_eq!(take(&before).expect("answered").expect("well"), [1; 100]);
    let wanted = [&[1; 100][..], &[0; 3996]].concat();
    assert!(take(&after).expect("answered").expect("well") == wanted);
    assert!(now(&engine, volume, read(0, 4096)) == wanted);
    engine.audit();
}

/// The policy asks for a block by itself while a read of it from before is under way.
#[test]
fn a_loaded_block_of_a_file_that_became_longer_has_nothing_of_others() {
    let engine = engine("lru", 1);
    let (lower, other) = (
        ManualStore::growing(vec![1; 100]),
        ManualStore::growing(vec![0xFF; 4096]),
    );
    let (volume, other_volume) = (add(&engine, &lower), add(&engine, &other));
    lower.hold(true);
    let before = start(&engine, volume, read(0, 4096));
    // The only slot is another file's meanwhile, and then free.
    assert_eq!(now(&engine, other_volume, read(0, 4096)), vec![0xFF; 4096]);
    engine
        .change(other_volume, 0, 4096, || ())
        .expect("changed");
    let work = || lower.set(|it| it.bytes.resize(9000, 0));
    engine.change(volume, 8192, 808, work).expect("changed");
    let policy = "const".parse().expect("a policy");
    assert!(engine.change_policy(&policy).expect("it has that"));
    lower.hold(false);
    lower.release_all();
    assert_eq!(take(&before).expect("answered").expect("well"), [1; 100]);
    assert_eq!(engine.resident_blocks(), 1, "the block of the policy");
    let wanted = [&[1; 100][..], &[0; 3996]].concat();
    assert!(now(&engine, volume, read(0, 4096)) == wanted);
    engine.audit();
}

#[test]
fn a_removed_volume_leaves_nothing_to_the_next_of_its_number() {
    let (engine, old) = (engine("lru", 8), ManualStore::growing(vec![1; 8192]));
    let volume = add(&engine, &old);
    assert_eq!(now(&engine, volume, read(0, 8192)), vec![1; 8192]);
    engine.remove_volume(volume);
    assert_eq!(engine.status().resident_blocks, 0);
    let new = ManualStore::growing(vec![2; 4096]);
    assert_eq!(add(&engine, &new), volume, "the number is free");
    assert_eq!(now(&engine, volume, read(0, 8192)), vec![2; 4096]);
    engine.audit();
}

#[test]
fn there_is_an_end_to_volumes_and_removing_one_makes_room() {
    let (engine, lower) = (engine("lru", 8), ManualStore::growing(vec![1; 10]));
    let first = add(&engine, &lower);
    let add_more = || {
        let below = Arc::clone(&lower) as Arc<dyn Store>;
        engine.add_growing_volume("a file", below, Class::NORMAL)
    };
    let mut volumes = 1;
    let refused = loop {
        match add_more() {
            Ok(_) => volumes += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(volumes, u16::MAX, "files that store it count to this");
    assert!(matches!(refused, SetupError::TooManyVolumes), "{refused}");
    engine.remove_volume(first);
    assert_eq!(add_more().expect("there is room"), first);
}

#[test]
fn several_files_are_equal_to_plain_arrays_under_every_policy() {
    for policy in ["lru", "fix", "arc", "directory", "s3-fifo"] {
        for slots in [1, 3, 9, 40] {
            let engine = engine(policy, slots);
            engine.set_step_blocks(if slots == 40 { 1024 } else { 2 });
            let mut dice = Prng::new(slots.into());
            let mut files: Vec<_> = (0..3)
                .map(|_| {
                    let lower = ManualStore::growing(Vec::new());
                    (add(&engine, &lower), lower, Vec::new())
                })
                .collect();
            for _ in 0..700 {
                let which = dice.below(3) as usize;
                let (volume, lower, model) = &mut files[which];
                step(&engine, lower, *volume, model, &mut dice);
                assert!(lower.bytes() == *model, "{policy}: the store differs");
                engine.audit();
                if dice.below(100) == 0 {
                    engine.remove_volume(*volume);
                    *lower = ManualStore::growing(Vec::new());
                    *volume = add(&engine, lower);
                    model.clear();
                }
            }
        }
    }
}
