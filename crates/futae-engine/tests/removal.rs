//! Volumes of a fixed size are removed once nothing is under way in them.

mod common;

use common::{BLOCK, Setup, kept_up_to, setup, setup_writing, take, write};
use futae_engine::{
    ClientId, Engine, EngineOptions, IoBuf, MemoryFile, MemoryTrust, OnEviction, Operation, Store,
    StoreDone, StoreOperation,
};
use futae_policy::Class;
use futae_testkit::manual_store::ManualStore;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const CLIENT: ClientId = ClientId(0);

/// Tries to remove the volume, without waiting.
fn take_out(setup: &Setup) -> Result<(), String> {
    let taken = setup.engine.take_out_volume(setup.volume, Duration::ZERO);
    taken.map_err(|error| error.to_string())
}

fn check_that_it_waits_for(operation: Operation, what: &str) {
    let setup = setup("lru", 8, 64, OnEviction::None);
    setup.store.hold(true);
    let answer = setup.start(CLIENT, 0, operation);
    let refused = take_out(&setup).expect_err(what);
    assert!(refused.contains("does not answer"), "{what}: {refused}");
    assert_eq!(setup.engine.status().volumes.len(), 1, "{what}");
    setup.store.release_all();
    take(&answer).expect("answered").expect("done");
    take_out(&setup).expect(what);
    let status = setup.engine.status();
    assert_eq!((status.volumes.len(), status.resident_blocks), (0, 0));
    setup.engine.audit();
}

#[test]
fn a_read_is_waited_for() {
    let read = Operation::Read {
        offset: BLOCK,
        length: BLOCK,
    };
    check_that_it_waits_for(read, "a read");
}

#[test]
fn a_write_is_waited_for() {
    check_that_it_waits_for(write(BLOCK, &[1; 100]), "a write");
}

#[test]
fn a_flush_is_waited_for() {
    check_that_it_waits_for(Operation::Flush, "a flush");
}

#[test]
fn what_is_dirty_is_not_lost() {
    let bytes = 64 * BLOCK;
    let setup = setup_writing(
        BLOCK,
        "lru",
        8,
        bytes,
        OnEviction::None,
        Some(kept_up_to(1.0)),
    );
    let written = setup.start(CLIENT, 0, write(0, &[7; BLOCK as usize]));
    take(&written).expect("answered").expect("kept");
    let refused = take_out(&setup).expect_err("it is dirty");
    assert!(refused.contains("written to"), "{refused}");
    let flushed = setup.start(CLIENT, 1, Operation::Flush);
    take(&flushed).expect("answered").expect("flushed");
    take_out(&setup).expect("it is clean");
    assert_eq!(setup.store.bytes()[..BLOCK as usize], [7; BLOCK as usize]);
}

#[test]
fn a_failure_that_was_made_good_keeps_no_volume() {
    let bytes = 64 * BLOCK;
    let setup = setup_writing(
        BLOCK,
        "lru",
        8,
        bytes,
        OnEviction::None,
        Some(kept_up_to(1.0)),
    );
    setup.store.set(|inside| inside.fail_writes = true);
    // More than half of what may be dirty: the cache writes some of it back by itself.
    for block in 0..5 {
        let written = setup.start(CLIENT, block, write(block * BLOCK, &[7; BLOCK as usize]));
        take(&written).expect("answered").expect("kept");
    }
    assert!(setup.engine.status().write_back_errors > 0);
    setup.store.set(|inside| inside.fail_writes = false);
    let flushed = setup.start(ClientId::NOBODY, 0, Operation::Flush);
    take(&flushed).expect("answered").expect("flushed");
    assert_eq!(setup.engine.dirty_blocks(), 0);
    take_out(&setup).expect("it is clean, though no client was told");
    assert_eq!(setup.store.bytes()[..BLOCK as usize], [7; BLOCK as usize]);
}

#[test]
fn one_step_does_not_drop_a_large_cache_and_all_of_it_goes() {
    let setup = setup("lru", 3000, 3000, OnEviction::None);
    let read = setup
        .engine
        .read_blocking(setup.volume, CLIENT, 0, 3000 * BLOCK);
    read.expect("a read");
    assert_eq!(setup.engine.resident_blocks(), 3000);
    let taken = setup
        .engine
        .take_out_volume(setup.volume, Duration::from_secs(60));
    taken.expect("nothing is dirty");
    let status = setup.engine.status();
    assert_eq!(status.resident_blocks, 0);
    assert!(status.lock_step_blocks_max <= 1024);
}

#[test]
fn numbers_are_given_again_and_others_keep_theirs() {
    let setup = setup("lru", 8, 64, OnEviction::None);
    let add = |name| {
        let store = ManualStore::new(64);
        let volume = setup.engine.add_volume(name, store, Class::NORMAL);
        volume.expect("a volume")
    };
    let (second, third) = (add("second"), add("third"));
    take_out(&setup).expect("nothing is under way");
    assert_eq!(add("fourth"), setup.volume);
    let fifth = add("fifth");
    assert!(![setup.volume, second, third].contains(&fifth));
    let status = setup.engine.status();
    let mut names: Vec<_> = status.volumes.iter().map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["fifth", "fourth", "second", "third"]);
}

/// An empty disk with an identity.
struct Numbered(u64);

impl Store for Numbered {
    fn size_bytes(&self) -> u64 {
        BLOCK
    }

    fn identity(&self) -> Option<[u8; 16]> {
        let mut identity = [7; 16];
        identity[..8].copy_from_slice(&self.0.to_le_bytes());
        Some(identity)
    }

    fn describe(&self) -> String {
        "a disk with a number".to_owned()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, _sequence: u64, operation: StoreOperation, done: StoreDone) {
        done(Ok(match operation {
            StoreOperation::Read { buffer, .. } => IoBuf::zeroed(buffer.len()),
            _ => IoBuf::new(0),
        }));
    }
}

#[test]
fn a_memory_file_has_room_for_exports_however_many_have_gone() {
    const GONE: u64 = 2000;
    let memory = MemoryFile::unnamed().expect("memory");
    let engine = || {
        let options = EngineOptions {
            block_bytes: BLOCK,
            capacity_blocks: 4,
            policy: "lru".parse().expect("a policy"),
            seed: 1,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back: None,
        };
        let engine = Engine::new(&options).expect("an engine");
        let file = memory.try_clone().expect("a descriptor");
        let file = MemoryFile::of_file(file, Path::new("memory"), BLOCK, 4, None);
        let kept = engine.keep_memory(file.expect("a memory file"), MemoryTrust::Devices);
        kept.expect("kept");
        engine
    };
    let add = |engine: &Arc<Engine>, number| {
        let volume = engine.add_volume("a disk", Arc::new(Numbered(number)), Class::NORMAL);
        volume.expect("a volume")
    };
    let last = engine();
    last.recall_memory();
    for number in 0..GONE {
        let volume = add(&last, number);
        let taken = last.take_out_volume(volume, Duration::ZERO);
        taken.expect("nothing is under way");
    }
    let volume = add(&last, GONE);
    let read = last.read_blocking(volume, CLIENT, 0, BLOCK);
    read.expect("a read");
    last.leave_memory();
    drop(last);
    let next = engine();
    add(&next, GONE);
    assert_eq!(next.recall_memory(), 1, "its block was not kept");
}
