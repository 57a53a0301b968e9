//! Volumes that come, go, grow and are cut: the files of a tree.

mod common;

use common::{BLOCK, broken, take};
use futae_engine::{
    ClientId, Engine, EngineOptions, HandDown, IoBuf, IoError, Operation, Request, SetupError,
    Store, StoreDone, StoreOperation, WriteBackOptions,
};
use futae_policy::{Class, Prng, VolumeId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const CLIENT: ClientId = ClientId(0);

/// A file in memory: writes beyond its end make it grow, and reads beyond it fail.
#[derive(Default)]
struct Lower(Mutex<Inside>);

#[derive(Default)]
struct Inside {
    bytes: Vec<u8>,
    hold: bool,
    held: Vec<(StoreOperation, StoreDone)>,
}

impl Lower {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        let lower = Self::default();
        lower.set(|inside| inside.bytes = bytes);
        Arc::new(lower)
    }

    fn set<T>(&self, change: impl FnOnce(&mut Inside) -> T) -> T {
        change(&mut self.0.lock().expect("the store"))
    }

    fn bytes(&self) -> Vec<u8> {
        self.set(|inside| inside.bytes.clone())
    }

    fn hold(&self, hold: bool) {
        self.set(|inside| inside.hold = hold);
    }

    fn held(&self) -> usize {
        self.set(|inside| inside.held.len())
    }

    /// Ends the operation that has been held longest, well or badly.
    fn release(&self, well: bool) {
        let (operation, done) = self.set(|inside| inside.held.remove(0));
        done(if well {
            self.perform(operation)
        } else {
            Err(broken())
        });
    }

    /// Ends one of the operations that are held, if there is any.
    fn release_any(&self, dice: &mut Prng) -> bool {
        let held = self.set(|inside| {
            let held = inside.held.len() as u64;
            (held > 0).then(|| inside.held.remove(dice.below(held) as usize))
        });
        let Some((operation, done)) = held else {
            return false;
        };
        done(self.perform(operation));
        true
    }

    fn perform(&self, operation: StoreOperation) -> Result<IoBuf, IoError> {
        self.set(|inside| match operation {
            StoreOperation::Read { offset, mut buffer } => {
                let start = offset as usize;
                let there = inside.bytes.get(start..start + buffer.len());
                buffer
                    .as_mut_slice()
                    .copy_from_slice(there.ok_or_else(broken)?);
                Ok(buffer)
            }
            StoreOperation::Write { offset, buffer, .. } => {
                put(&mut inside.bytes, offset as usize, buffer.as_slice());
                Ok(buffer)
            }
            StoreOperation::Flush => Ok(IoBuf::new(0)),
            StoreOperation::Trim { .. } | StoreOperation::WriteZeroes { .. } => Err(broken()),
        })
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

impl Store for Lower {
    fn size_bytes(&self) -> u64 {
        self.set(|inside| inside.bytes.len() as u64)
    }

    fn describe(&self) -> String {
        "a file in memory".to_owned()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, _sequence: u64, operation: StoreOperation, done: StoreDone) {
        let operation = self.set(|inside| {
            if !inside.hold {
                return Some((operation, done));
            }
            inside.held.push((operation, done));
            None
        });
        if let Some((operation, done)) = operation {
            done(self.perform(operation));
        }
    }
}

fn engine(policy: &str, slots: u32) -> Arc<Engine> {
    engine_that(policy, slots, None)
}

/// One that keeps written blocks: up to half of the cache, and for so long.
fn writing_back(policy: &str, slots: u32, dirty_age_max: Duration) -> Arc<Engine> {
    let how = WriteBackOptions {
        dirty_max: 0.5,
        dirty_age_max,
    };
    engine_that(policy, slots, Some(how))
}

fn engine_that(policy: &str, slots: u32, write_back: Option<WriteBackOptions>) -> Arc<Engine> {
    let options = EngineOptions {
        block_bytes: BLOCK,
        capacity_blocks: slots,
        policy: policy.parse().expect("a policy"),
        seed: 1,
        hand_down: HandDown::Nothing,
        decision_log: None,
        write_back,
    };
    Engine::new(&options).expect("an engine")
}

fn add(engine: &Engine, lower: &Arc<Lower>) -> VolumeId {
    let below = Arc::clone(lower) as Arc<dyn Store>;
    let volume = engine.add_growing_volume("a file", below, Class::NORMAL);
    volume.expect("a volume")
}

fn start(engine: &Arc<Engine>, volume: VolumeId, operation: Operation) -> common::Answer {
    let answer = common::Answer::default();
    let slot = Arc::clone(&answer);
    engine.submit(Request {
        volume,
        client: CLIENT,
        sequence: 0,
        operation,
        done: Box::new(move |result: Result<IoBuf, IoError>| {
            let result = result.map(|data| data.as_slice().to_vec());
            let before = slot.lock().expect("the answer").replace(result);
            assert!(before.is_none(), "answered twice");
        }),
    });
    answer
}

fn read(offset: u64, length: u64) -> Operation {
    Operation::Read { offset, length }
}

fn append(data: &[u8]) -> Operation {
    let data = IoBuf::copy_of(data);
    Operation::Append { data, fua: false }
}

/// The result of what nothing holds up.
fn now(engine: &Arc<Engine>, volume: VolumeId, operation: Operation) -> Vec<u8> {
    let answer = take(&start(engine, volume, operation));
    answer.expect("answered").expect("well")
}

#[test]
fn reads_end_where_the_file_ends() {
    let (engine, lower) = (engine("lru", 8), Lower::new(vec![7; 5000]));
    let volume = add(&engine, &lower);
    for _ in 0..2 {
        assert_eq!(now(&engine, volume, read(4000, 9000)), vec![7; 1000]);
        assert_eq!(now(&engine, volume, read(5000, 1)), []);
        assert_eq!(now(&engine, volume, read(1 << 40, 4096)), []);
    }
}

#[test]
fn what_lies_between_the_old_end_and_a_write_is_zero_whatever_the_frame_held() {
    let engine = engine("lru", 1);
    let (other, lower) = (Lower::new(vec![0xFF; 4096]), Lower::new(vec![1; 100]));
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
    let (engine, lower) = (engine("lru", 8), Lower::new(vec![1; 100]));
    let volume = add(&engine, &lower);
    lower.hold(true);
    let written = start(&engine, volume, common::write(6000, &[2; 50]));
    let seen = start(&engine, volume, read(50, 9000));
    lower.hold(false);
    assert!(take(&seen).is_none() && take(&written).is_none());
    lower.release(true);
    assert_eq!(take(&written).expect("answered").expect("well"), []);
    let wanted = [&[1; 50][..], &vec![0; 5900], &[2; 50]].concat();
    assert_eq!(take(&seen).expect("answered").expect("well"), wanted);
}

#[test]
fn appended_data_has_a_place_each() {
    let (engine, lower) = (engine("lru", 8), Lower::new(vec![]));
    let volume = add(&engine, &lower);
    lower.hold(true);
    let answers: Vec<_> = (1..=5u8)
        .map(|byte| start(&engine, volume, append(&vec![byte; 1000])))
        .collect();
    while lower.held() > 0 {
        lower.release(true);
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
    let (engine, lower) = (engine("lru", 8), Lower::new(vec![1; 100]));
    let volume = add(&engine, &lower);
    lower.hold(true);
    let written = start(&engine, volume, common::write(5000, &[2; 50]));
    lower.release(false);
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
    let (engine, lower) = (engine("lru", 8), Lower::new(vec![1; 8192]));
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
    lower.release(true);
    changer.join().expect("changed");
    assert_eq!(take(&before).expect("answered").expect("well"), [1; 4096]);
    let after = take(&after).expect("answered").expect("well");
    assert!(after == [1; 4096] || after == [2; 4096], "torn");
    assert_eq!(now(&engine, volume, read(0, 9000)), vec![2; 8192]);
}

#[test]
fn a_removed_volume_leaves_nothing_to_the_next_of_its_number() {
    let (engine, old) = (engine("lru", 8), Lower::new(vec![1; 8192]));
    let volume = add(&engine, &old);
    assert_eq!(now(&engine, volume, read(0, 8192)), vec![1; 8192]);
    engine.remove_volume(volume);
    assert_eq!(engine.status().resident_blocks, 0);
    let new = Lower::new(vec![2; 4096]);
    assert_eq!(add(&engine, &new), volume, "the number is free");
    assert_eq!(now(&engine, volume, read(0, 8192)), vec![2; 4096]);
    engine.audit();
}

#[test]
fn there_is_an_end_to_volumes_and_removing_one_makes_room() {
    let (engine, lower) = (engine("lru", 8), Lower::new(vec![1; 10]));
    let first = add(&engine, &lower);
    let add_more = || {
        let below = Arc::clone(&lower) as Arc<dyn Store>;
        engine.add_growing_volume("a file", below, Class::NORMAL)
    };
    let refused = loop {
        if let Err(refused) = add_more() {
            break refused;
        }
    };
    assert!(matches!(refused, SetupError::TooManyVolumes), "{refused}");
    engine.remove_volume(first);
    assert_eq!(add_more().expect("there is room"), first);
}

/// A file of which a part is dirty, and nothing else is under way.
fn dirtied(length: usize, offset: u64, data: &[u8]) -> (Arc<Engine>, Arc<Lower>, VolumeId) {
    let long = Duration::from_secs(3600);
    let (engine, lower) = (writing_back("lru", 16, long), Lower::new(vec![1; length]));
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
    let (lower, other) = (Lower::new(vec![1; 100]), Lower::new(vec![9; 16_384]));
    let (volume, other_volume) = (add(&engine, &lower), add(&engine, &other));
    // Its frame has held something longer.
    now(&engine, other_volume, read(0, 16_384));
    now(&engine, volume, read(0, 100));
    now(&engine, volume, common::write(50, &[2; 10]));
    lower.hold(true);
    let grown = start(&engine, volume, common::write(300, &[3; 10]));
    now(&engine, other_volume, read(0, 16_384));
    assert_eq!((engine.dirty_blocks(), lower.held()), (1, 1), "evicted");
    lower.release(true);
    take(&grown).expect("answered").expect("well");
    while lower.held() > 0 {
        lower.release(true);
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
    while lower.held() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let waiting = start(&engine, volume, read(0, 100));
    assert!(take(&waiting).is_none(), "read while it is changed");
    lower.release(false);
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
    let new = Lower::new(vec![3; 8192]);
    assert_eq!(add(&engine, &new), volume);
    assert_eq!(now(&engine, volume, read(0, 8192)), [3; 8192]);
    engine.audit();
}

/// One random operation on the cache and on a plain array of bytes.
fn step(
    engine: &Arc<Engine>,
    lower: &Lower,
    volume: VolumeId,
    model: &mut Vec<u8>,
    dice: &mut Prng,
) {
    let offset = dice.below(6 * BLOCK);
    let length = dice.below(3 * BLOCK);
    let data: Vec<u8> = (0..length).map(|_| dice.bits() as u8).collect();
    let wait = |operation| engine.wait(volume, CLIENT, operation).expect("well");
    let resize = |bytes: u64| {
        let work = || lower.set(|inside| inside.bytes.resize(bytes as usize, 0));
        engine.change_size(volume, bytes, work).expect("changed");
    };
    match dice.below(12) {
        0 => {
            resize(offset);
            model.resize(offset as usize, 0);
        }
        // Somebody else has been at it.
        1 => {
            let work = |inside: &mut Inside| put(&mut inside.bytes, offset as usize, &data);
            let done = engine.change(volume, 0, u64::MAX, || lower.set(work));
            done.expect("changed");
            put(model, offset as usize, &data);
        }
        2 => {
            wait(append(&data));
            model.extend(&data);
        }
        3..=6 if !data.is_empty() => {
            wait(common::write(offset, &data));
            put(model, offset as usize, &data);
        }
        _ => {
            let end = model.len().min((offset + length) as usize);
            let wanted = model.get(offset as usize..end).unwrap_or_default();
            assert!(
                wait(read(offset, length)).as_slice() == wanted,
                "{offset}+{length}"
            );
        }
    }
    if model.len() > 20 * BLOCK as usize {
        resize(0);
        model.clear();
    }
}

#[test]
fn several_files_are_equal_to_plain_arrays_under_every_policy() {
    for policy in ["lru", "fix", "arc", "directory", "s3-fifo"] {
        for slots in [1, 3, 9, 40] {
            let engine = engine(policy, slots);
            let mut dice = Prng::new(slots.into());
            let mut files: Vec<_> = (0..3)
                .map(|_| {
                    let lower = Lower::new(Vec::new());
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
                    *lower = Lower::new(Vec::new());
                    *volume = add(&engine, lower);
                    model.clear();
                }
            }
        }
    }
}

/// Ends what the stores are asked for a little later and in any order, until it is dropped.
struct Releaser {
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Releaser {
    fn start(lowers: Vec<Arc<Lower>>, seed: u64) -> Self {
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
    for policy in ["lru", "fix", "arc", "cost", "s3-fifo"] {
        for slots in [2, 5, 12, 40] {
            let engine = writing_back(policy, slots, Duration::from_millis(2));
            let mut dice = Prng::new(slots.into());
            let lowers: Vec<_> = (0..3).map(|_| Lower::new(Vec::new())).collect();
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
