//! One client against the others: nothing that one asks for holds up what another asks for.

mod common;

use common::{BLOCK, TestStore, setup};
use futae_engine::{Engine, Extent, HandDown, IoError, Store, StoreDone, StoreOperation};
use futae_policy::{Class, VolumeId};
use std::sync::{Arc, Condvar, Mutex, mpsc};

/// A store that does not tell its extents before it is allowed to.
struct Slow {
    below: Arc<TestStore>,
    may: Mutex<bool>,
    allowed: Condvar,
}

impl Store for Slow {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }
    fn describe(&self) -> String {
        "slow".to_owned()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn submit(&self, sequence: u64, operation: StoreOperation, done: StoreDone) {
        self.below.submit(sequence, operation, done);
    }
    fn extents(&self, _offset: u64, length: u64) -> Result<Vec<Extent>, IoError> {
        let mut may = self.may.lock().expect("may");
        while !*may {
            may = self.allowed.wait(may).expect("may");
        }
        Ok(vec![Extent { length, hole: true }])
    }
}

fn ask(engine: &Arc<Engine>, volume: VolumeId, length: u64) -> mpsc::Receiver<Vec<Extent>> {
    let (sender, receiver) = mpsc::channel();
    let done = move |extents: Result<_, _>| sender.send(extents.expect("extents")).expect("asked");
    engine.extents_later(volume, 0, length, Box::new(done));
    receiver
}

#[test]
fn a_store_that_is_slow_to_tell_its_extents_holds_nobody_up() {
    let setup = setup("lru", 8, 16, HandDown::Nothing);
    let slow = Arc::new(Slow {
        below: TestStore::new(16),
        may: Mutex::new(false),
        allowed: Condvar::new(),
    });
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
    *slow.may.lock().expect("may") = true;
    slow.allowed.notify_all();
    let mut holes = 0;
    for answer in waiting {
        holes += answer
            .recv()
            .map_or(0, |extents| usize::from(extents[0].hole));
    }
    assert_eq!(holes + at_once, 200, "each is answered once");
}
