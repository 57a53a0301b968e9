//! Files that are written back, but for what makes them grow.

use crate::common::{self, Careless, ManualStore, take};
use crate::lower::{CLIENT, add, append, now, read, start, step, writing_back};
use futae_engine::{Engine, IoBuf, Operation};
use futae_policy::{Prng, VolumeId};
use futae_testkit::wait::eventually;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A file of which a part is dirty, and nothing else is under way.
fn dirtied(length: usize, offset: u64, data: &[u8]) -> (Arc<Engine>, Arc<ManualStore>, VolumeId) {
    let long = Duration::from_secs(3600);
    let (engine, lower) = (
        writing_back("lru", 16, long),
        ManualStore::growing(vec![1; length]),
    );
    let volume = add(&engine, &lower);
    now(&engine, volume, read(0, length as u64));
    now(&engine, volume, common::write(offset, data));
    assert_eq!(lower.bytes(), vec![1; length], "written through");
    assert!(engine.dirty_blocks() > 0);
    (engine, lower, volume)
}

#[test]
fn what_makes_a_file_grow_is_written_through_and_the_rest_back() {
    let (engine, lower, volume) = dirtied(5000, 4500, &[2; 500]);
    now(&engine, volume, append(&[3; 100]));
    let mut wanted = [&vec![1; 4500][..], &[2; 500], &[3; 100]].concat();
    assert_eq!(lower.bytes().len(), 5100);
    assert_eq!(now(&engine, volume, read(0, 9000)), wanted);
    // The block that is dirty gets longer, and what is between is zero.
    now(&engine, volume, common::write(6000, &[4; 10]));
    wanted.resize(6000, 0);
    wanted.extend([4; 10]);
    assert_eq!(now(&engine, volume, read(0, 9000)), wanted);
    assert_eq!(now(&engine, volume, Operation::Settle), []);
    assert_eq!((lower.bytes(), engine.dirty_blocks()), (wanted, 0));
    engine.audit();
}

#[test]
fn a_dirty_block_beside_the_cache_grows_with_its_file() {
    let long = Duration::from_secs(3600);
    let engine = writing_back("lru", 4, long);
    let (lower, other) = (
        ManualStore::growing(vec![1; 100]),
        ManualStore::growing(vec![9; 16_384]),
    );
    let (volume, other_volume) = (add(&engine, &lower), add(&engine, &other));
    // Its frame has held something longer.
    now(&engine, other_volume, read(0, 16_384));
    now(&engine, volume, read(0, 100));
    now(&engine, volume, common::write(50, &[2; 10]));
    lower.hold(true);
    let grown = start(&engine, volume, common::write(300, &[3; 10]));
    now(&engine, other_volume, read(0, 16_384));
    assert_eq!((engine.dirty_blocks(), lower.held()), (1, 1), "evicted");
    lower.release(0, false);
    take(&grown).expect("answered").expect("well");
    while lower.held() > 0 {
        lower.release(0, false);
    }
    lower.hold(false);
    let mut wanted = [&[1; 50][..], &[2; 10], &[1; 40]].concat();
    wanted.resize(300, 0);
    wanted.extend([3; 10]);
    assert_eq!(now(&engine, volume, read(0, 4096)), wanted);
    assert_eq!(lower.bytes(), wanted);
    engine.audit();
}

#[test]
fn a_change_sees_what_was_written_and_a_cut_forgets_it() {
    let (engine, lower, volume) = dirtied(40_960, 8192, &[2; 8192]);
    let seen = engine.change(volume, 10_000, 10, || lower.bytes());
    let seen = seen.expect("changed");
    assert_eq!(seen[8192..16_384], [2; 8192]);
    now(&engine, volume, common::write(20_480, &[3; 8192]));
    now(&engine, volume, common::write(100, &[4; 10]));
    let writes = engine.status().store_writes;
    let cut = || lower.set(|inside| inside.bytes.truncate(22_000));
    engine.change_size(volume, 22_000, cut).expect("cut");
    // The first block is as dirty as it was, and so is the one that was cut.
    assert_eq!(
        (engine.dirty_blocks(), engine.status().store_writes),
        (2, writes)
    );
    assert_eq!(now(&engine, volume, read(20_000, 9000))[480..], [3; 1520]);
    let more = || lower.set(|inside| inside.bytes.resize(30_000, 0));
    engine.change_size(volume, 30_000, more).expect("longer");
    let bytes = now(&engine, volume, read(20_480, 9000));
    assert!(bytes[..1520] == [3; 1520] && bytes[1520..].iter().all(|&byte| byte == 0));
    now(&engine, volume, Operation::Settle);
    assert_eq!(lower.bytes(), now(&engine, volume, read(0, 40_960)));
    engine.audit();
}

#[test]
fn what_cannot_be_written_back_is_told_to_a_change_and_kept() {
    let (engine, lower, volume) = dirtied(8192, 0, &[2; 100]);
    lower.hold(true);
    let changer = {
        let engine = Arc::clone(&engine);
        thread::spawn(move || engine.change(volume, 0, u64::MAX, || panic!("it has run")))
    };
    eventually("the write-back is held", || lower.held() > 0);
    let waiting = start(&engine, volume, read(0, 100));
    assert!(take(&waiting).is_none(), "read while it is changed");
    lower.release(0, true);
    changer.join().expect("it ends").expect_err("not written");
    assert_eq!(take(&waiting).expect("answered").expect("well"), [2; 100]);
    lower.hold(false);
    assert_eq!(engine.dirty_blocks(), 1);
    let told = start(&engine, volume, Operation::Settle);
    take(&told).expect("answered").expect_err("told once more");
    now(&engine, volume, Operation::Settle);
    assert_eq!(lower.bytes()[..100], [2; 100]);
    engine.audit();
}

#[test]
fn a_volume_that_is_removed_takes_what_is_dirty_with_it() {
    let (engine, lower, volume) = dirtied(8192, 0, &[2; 100]);
    engine.remove_volume(volume);
    assert_eq!(engine.dirty_blocks(), 0);
    assert_eq!(lower.bytes(), [1; 8192]);
    let new = ManualStore::growing(vec![3; 8192]);
    assert_eq!(add(&engine, &new), volume);
    assert_eq!(now(&engine, volume, read(0, 8192)), [3; 8192]);
    engine.audit();
}

#[test]
fn a_write_that_waits_for_room_goes_on_when_a_failure_makes_it() {
    let (engine, lower) = (
        writing_back("lru", 4, Duration::from_secs(3600)),
        ManualStore::growing(vec![1; 16_384]),
    );
    let volume = add(&engine, &lower);
    now(&engine, volume, read(0, 16_384));
    now(&engine, volume, common::write(0, &[2; 4096]));
    lower.hold(true);
    let forced = Operation::Write {
        offset: 0,
        data: IoBuf::copy_of(&[3; 100]),
        fua: true,
    };
    let forced = start(&engine, volume, forced);
    // Half of the cache may be dirty, and the dirty block cannot be written back meanwhile.
    let waiting = start(&engine, volume, common::write(4096, &[4; 8192]));
    assert_eq!((engine.dirty_blocks(), lower.held()), (1, 1));
    assert_eq!(engine.status().throttled_writes, 1);
    // Another program has cut the file, so its dirty block is dropped.
    lower.set(|inside| inside.bytes.clear());
    lower.hold(false);
    lower.release(0, true);
    take(&forced).expect("answered").expect_err("it failed");
    let answer = take(&waiting).expect("it waits for ever");
    answer.expect("written");
    now(&engine, volume, Operation::Settle);
    assert_eq!(lower.bytes()[4096..], [4; 8192]);
    engine.audit();
}

/// Ends what the stores are asked for a little later and in any order, until it is dropped.
struct Releaser {
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Releaser {
    fn start(lowers: Vec<Arc<ManualStore>>, seed: u64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        for lower in &lowers {
            lower.hold(true);
        }
        let thread = thread::spawn(move || {
            let mut dice = Prng::new(seed);
            while !is_over.load(Ordering::Acquire) {
                let mut is_idle = true;
                for lower in &lowers {
                    is_idle &= dice.below(3) == 0 || !lower.release_any(&mut dice);
                }
                if is_idle {
                    thread::yield_now();
                }
            }
        });
        Self {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Releaser {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let ended = self.thread.take().map(thread::JoinHandle::join);
        assert!(thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

#[test]
fn files_that_are_written_back_are_equal_to_plain_arrays_under_every_policy() {
    equal_to_arrays(&["lru", "fix", "arc", "cost", "s3-fifo"], false);
}

#[test]
fn they_are_where_somebody_else_holds_the_blocks() {
    equal_to_arrays(&["sieve", "fix", "s3-fifo", "lfu-history(review=2)"], true);
}

fn equal_to_arrays(policies: &[&str], is_elsewhere: bool) {
    for &policy in policies {
        for slots in [2, 5, 12, 40] {
            let engine = writing_back(policy, slots, Duration::from_millis(2));
            if is_elsewhere {
                let volumes: Vec<_> = (0..3).map(VolumeId).collect();
                engine.keep_elsewhere(Careless::new(&volumes, 20, slots.into()));
            }
            engine.set_step_blocks(if slots == 40 { 1024 } else { 2 });
            let mut dice = Prng::new(slots.into());
            let lowers: Vec<_> = (0..3).map(|_| ManualStore::growing(Vec::new())).collect();
            let mut files: Vec<_> = lowers
                .iter()
                .map(|lower| (add(&engine, lower), Arc::clone(lower), Vec::new()))
                .collect();
            let _releaser = Releaser::start(lowers, slots.into());
            for _ in 0..700 {
                let which = dice.below(3) as usize;
                let (volume, lower, model) = &mut files[which];
                step(&engine, lower, *volume, model, &mut dice);
                assert_eq!(lower.bytes().len(), model.len(), "{policy}: the size");
                engine.audit();
                if dice.below(30) == 0 {
                    let settled = engine.wait(*volume, CLIENT, Operation::Settle);
                    settled.expect("settled");
                    assert!(lower.bytes() == *model, "{policy}: the store differs");
                }
                if dice.below(100) == 0 {
                    engine.remove_volume(*volume);
                    lower.set(|inside| inside.bytes.clear());
                    *volume = add(&engine, lower);
                    model.clear();
                }
            }
        }
    }
}

/// A file of 100 bytes whose last block is dirty, in a frame that has held 0xFF of another file.
fn behind_another_file() -> (Arc<Engine>, Arc<ManualStore>, VolumeId) {
    let engine = writing_back("lru", 4, Duration::from_secs(3600));
    let (other, lower) = (
        ManualStore::growing(vec![0xFF; 16_384]),
        ManualStore::growing(vec![1; 100]),
    );
    let (other_volume, volume) = (add(&engine, &other), add(&engine, &lower));
    now(&engine, other_volume, read(0, 16_384));
    now(&engine, volume, read(0, 100));
    now(&engine, volume, common::write(0, &[2; 10]));
    assert_eq!(engine.dirty_blocks(), 1);
    (engine, lower, volume)
}

/// A write behind byte 100 that fails once the store has 1000 bytes of it, as on a full disk.
fn fails_in_the_middle(engine: &Arc<Engine>, lower: &Arc<ManualStore>, volume: VolumeId) {
    lower.hold(true);
    let grows = start(engine, volume, common::write(100, &[3; 8000]));
    assert_eq!(lower.held(), 1);
    lower.set(|inside| inside.bytes.extend([3; 1000]));
    lower.hold(false);
    lower.release(0, true);
    take(&grows).expect("answered").expect_err("no space");
}

/// Before byte 100 there is what was written, behind it nothing but what the failed write wrote, or zeroes; below
/// as above.
fn holds_nothing_of_others(engine: &Arc<Engine>, lower: &Arc<ManualStore>, volume: VolumeId) {
    let seen = now(engine, volume, read(0, 9000));
    assert_eq!(seen.len(), 1100);
    assert_eq!(seen[..100], [[2; 10].as_slice(), &[1; 90]].concat());
    assert!(seen[100..].iter().all(|byte| matches!(byte, 0 | 3)));
    now(engine, volume, Operation::Settle);
    assert!(lower.bytes() == seen);
}

#[test]
fn a_growing_write_that_fails_shows_nothing_of_another_file() {
    let (engine, lower, volume) = behind_another_file();
    fails_in_the_middle(&engine, &lower, volume);
    holds_nothing_of_others(&engine, &lower, volume);
}

#[test]
fn what_was_cut_off_does_not_come_back_when_a_growing_write_fails() {
    let (engine, lower, volume) = dirtied(4096, 0, &[2; 10]);
    let cut = || lower.set(|inside| inside.bytes.truncate(100));
    engine.change_size(volume, 100, cut).expect("cut");
    assert_eq!(engine.dirty_blocks(), 1);
    fails_in_the_middle(&engine, &lower, volume);
    holds_nothing_of_others(&engine, &lower, volume);
}

#[test]
fn the_first_of_two_growing_writes_fails_and_shows_nothing_of_another_file() {
    let (engine, lower, volume) = behind_another_file();
    lower.hold(true);
    let first = start(&engine, volume, common::write(100, &[3; 3996]));
    let second = start(&engine, volume, common::write(4096, &[4; 100]));
    lower.hold(false);
    lower.release(1, false);
    lower.release(0, true);
    take(&first).expect("answered").expect_err("failed");
    take(&second).expect("answered").expect("well");
    let seen = now(&engine, volume, read(0, 9000));
    assert_eq!(seen.len(), 4196);
    assert!(!seen.contains(&0xFF));
}
