//! What is asked of a cache, recorded.

mod common;

use common::{BLOCK, Setup, setup, take, write};
use futae_engine::{
    Batch, ClientId, OnEviction, Operation, ReadRange, Recorded, Request, SampledPart,
};
use futae_policy::Class;
use futae_testkit::manual_store::ManualStore;
use std::collections::BTreeSet;
use std::time::Duration;

fn now(setup: &Setup, operation: Operation) {
    let client = setup.engine.join(setup.volume);
    let answer = take(&setup.start(client, 1, operation));
    answer.expect("answered").expect("well");
    setup.engine.leave(setup.volume, client);
}

/// Offset, length and kind.
fn what(recorded: &[Recorded]) -> Vec<(u64, u64, bool)> {
    let what = |r: &Recorded| (r.offset, r.length, r.is_write);
    recorded.iter().map(what).collect()
}

/// Reads of single blocks, by front ends that take data in place.
struct Reads<'a>(&'a Setup, Vec<u64>, usize, ClientId);

impl<'a> Reads<'a> {
    fn new(setup: &'a Setup, blocks: Vec<u64>) -> Self {
        Self(setup, blocks, 0, setup.engine.join(setup.volume))
    }
}

impl Batch for Reads<'_> {
    fn read(&self, at: usize) -> Option<ReadRange> {
        Some(ReadRange {
            volume: self.0.volume,
            offset: self.1[at] * BLOCK,
            length: BLOCK,
        })
    }

    fn fill(&mut self, _: usize, _: usize, _: &[u8]) {}

    fn filled(&mut self, _: usize) {
        self.2 += 1;
    }

    fn request(&mut self, at: usize) -> Request {
        Request {
            volume: self.0.volume,
            client: self.3,
            sequence: 0,
            operation: self.0.read(self.1[at], 1),
            done: Box::new(|result| drop(result.expect("read"))),
        }
    }
}

#[test]
fn requests_for_data_are_recorded_once_in_their_order() {
    let setup = setup("lru", 8, 64, OnEviction::None);
    now(&setup, setup.read(60, 1));
    assert_eq!(setup.engine.take_recorded(0), None, "nobody asked for it");
    let number = setup.engine.begin_recording(1.0);
    now(&setup, setup.read(0, 2));
    now(&setup, write(3 * BLOCK + 512, &[7; 1024]));
    now(&setup, Operation::Flush);
    let trim = Operation::Trim {
        offset: 0,
        length: BLOCK,
    };
    now(&setup, trim);
    let client = setup.engine.join(setup.volume);
    let beyond = take(&setup.start(client, 1, setup.read(63, 2)));
    assert!(beyond.expect("answered").is_err(), "there are 64 blocks");
    let mut reads = Reads::new(&setup, vec![1, 40, 1]);
    setup.engine.run_batch(3, &mut reads);
    assert_eq!(reads.2, 2, "two of them are resident");
    let part = setup.engine.take_recorded(number).expect("a recording");
    let expected = [
        (0, 2 * BLOCK, false),
        (3 * BLOCK + 512, 1024, true),
        (BLOCK, BLOCK, false),
        (40 * BLOCK, BLOCK, false),
        (BLOCK, BLOCK, false),
    ];
    assert_eq!(what(&part.requests), expected);
    assert!(part.requests.is_sorted_by_key(|recorded| recorded.micros));
    assert_eq!(part.lost, 0);
    now(&setup, setup.read(5, 1));
    let last = setup.engine.end_recording(number).expect("what is left");
    assert_eq!(what(&last.requests), [(5 * BLOCK, BLOCK, false)]);
    now(&setup, setup.read(5, 1));
    assert_eq!(setup.engine.end_recording(number), None, "it is over");
}

/// A reader whose cache is gone may ask the one that is left.
#[test]
fn a_recording_of_one_cache_is_none_of_another() {
    let [one, other] = [(), ()].map(|()| setup("lru", 8, 64, OnEviction::None));
    let [number, its] = [&one, &other].map(|setup| setup.engine.begin_recording(1.0));
    now(&other, other.read(5, 1));
    assert_eq!(other.engine.take_recorded(number), None);
    assert_eq!(other.engine.end_recording(number), None);
    let part = other.engine.end_recording(its).expect("it goes on");
    assert_eq!(what(&part.requests), [(5 * BLOCK, BLOCK, false)]);
}

/// A reader takes requests some time after they came.
#[test]
fn requests_of_a_volume_that_is_gone_keep_its_name() {
    let mut setup = setup("lru", 8, 64, OnEviction::None);
    let number = setup.engine.begin_recording(1.0);
    let mut expected = Vec::new();
    for name in ["test", "next", "third"] {
        now(&setup, setup.read(5, 1));
        expected.push((setup.volume, name.to_owned()));
        let taken = setup.engine.take_out_volume(setup.volume, Duration::ZERO);
        taken.expect("nothing is under way");
        let name = if name == "test" { "next" } else { "third" };
        let added = setup
            .engine
            .add_volume(name, ManualStore::new(64), Class::NORMAL);
        setup.volume = added.expect("a number");
    }
    let part = setup.engine.take_recorded(number).expect("a recording");
    let names: Vec<_> = part.names.into_iter().collect();
    assert_eq!(names, expected);
    let ids = part.requests.iter().map(|one| one.volume);
    assert!(ids.eq(expected.iter().map(|(id, _)| *id)));
    now(&setup, setup.read(5, 1));
    let part = setup.engine.end_recording(number).expect("a recording");
    assert_eq!(part.names, [(setup.volume, "third".to_owned())].into());
    // Taken requests keep no number.
    let store = ManualStore::new(64);
    let last = setup.engine.add_volume("last", store, Class::NORMAL);
    let last = last.expect("a number");
    assert!(expected.iter().any(|(id, _)| *id == last));
}

#[test]
fn a_request_that_waits_or_is_long_is_recorded_once() {
    let setup = setup("lru", 8, 2048, OnEviction::None);
    let number = setup.engine.begin_recording(1.0);
    setup.engine.begin_sampling(1.0);
    setup.store.hold(true);
    let client = setup.engine.join(setup.volume);
    let mut requests: Vec<_> = (0..3)
        .map(|byte| setup.start(client, 1, write(512 * byte, &[7; 512])))
        .collect();
    // Of more blocks than are decided at once.
    requests.push(setup.start(client, 2, setup.read(0, 2048)));
    setup.store.hold(false);
    setup.store.release_all();
    for request in &requests {
        take(request).expect("answered").expect("well");
    }
    let part = setup.engine.end_recording(number).expect("a recording");
    let expected = [
        (0, 512, true),
        (512, 512, true),
        (1024, 512, true),
        (0, 2048 * BLOCK, false),
    ];
    assert_eq!(what(&part.requests), expected);
    let sampled = setup.engine.take_sampled().expect("a sample");
    assert_eq!(sampled.blocks.len(), 3 + 2048);
}

#[test]
fn of_a_sample_all_requests_for_the_same_blocks_are_recorded() {
    let setup = setup("lru", 8, 512, OnEviction::None);
    let number = setup.engine.begin_recording(0.25);
    for _ in 0..2 {
        for first in (0..512).step_by(8) {
            now(&setup, setup.read(first, 8));
        }
    }
    let part = setup.engine.end_recording(number).expect("a recording");
    let (first, second) = part.requests.split_at(part.requests.len() / 2);
    assert_eq!(what(first), what(second), "the same blocks both times");
    assert!((80..=176).contains(&first.len()), "{} of 512", first.len());
    assert!(first.iter().all(|recorded| recorded.length == BLOCK));
}

/// A server that was started again may have its exports in another order.
#[test]
fn a_sample_has_the_same_blocks_of_a_volume_whatever_its_number_is() {
    let sampled = |names: [&str; 2]| -> BTreeSet<(String, u64)> {
        let mut setup = setup("lru", 8, 512, OnEviction::None);
        let added = names.map(|name| {
            let store = ManualStore::new(512);
            let added = setup.engine.add_volume(name, store, Class::NORMAL);
            added.expect("a number")
        });
        let number = setup.engine.begin_recording(0.25);
        for volume in added {
            setup.volume = volume;
            now(&setup, setup.read(0, 512));
        }
        let part = setup.engine.end_recording(number).expect("a recording");
        let name = |one: &Recorded| (part.names[&one.volume].clone(), one.offset);
        part.requests.iter().map(name).collect()
    };
    let once = sampled(["one", "other"]);
    assert_eq!(once, sampled(["other", "one"]));
    let blocks = |of: &str| -> Vec<u64> {
        let of = once.iter().filter(|(name, _)| name == of);
        of.map(|(_, offset)| *offset).collect()
    };
    let (one, other) = (blocks("one"), blocks("other"));
    for blocks in [&one, &other] {
        assert!(
            (80..=176).contains(&blocks.len()),
            "{} of 512",
            blocks.len()
        );
    }
    assert_ne!(one, other, "each has its own");
}

#[test]
fn a_reader_that_does_not_come_costs_a_bounded_room() {
    let setup = setup("lru", 8, 64, OnEviction::None);
    now(&setup, setup.read(1, 1));
    let number = setup.engine.begin_recording(1.0);
    let mut reads = Reads::new(&setup, vec![1; 1000]);
    for _ in 0..70 {
        setup.engine.run_batch(1000, &mut reads);
    }
    let part = setup.engine.take_recorded(number).expect("a recording");
    assert_eq!(part.requests.len() as u64 + part.lost, 70_000);
    assert_eq!(part.requests.len(), 65_536);
    setup.engine.run_batch(3, &mut reads);
    let part = setup.engine.take_recorded(number).expect("a recording");
    assert_eq!(
        (part.requests.len(), part.lost),
        (3, 0),
        "there is room again"
    );
}

#[test]
fn a_sample_has_all_requests_for_a_block_or_none() {
    let setup = setup("lru", 8, 64, OnEviction::None);
    now(&setup, setup.read(60, 1));
    assert_eq!(setup.engine.take_sampled(), None, "nobody asked for it");
    setup.engine.begin_sampling(1.0);
    now(&setup, setup.read(0, 2));
    now(&setup, write(3 * BLOCK + 512, &[7; 1024]));
    now(&setup, Operation::Flush);
    let mut reads = Reads::new(&setup, vec![1, 40, 1]);
    setup.engine.run_batch(3, &mut reads);
    let part = setup.engine.take_sampled().expect("a sample");
    let blocks: Vec<u64> = part.blocks.iter().map(|&(_, block)| block).collect();
    assert_eq!((blocks, part.lost), (vec![0, 1, 3, 1, 40, 1], 0));

    setup.engine.begin_sampling(0.25);
    for _ in 0..3 {
        now(&setup, setup.read(0, 64));
    }
    let part = setup.engine.take_sampled().expect("a sample");
    let mut counts = [0; 64];
    for (volume, block) in part.blocks {
        assert_eq!(volume, setup.volume);
        counts[usize::try_from(block).expect("small")] += 1;
    }
    let sampled = counts.iter().filter(|&&count| count == 3).count();
    assert!(counts.iter().all(|&count| count == 0 || count == 3));
    assert!((6..=26).contains(&sampled), "{sampled} of 64");

    // What is never read is counted, and costs no memory.
    setup.engine.begin_sampling(1.0);
    for _ in 0..1100 {
        now(&setup, setup.read(0, 64));
    }
    let part = setup.engine.take_sampled().expect("a sample");
    assert_eq!(part.blocks.len(), SampledPart::BLOCKS_MAX);
    assert_eq!(part.lost, 1100 * 64 - part.blocks.len() as u64);
    setup.engine.end_sampling();
    now(&setup, setup.read(5, 1));
    assert_eq!(setup.engine.take_sampled(), None);
}
