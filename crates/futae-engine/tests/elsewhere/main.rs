//! A cache whose blocks somebody else holds decides on what it hears, and uses no frame.

#[path = "../common/mod.rs"]
mod common;
mod demote;

use common::{BLOCK, ManualStore, Setup, initial, kept_up_to, setup, setup_writing, take, write};
use futae_engine::{
    Engine, EngineOptions, Keeper, KeeperStatus, News, OnEviction, Operation, Store, World,
};
use futae_policy::{BlockId, Class, HashIndex, Level, Prng, Shape, build};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

/// A page cache of the test's.
#[derive(Default)]
struct Pages {
    is_watching: AtomicBool,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    held: BTreeSet<BlockId>,
    used: Vec<(BlockId, u32)>,
    left: Vec<BlockId>,
}

impl Keeper for Pages {
    fn is_watching(&self) -> bool {
        self.is_watching.load(Ordering::Relaxed)
    }
    fn news(&self, news: &mut News) {
        let mut inside = self.inside.lock().expect("whole");
        news.used.append(&mut inside.used);
        news.left.append(&mut inside.left);
    }
    fn holds(&self, block: BlockId) -> bool {
        self.inside.lock().expect("whole").held.contains(&block)
    }
    fn let_go(&self, block: BlockId) {
        self.inside.lock().expect("whole").held.remove(&block);
    }
    fn status(&self) -> KeeperStatus {
        KeeperStatus {
            pages: self.inside.lock().expect("whole").held.len() as u64,
            ..KeeperStatus::default()
        }
    }
}

fn kept(policy: &str, slots: u32) -> (Setup, Arc<Pages>) {
    let setup = setup(policy, slots, 4096, OnEviction::None);
    let pages = Pages::of(&setup);
    (setup, pages)
}

impl Pages {
    /// Pages that hold the blocks from now on.
    fn of(setup: &Setup) -> Arc<Self> {
        let pages = Arc::new(Self::default());
        setup.engine.keep_elsewhere(Arc::clone(&pages) as _);
        pages.is_watching.store(true, Ordering::Relaxed);
        pages
    }

    /// Reads a block as an application does: here if it is held, else from the cache.
    fn read(&self, setup: &Setup, index: u64) {
        let block = BlockId::new(setup.volume, index);
        {
            let mut inside = self.inside.lock().expect("whole");
            if inside.held.contains(&block) {
                return inside.used.push((block, 1));
            }
            // The kernel makes the page before it asks.
            inside.held.insert(block);
        }
        let client = setup.engine.join(setup.volume);
        let answer = setup.start(client, 0, setup.read(index, 1));
        assert_eq!(
            take(&answer).expect("answered").expect("read"),
            (0..BLOCK)
                .map(|at| initial(index * BLOCK + at))
                .collect::<Vec<_>>()
        );
    }
}

/// The misses of a plain level on the same reads.
fn misses(policy: &str, slots: u32, reads: &[u64]) -> u64 {
    let shape = Shape { slots, seed: 1 };
    let policy = build(&policy.parse().expect("a policy"), &shape).expect("a policy");
    let mut level = Level::new(policy, HashIndex::default(), slots);
    for &index in reads {
        level.access(&futae_policy::Access::read(BlockId::on_first(index)));
    }
    level.counters().misses
}

#[test]
fn it_decides_as_a_level_that_sees_every_read() {
    let mut prng = Prng::new(7);
    let reads: Vec<u64> = (0..20_000)
        .map(|_| prng.below(30) * prng.below(30))
        .collect();
    for policy in ["sieve", "s3-fifo", "clock", "fifo", "fix"] {
        let (setup, pages) = kept(policy, 100);
        for &index in &reads {
            pages.read(&setup, index);
        }
        setup.engine.hear();
        let status = setup.engine.status();
        assert_eq!(status.counters.requests, reads.len() as u64, "{policy}");
        let expected = misses(policy, 100, &reads);
        assert_eq!(status.counters.misses, expected, "{policy}");
        // A page is held if and only if the level has it.
        assert_eq!(status.resident_blocks, 100, "{policy}");
        assert_eq!(status.kernel.expect("kept").pages, 100, "{policy}");
        assert_eq!(status.store_read_blocks, expected, "{policy}");
        setup.engine.audit();
    }
}

#[test]
fn what_left_is_not_resident_and_what_is_not_watched_is_not_decided_on() {
    let (setup, pages) = kept("sieve", 8);
    pages.is_watching.store(false, Ordering::Relaxed);
    pages.read(&setup, 3);
    assert_eq!(setup.engine.status().counters.requests, 0);
    pages.is_watching.store(true, Ordering::Relaxed);
    pages.read(&setup, 5);
    let gone = BlockId::new(setup.volume, 5);
    let stranger = BlockId::new(setup.volume, 7);
    let beyond = BlockId::new(setup.volume, 1 << 30);
    // It left and came again: it is held, so it stays.
    pages.inside.lock().expect("whole").left = vec![gone];
    setup.engine.hear();
    assert_eq!(setup.engine.resident_blocks(), 1);
    let mut inside = pages.inside.lock().expect("whole");
    inside.held.remove(&gone);
    inside.left = vec![gone, stranger, beyond];
    inside.used = vec![(beyond, 4)];
    drop(inside);
    setup.engine.hear();
    let status = setup.engine.status();
    assert_eq!((status.resident_blocks, status.counters.requests), (0, 1));
    assert_eq!(status.kernel.expect("kept").reclaimed, 1);
    // Counts are told one by one.
    pages.read(&setup, 5);
    pages.inside.lock().expect("whole").used = vec![(gone, 5000)];
    setup.engine.hear();
    let status = setup.engine.status();
    assert_eq!(status.counters.hits, 5000);
    assert!(status.lock_step_blocks_max <= 1024);
    setup.engine.forget(&[gone], 0);
    assert_eq!(setup.engine.resident_blocks(), 0);
}

/// The kernel drops the pages of a file that is cut after it was told that the cut is done. Until then they may be read, which the cache
/// hears while the file still has its old size.
#[test]
fn no_block_of_a_file_is_resident_that_was_read_while_it_was_cut() {
    let (setup, pages) = kept("sieve", 8);
    let store = ManualStore::growing(vec![3; 4 * BLOCK as usize]);
    let volume = setup
        .engine
        .add_growing_volume("a file", Arc::clone(&store) as _, Class::NORMAL)
        .expect("a volume");
    let block = BlockId::new(volume, 3);
    let cut = setup.engine.change_size(volume, BLOCK, || {
        let mut inside = pages.inside.lock().expect("whole");
        inside.held.insert(block);
        inside.used.push((block, 1));
        drop(inside);
        setup.engine.hear();
        assert_eq!(setup.engine.resident_blocks(), 1, "it was read");
        store.set(|inside| inside.bytes.truncate(BLOCK as usize));
    });
    cut.expect("cut");
    assert_eq!(setup.engine.resident_blocks(), 0, "the file ends before it");
    assert!(
        !pages.inside.lock().expect("whole").held.contains(&block),
        "its page was let go"
    );
    setup.engine.audit();
}

#[test]
fn writes_go_through_and_what_is_declined_is_let_go() {
    let (setup, pages) = kept("fix", 2);
    let client = setup.engine.join(setup.volume);
    let block = |index| BlockId::new(setup.volume, index);
    let hold = |index| {
        pages
            .inside
            .lock()
            .expect("whole")
            .held
            .insert(block(index))
    };
    let holds = |index| {
        pages
            .inside
            .lock()
            .expect("whole")
            .held
            .contains(&block(index))
    };
    for (index, bytes, stays) in [
        (0, BLOCK, true),
        (1, BLOCK, true),
        (2, BLOCK, false),
        (3, 10, false),
    ] {
        assert!(hold(index));
        let data = vec![9; bytes as usize];
        let answer = setup.start(client, index, write(index * BLOCK, &data));
        take(&answer).expect("answered").expect("written");
        assert_eq!(holds(index), stays, "{index}");
    }
    let read = setup.start(client, 9, setup.read(0, 1));
    assert_eq!(
        take(&read).expect("answered").expect("read"),
        [9; BLOCK as usize]
    );
    let mut wanted = vec![block(0), block(2)];
    setup.engine.retain_unwanted(&mut wanted);
    assert_eq!(wanted, [block(2)]);
    setup.engine.audit();
}

/// A flight for it would bring what the store had before the write, and readers of its neighbours wait for the same flight.
#[test]
fn a_notice_of_a_dirty_block_whose_page_has_left_reads_nothing() {
    let bytes = 64 * BLOCK;
    let setup = setup_writing(
        BLOCK,
        "sieve",
        16,
        bytes,
        OnEviction::None,
        Some(kept_up_to(1.0)),
    );
    let pages = Pages::of(&setup);
    setup.store.set(|inside| inside.hold = true);
    let client = setup.engine.join(setup.volume);
    let written = setup.start(client, 0, write(0, &vec![7; BLOCK as usize]));
    take(&written).expect("answered").expect("kept");
    let left = BlockId::new(setup.volume, 0);
    pages.inside.lock().expect("whole").left.push(left);
    setup.engine.hear();
    let before = setup.store.held();
    let (offset, length) = (0, 2 * BLOCK);
    let noticed = setup.start(client, 1, Operation::Notice { offset, length });
    take(&noticed).expect("answered").expect("a hint");
    assert_eq!(setup.store.held(), before);
    assert_eq!(setup.engine.status().dirty_blocks, 1);
}

/// Somebody could read it again before the cache has the write, and the page would have its old data for good.
#[test]
fn a_page_whose_write_waits_is_not_given_up() {
    let bytes = 64 * BLOCK;
    let setup = setup_writing(
        BLOCK,
        "sieve",
        10,
        bytes,
        OnEviction::None,
        Some(kept_up_to(0.1)),
    );
    let _pages = Pages::of(&setup);
    setup.store.set(|inside| inside.hold = true);
    let client = setup.engine.join(setup.volume);
    let block = |index| BlockId::new(setup.volume, index);
    let put = |index: u64| {
        let data = vec![7; BLOCK as usize];
        setup.start(client, index, write(index * BLOCK, &data))
    };
    take(&put(0)).expect("answered").expect("kept");
    // One dirty block is all that may be.
    let waiting = put(1);
    assert!(take(&waiting).is_none(), "it waits for the first");
    // What is being read; the write to it waits for that.
    let read = setup.start(client, 2, setup.read(2, 1));
    let behind = put(2);
    let gone = block(2);
    setup.engine.forget(&[gone], 0);
    let mut unwanted: Vec<BlockId> = (1..4).map(block).collect();
    setup.engine.retain_unwanted(&mut unwanted);
    assert_eq!(unwanted, [block(3)]);
    setup.store.set(|inside| inside.hold = false);
    while take(&waiting).is_none() {
        setup.store.release_all();
    }
    setup.store.release_all();
    take(&read).expect("answered").expect("read");
    take(&behind).expect("answered").expect("written");
    setup.engine.audit();
}

/// A thread that looks which pages it may drop while another one is between two steps.
#[derive(Default)]
struct Looker {
    engine: Mutex<Weak<Engine>>,
    block: Mutex<Option<BlockId>>,
    /// How often it has looked, and how often it would have dropped the page.
    looked: Mutex<(u32, u32)>,
}

impl World for Looker {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn apart(&self, _name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        work();
        Ok(())
    }

    fn has_clock_threads(&self) -> bool {
        false
    }

    fn between_steps(&self) {
        let engine = self.engine.lock().expect("whole").upgrade();
        let block = *self.block.lock().expect("whole");
        let (Some(engine), Some(block)) = (engine, block) else {
            return;
        };
        engine.forget(&[block], 0);
        let mut unwanted = vec![block];
        engine.retain_unwanted(&mut unwanted);
        let mut looked = self.looked.lock().expect("whole");
        looked.0 += 1;
        looked.1 += unwanted.len() as u32;
    }
}

/// Those that waited for a write go on in several steps.
#[test]
fn a_page_whose_write_is_left_for_the_next_step_is_not_given_up() {
    let world = Arc::new(Looker::default());
    let options = EngineOptions {
        block_bytes: BLOCK,
        capacity_blocks: 16,
        policy: "sieve".parse().expect("a policy"),
        seed: 1,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back: None,
    };
    let engine = Engine::in_world(&options, Arc::clone(&world) as _).expect("an engine");
    let store = ManualStore::new(64);
    let below: Arc<dyn Store> = Arc::clone(&store) as _;
    let volume = engine.add_volume("test", below, Class::NORMAL);
    let volume = volume.expect("a volume");
    let setup = Setup {
        engine,
        store,
        volume,
    };
    let _pages = Pages::of(&setup);
    setup.engine.set_step_blocks(1);
    setup.store.set(|inside| inside.hold = true);
    let client = setup.engine.join(setup.volume);
    let put = |at: u64, blocks: u64| {
        let data = vec![7; (blocks * BLOCK) as usize];
        setup.start(client, at, write(at * BLOCK, &data))
    };
    let first = put(0, 2);
    let behind = [put(0, 1), put(1, 1)];
    *world.engine.lock().expect("whole") = Arc::downgrade(&setup.engine);
    *world.block.lock().expect("whole") = Some(BlockId::new(setup.volume, 1));
    setup.store.release(0, false);
    take(&first).expect("answered").expect("written");
    *world.block.lock().expect("whole") = None;
    let (looked, dropped) = *world.looked.lock().expect("whole");
    assert!(looked > 1, "all was decided at once");
    assert_eq!(dropped, 0, "of {looked}");
    setup.store.release_all();
    for answer in behind {
        take(&answer).expect("answered").expect("written");
    }
    setup.engine.audit();
}
