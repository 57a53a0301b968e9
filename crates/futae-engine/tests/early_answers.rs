//! Stores that answer on the thread that asks, as a file does that another program has cut: however many requests wait for each
//! other, the thread needs no more stack for them.

mod common;

use common::{BLOCK, setup, write};
use futae_engine::{ClientId, Engine, FileStore, OnEviction, Operation, Request};
use futae_policy::{Class, VolumeId};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

/// As many as clients with a few connections can have under way.
const WRITES: usize = 8192;
/// Less than a connection's thread has.
const STACK_BYTES: usize = 256 << 10;

/// Submits writes to the same block at once, on a thread with a short stack; returns how many failed.
fn write_all(engine: &Arc<Engine>, volume: VolumeId) -> usize {
    let failed = Arc::new(AtomicUsize::new(0));
    let (sender, answered) = mpsc::channel();
    let request = |number: usize| {
        let (failed, sender) = (Arc::clone(&failed), sender.clone());
        Request {
            volume,
            client: ClientId(1),
            sequence: number as u64,
            operation: write(512 * (number as u64 % 8), &[number as u8; 512]),
            done: Box::new(move |result| {
                failed.fetch_add(usize::from(result.is_err()), Ordering::Relaxed);
                sender.send(number).expect("the test waits");
            }),
        }
    };
    let mut requests: Vec<_> = (0..WRITES).map(request).collect();
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let submitting = Arc::clone(engine);
    let submitted = thread.spawn(move || submitting.submit_batch(&mut requests));
    submitted.expect("a thread").join().expect("submitted");
    drop(sender);
    let order: Vec<usize> = answered.iter().collect();
    assert_eq!(order, (0..WRITES).collect::<Vec<_>>());
    engine.audit();
    failed.load(Ordering::Relaxed)
}

#[test]
fn writes_that_wait_for_each_other_succeed() {
    let setup = setup("lru", 8, 64, OnEviction::None);
    assert_eq!(write_all(&setup.engine, setup.volume), 0);
    let last: Vec<u8> = (0..8u8).flat_map(|part| [248 + part; 512]).collect();
    assert_eq!(setup.store.bytes()[..BLOCK as usize], last);
    let read = setup
        .engine
        .wait(setup.volume, ClientId(1), setup.read(0, 1));
    assert_eq!(read.expect("read").as_slice(), last);
}

/// The processor time that this many writes of eight sectors take that begin at these sectors in turn, in nanoseconds.
fn processor_nanos(writes: usize, sectors: [u64; 2]) -> i128 {
    let setup = setup("lru", 8, 64, OnEviction::None);
    let request = |number: usize| Request {
        volume: setup.volume,
        client: ClientId(1),
        sequence: number as u64,
        operation: write(512 * sectors[number % 2], &[number as u8; BLOCK as usize]),
        done: Box::new(|result| drop(result.expect("written"))),
    };
    let mut requests: Vec<_> = (0..writes).map(request).collect();
    let now = || clock_gettime(ClockId::ThreadCPUTime);
    let begun = now();
    setup.engine.submit_batch(&mut requests);
    let ended = now();
    let nanos = |time: Timespec| i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    nanos(ended) - nanos(begun)
}

#[test]
fn each_of_many_writes_that_wait_for_each_other_takes_no_longer() {
    // To one block, and to two and two blocks that have one in common.
    for sectors in [[0, 0], [1, 9]] {
        let (few, many) = (
            processor_nanos(512, sectors),
            processor_nanos(8192, sectors),
        );
        assert!(many < 16 * 4 * few, "{sectors:?}: {few} ns, {many} ns");
    }
}

#[test]
fn writes_to_a_file_that_was_cut_fail() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 20).expect("a size");
    let store = Arc::new(FileStore::open(file.path(), false).expect("a store"));
    let setup = setup("lru", 8, 64, OnEviction::None);
    let volume = setup.engine.add_volume("file", store, Class::NORMAL);
    let volume = volume.expect("a volume");
    file.as_file().set_len(0).expect("cut");
    assert_eq!(write_all(&setup.engine, volume), WRITES);
    file.as_file().set_len(1 << 20).expect("restored");
    let written = setup
        .engine
        .wait(volume, ClientId(1), write(0, &[1; BLOCK as usize]));
    written.expect("written");
    let flushed = setup.engine.wait(volume, ClientId(1), Operation::Flush);
    flushed.expect("flushed");
}
