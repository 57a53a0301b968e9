//! The order of marks, writes and answers: what is on stable storage when a crash comes.

mod common;
#[path = "common/meddling.rs"]
mod meddling;

use common::{BLOCK, NEVER, Setup, setup_writing, take, write};
use futae_engine::{
    ClientId, Demotion, Engine, EngineOptions, IoBuf, OnEviction, Operation, Request, Store,
    StoreDone, StoreOperation, UncleanMark, WriteBackOptions,
};
use futae_policy::Class;
use futae_testkit::manual_store::ManualStore;
use futae_testkit::wait::eventually;
use meddling::Meddling;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::sleep;
use std::time::Duration;

/// A mark that takes as long as the test says.
#[derive(Default)]
struct TestMark {
    is_durable: AtomicBool,
    fails: AtomicBool,
    sets: AtomicU32,
    is_held: Mutex<bool>,
    released: Condvar,
    /// Looked at when the mark goes: writes and flushes that the store has had.
    at_clear: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl TestMark {
    fn hold(&self, hold: bool) {
        *self.is_held.lock().expect("held") = hold;
        self.released.notify_all();
    }

    fn work(&self) -> io::Result<()> {
        let mut held = self.is_held.lock().expect("held");
        while *held {
            held = self.released.wait(held).expect("held");
        }
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn is_durable(&self) -> bool {
        self.is_durable.load(Ordering::SeqCst)
    }
}

impl UncleanMark for TestMark {
    fn set(&self) -> io::Result<()> {
        self.sets.fetch_add(1, Ordering::SeqCst);
        self.work()?;
        self.is_durable.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn clear(&self) -> io::Result<()> {
        // It may be gone from now on.
        self.is_durable.store(false, Ordering::SeqCst);
        if let Some(look) = &*self.at_clear.lock().expect("set") {
            look();
        }
        self.work()
    }
}

fn guarded(age_max: Duration, loss: Option<&str>) -> (Setup, ClientId, Arc<TestMark>) {
    let how = WriteBackOptions {
        dirty_max: 1.0,
        dirty_age_max: age_max,
    };
    let setup = setup_writing(BLOCK, "lru", 64, 64 * BLOCK, OnEviction::None, Some(how));
    let mark = Arc::new(TestMark::default());
    mark.is_durable.store(loss.is_some(), Ordering::SeqCst);
    let kept: Arc<dyn UncleanMark> = Arc::clone(&mark) as _;
    setup
        .engine
        .guard(setup.volume, kept, loss.map(str::to_owned));
    let client = setup.engine.join(setup.volume);
    (setup, client, mark)
}

impl Setup {
    fn put(&self, client: ClientId, block: u64) {
        let answer = self.start(client, 0, write(block * BLOCK, &[7; BLOCK as usize]));
        take(&answer).expect("at once").expect("a good write");
    }

    fn store_writes(&self) -> usize {
        self.store.get(|inside| inside.writes.len())
    }

    fn dirty(&self) -> u64 {
        self.engine.status().dirty_blocks
    }

    fn is_marked(&self) -> bool {
        self.engine.status().volumes[0].unclean_mark
    }

    fn flush(&self, client: ClientId) -> Result<IoBuf, String> {
        let result = self.engine.wait(self.volume, client, Operation::Flush);
        result.map_err(|error| error.to_string())
    }
}

#[test]
fn no_write_is_kept_before_its_mark_is_durable_and_none_waits_for_it() {
    let (setup, client, mark) = guarded(NEVER, None);
    mark.hold(true);
    for block in 0..5 {
        setup.put(client, block);
    }
    assert_eq!((setup.dirty(), setup.store_writes()), (0, 5), "through");
    assert!(!setup.is_marked());
    mark.hold(false);
    eventually("the mark is made", || setup.is_marked());
    assert!(mark.is_durable());
    setup.put(client, 9);
    assert_eq!((setup.dirty(), setup.store_writes()), (1, 5), "kept");
    assert_eq!(mark.sets.load(Ordering::SeqCst), 1, "not by each write");
}

#[test]
fn the_mark_goes_after_a_flush_and_only_while_nothing_is_dirty() {
    let (setup, client, mark) = guarded(Duration::from_millis(20), None);
    let store = Arc::clone(&setup.store);
    *mark.at_clear.lock().expect("set") = Some(Box::new(move || {
        let (writes, flushes) = store.get(|inside| (inside.writes.len(), inside.flushes));
        assert!(writes > 0 && flushes > 0, "removed before a flush");
    }));
    for round in 1..4 {
        while !setup.is_marked() {
            setup.put(client, round);
            assert!(mark.is_durable() || setup.dirty() == 0);
        }
        for block in 0..20 {
            setup.put(client, block);
            assert!(mark.is_durable() || setup.dirty() == 0);
        }
        let before = setup.store.get(|inside| inside.flushes);
        eventually("the mark goes", || !mark.is_durable());
        assert_eq!(setup.dirty(), 0);
        assert!(setup.store.get(|inside| inside.flushes) > before);
    }
}

#[test]
fn a_mark_goes_although_another_volume_was_removed() {
    let (setup, client, mark) = guarded(Duration::from_millis(20), None);
    let other = ManualStore::new(64);
    let volume = setup.engine.add_volume("other", other, Class::NORMAL);
    let volume = volume.expect("a volume");
    let its_mark: Arc<dyn UncleanMark> = Arc::new(TestMark::default());
    setup.engine.guard(volume, its_mark, None);
    let taken = setup.engine.take_out_volume(volume, NEVER);
    taken.expect("nothing is dirty");
    while !setup.is_marked() {
        setup.put(client, 1);
    }
    eventually("the mark goes", || !mark.is_durable());
}

/// What the first flush was asked for arrives between the flush of the store and its answer.
#[test]
fn a_write_during_the_last_flush_keeps_the_mark() {
    let (setup, client, mark) = guarded(Duration::from_millis(20), None);
    // The store's answers are held up before there is a mark, since that goes soon after it came.
    mark.hold(true);
    setup.put(client, 0);
    setup.store.set(|inside| inside.hold = true);
    mark.hold(false);
    eventually("the store is flushed", || {
        setup.store.get(|inside| !inside.held.is_empty())
    });
    setup.store.set(|inside| inside.hold = false);
    setup.put(client, 1);
    eventually("it is written", || setup.dirty() == 0);
    // It was written after the flush began, so that flush says nothing of it.
    let flushes = setup.store.get(|inside| inside.flushes);
    setup.store.release_all();
    eventually("the mark goes", || !mark.is_durable());
    assert!(setup.store.get(|inside| inside.flushes) >= flushes + 2);
}

#[test]
fn one_flush_fails_after_an_unclean_end_and_the_mark_stays_until_then() {
    let (setup, client, mark) = guarded(Duration::from_millis(20), Some("lost: some"));
    assert!(setup.engine.status().volumes[0].unclean);
    setup.put(client, 1);
    assert_eq!(setup.store_writes(), 0, "kept under the mark that is there");
    eventually("it is written", || setup.dirty() == 0);
    for _ in 0..3 {
        setup.engine.tick();
        sleep(Duration::from_millis(30));
    }
    assert!(mark.is_durable(), "nobody knows");
    let settle = setup.engine.wait(setup.volume, client, Operation::Settle);
    settle.expect("no flush");
    assert_eq!(setup.flush(client).expect_err("the loss"), "lost: some");
    setup.flush(client).expect("it is known");
    assert!(!setup.engine.status().volumes[0].unclean);
    eventually("the mark goes", || !mark.is_durable());
}

#[test]
fn an_unclean_end_is_told_to_each_client_that_was_connected() {
    let (setup, client, _) = guarded(NEVER, Some("lost: some"));
    let other = setup.engine.join(setup.volume);
    assert_eq!(setup.flush(client).expect_err("the loss"), "lost: some");
    assert_eq!(setup.flush(other).expect_err("the loss"), "lost: some");
    let late = setup.engine.join(setup.volume);
    for client in [client, other, late] {
        setup.flush(client).expect("it is known");
    }
}

#[test]
fn without_write_back_one_flush_fails_too() {
    let setup = setup_writing(BLOCK, "lru", 64, 64 * BLOCK, OnEviction::None, None);
    let mark = Arc::new(TestMark::default());
    mark.is_durable.store(true, Ordering::SeqCst);
    let kept: Arc<dyn UncleanMark> = Arc::clone(&mark) as _;
    setup.engine.guard(setup.volume, kept, Some("lost".into()));
    let client = setup.engine.join(setup.volume);
    setup.put(client, 1);
    assert_eq!(setup.flush(client).expect_err("the loss"), "lost");
    setup.flush(client).expect("it is known");
    eventually("the mark goes", || !mark.is_durable());
}

#[test]
fn writes_go_through_while_no_mark_can_be_made() {
    let (setup, client, mark) = guarded(NEVER, None);
    mark.fails.store(true, Ordering::SeqCst);
    setup.put(client, 1);
    eventually("it is refused", || setup.engine.status().errors > 0);
    setup.put(client, 2);
    setup.flush(client).expect("a flush");
    assert_eq!((setup.dirty(), setup.store_writes()), (0, 2));
    mark.fails.store(false, Ordering::SeqCst);
    eventually("it is tried again", || {
        setup.put(client, 3);
        setup.dirty() > 0
    });
    assert!(mark.is_durable());
}

#[test]
fn a_clean_end_removes_the_mark_unless_nobody_knows_of_a_loss() {
    let (setup, client, mark) = guarded(NEVER, None);
    setup.put(client, 1);
    eventually("the mark is made", || setup.is_marked());
    setup.put(client, 2);
    setup.engine.end_clean(setup.volume).expect("nothing to do");
    assert!(mark.is_durable(), "something is dirty");
    setup.flush(client).expect("written");
    setup.engine.end_clean(setup.volume).expect("removed");
    assert!(!mark.is_durable());
    setup.put(client, 3);
    assert_eq!(setup.dirty(), 0, "through, since the mark is gone");
    let (setup, _, mark) = guarded(NEVER, Some("lost"));
    setup
        .flush(ClientId::NOBODY)
        .expect("the server's own flush is no client's");
    setup.engine.end_clean(setup.volume).expect("nothing to do");
    assert!(mark.is_durable(), "nobody knows");
}

#[test]
fn the_end_waits_for_a_mark_that_is_being_made_and_removes_it() {
    let (setup, client, mark) = guarded(NEVER, None);
    mark.hold(true);
    setup.put(client, 1);
    let ending = {
        let (engine, volume) = (Arc::clone(&setup.engine), setup.volume);
        std::thread::spawn(move || engine.end_clean(volume))
    };
    for _ in 0..10_000 {
        assert!(!ending.is_finished(), "the mark may come yet");
        std::thread::yield_now();
    }
    mark.hold(false);
    ending.join().expect("an end").expect("removed");
    assert!(!mark.is_durable());
}

#[test]
fn the_end_does_not_wait_for_ever_for_a_disk_that_hangs() {
    let (setup, client, mark) = guarded(NEVER, None);
    mark.hold(true);
    setup.put(client, 1);
    let end = setup.engine.end_clean(setup.volume);
    assert_eq!(end.expect_err("no").kind(), io::ErrorKind::TimedOut);
    mark.hold(false);
}

/// A write of more blocks than one step decides on: those of the first step go to the store, one of the last is kept. In
/// between, the volume is clean, and its mark goes.
#[test]
fn a_mark_that_goes_between_the_steps_of_a_write_is_looked_for_again() {
    const BLOCKS: u64 = 2048;
    let options = EngineOptions {
        block_bytes: BLOCK,
        // All of the write may be dirty.
        capacity_blocks: 2 * BLOCKS as u32,
        policy: "exclusive".parse().expect("a policy"),
        seed: 1,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back: Some(WriteBackOptions {
            dirty_max: 1.0,
            dirty_age_max: Duration::from_millis(20),
        }),
    };
    let engine = Engine::new(&options).expect("an engine");
    let below = ManualStore::new(BLOCKS);
    let store = Arc::new(Meddling {
        below: Arc::clone(&below),
        before_write: Mutex::default(),
    });
    let volume = engine
        .add_volume("test", Arc::clone(&store) as Arc<dyn Store>, Class::NORMAL)
        .expect("a volume");
    let mark = Arc::new(TestMark::default());
    engine.guard(volume, Arc::clone(&mark) as Arc<dyn UncleanMark>, None);
    let client = engine.join(volume);
    let is_marked = || engine.status().volumes[0].unclean_mark;
    let last = BLOCKS - 8;
    let data = below.bytes()[(last * BLOCK) as usize..][..BLOCK as usize].to_vec();
    eventually("the mark is made", || {
        let touch = write(last * BLOCK, &data);
        engine.wait(volume, client, touch).expect("written");
        is_marked()
    });
    // Only what is demoted is resident, here one of the last blocks.
    let demotion = Demotion::new(last * BLOCK, IoBuf::copy_of(&data));
    engine.submit(Request {
        volume,
        client,
        sequence: 1,
        operation: Operation::Demote(demotion),
        done: Box::new(drop),
    });
    eventually("it is taken", || engine.status().resident_blocks == 1);
    below.hold(true);
    eventually(
        "it is clean, and its store is flushed before the mark goes",
        || {
            engine.tick();
            let is_flush =
                |held: &(StoreOperation, StoreDone)| matches!(held.0, StoreOperation::Flush);
            let flushes = below.get(|inside| inside.held.iter().any(is_flush));
            if !flushes {
                below.release_all();
            }
            flushes
        },
    );
    assert!(is_marked());
    let (flushed, gone) = (Arc::clone(&below), Arc::clone(&mark));
    *store.before_write.lock().expect("set") = Some(Box::new(move || {
        flushed.hold(false);
        flushed.release_all();
        eventually("the mark goes", || !gone.is_durable());
        gone.hold(true);
    }));
    let all = write(0, &vec![9; (BLOCKS * BLOCK) as usize]);
    engine.wait(volume, client, all).expect("written");
    assert!(
        mark.is_durable() || engine.status().dirty_blocks == 0,
        "kept without a mark"
    );
    mark.hold(false);
    assert!(below.bytes().iter().take(4096).all(|&byte| byte == 9));
}

#[test]
fn a_client_learns_that_the_flush_before_a_mark_goes_has_failed() {
    let (setup, client, mark) = guarded(Duration::from_millis(20), None);
    setup.put(client, 1);
    eventually("the mark is made", || setup.is_marked());
    setup.put(client, 2);
    assert_eq!(setup.dirty(), 1, "kept");
    eventually("written back", || setup.dirty() == 0);
    setup.store.hold(true);
    let is_flush = |operation: &StoreOperation| matches!(operation, StoreOperation::Flush);
    eventually("the flush before the mark goes", || {
        let begins = |held: &[(StoreOperation, _)]| held.iter().any(|held| is_flush(&held.0));
        setup.store.get(|inside| begins(&inside.held))
    });
    // A client's flush does not run beside it: it would end well, and cover what is lost.
    let beside = setup.start(client, 0, Operation::Flush);
    assert_eq!(setup.store.held(), 1);
    setup.store.hold(false);
    // A disk reports a loss once.
    setup.store.release(0, true);
    take(&beside)
        .expect("answered")
        .expect_err("it learns of it");
    assert!(mark.is_durable(), "until the store was flushed once more");
    setup.flush(client).expect("it has learnt of it");
    eventually("the mark goes", || !mark.is_durable());
}

#[test]
fn a_client_learns_of_a_failed_flush_of_the_server() {
    let setup = setup_writing(BLOCK, "lru", 64, 64 * BLOCK, OnEviction::None, None);
    let client = setup.engine.join(setup.volume);
    setup.put(client, 1);
    setup.store.hold(true);
    let answer = setup.start(ClientId::NOBODY, 0, Operation::Flush);
    setup.store.hold(false);
    setup.store.release(0, true);
    take(&answer)
        .expect("answered")
        .expect_err("the server learns");
    let again = setup.start(ClientId::NOBODY, 0, Operation::Flush);
    take(&again)
        .expect("answered")
        .expect("another one ends well");
    setup.flush(client).expect_err("the client learns");
    setup.flush(client).expect("once");
}

#[test]
fn an_export_whose_removal_fails_keeps_writes_again() {
    let (setup, client, mark) = guarded(Duration::from_millis(20), None);
    setup.put(client, 1);
    eventually("the mark is made", || setup.is_marked());
    setup.put(client, 2);
    setup.flush(client).expect("flushed");
    setup
        .engine
        .end_clean(setup.volume)
        .expect("the mark is removed");
    assert!(!mark.is_durable());
    eventually("a write is kept", || {
        setup.put(client, 3);
        setup.dirty() > 0
    });
    setup.flush(client).expect("flushed");
    setup.engine.end_clean(setup.volume).expect("again");
}
