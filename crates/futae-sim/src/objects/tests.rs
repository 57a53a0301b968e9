//! Caches of objects against plain models, and against levels where all objects have one size.

use super::{Lives, ObjectCache, ObjectSimulation, simulate};
use crate::index::BackedIndex;
use crate::run::{Traces, ViewChoice};
use futae_policy::{
    Access, AccessKind, BlockId, Kind, Level, Prng, Shape, SimulatorHints, Trait, build,
};
use futae_trace::TraceOptions;
use futae_units::Size;

fn cache(policy: &str, capacity: u64, largest: Option<u64>) -> ObjectCache {
    let spec = policy.parse().expect("a policy");
    let shape = Shape { slots: 1, seed: 7 };
    let mut policy = build(&spec, &shape).expect("it is built");
    policy.number_blocks(0);
    ObjectCache::new(policy, capacity, largest)
}

/// An object that a model holds.
#[derive(Clone, Copy)]
struct Object {
    number: u32,
    bytes: u64,
    /// Uses or marks, as the policy has them.
    uses: u64,
    /// What the policy goes by.
    key: f64,
    used_at: u64,
}

/// A plain model: a list, oldest first, of which `victim` says who goes next.
struct Model {
    held: Vec<Object>,
    /// Where a hand stands that goes round.
    hand: usize,
    floor: f64,
    now: u64,
    name: &'static str,
}

impl Model {
    fn hit(&mut self, at: usize) {
        let floor = self.floor;
        let held = &mut self.held[at];
        held.used_at = self.now;
        match self.name {
            "lru" => {
                let object = self.held.remove(at);
                self.held.push(object);
            }
            "sieve" => held.uses = 1,
            "gdsf" => {
                held.uses += 1;
                held.key = floor + held.uses as f64 * 1e6 / held.bytes as f64;
            }
            _ => {}
        }
    }

    /// The place of the next victim in the list.
    fn victim(&mut self) -> usize {
        match self.name {
            // From where the hand stood towards the newest; nobody moves.
            "sieve" => loop {
                if self.hand >= self.held.len() {
                    self.hand = 0;
                }
                if self.held[self.hand].uses == 0 {
                    return self.hand;
                }
                self.held[self.hand].uses = 0;
                self.hand += 1;
            },
            "gdsf" => {
                let least = |a: &usize, b: &usize| {
                    let (a, b) = (&self.held[*a], &self.held[*b]);
                    a.key.total_cmp(&b.key).then(a.used_at.cmp(&b.used_at))
                };
                (0..self.held.len()).min_by(least).expect("there is one")
            }
            _ => 0,
        }
    }

    fn access(&mut self, number: u32, bytes: u64, capacity: u64, largest: u64) -> bool {
        self.now += 1;
        if let Some(at) = self.held.iter().position(|held| held.number == number) {
            self.hit(at);
            return true;
        }
        if bytes > largest.min(capacity) {
            return false;
        }
        let key = self.floor + 1e6 / bytes as f64;
        while self.bytes() + bytes > capacity {
            let at = self.victim();
            if self.name == "gdsf" && key < self.held[at].key {
                self.floor = key;
                return false;
            }
            let gone = self.held.remove(at);
            self.floor = gone.key;
            // Past the newest it begins with the oldest again, not with who comes next.
            if self.hand >= self.held.len() {
                self.hand = 0;
            }
        }
        self.held.push(Object {
            number,
            bytes,
            uses: u64::from(self.name == "gdsf"),
            key,
            used_at: self.now,
        });
        false
    }

    fn bytes(&self) -> u64 {
        self.held.iter().map(|held| held.bytes).sum()
    }
}

#[test]
fn objects_of_all_sizes_fare_as_in_a_plain_model() {
    for name in ["fifo", "lru", "sieve", "gdsf"] {
        for seed in 0..30 {
            let mut prng = Prng::new(seed);
            let capacity = 1 + prng.below(2000);
            let largest = if seed % 3 == 0 { 150 } else { u64::MAX };
            let mut cache = cache(name, capacity, (seed % 3 == 0).then_some(largest));
            let mut model = Model {
                held: Vec::new(),
                hand: 0,
                floor: 0.0,
                now: 0,
                name,
            };
            let objects = 2 + prng.below(60);
            let (mut hits, mut missed) = (0, 0);
            for step in 0..3000 {
                let number = prng.below(objects).min(prng.below(objects)) as u32;
                let bytes = 1 + u64::from(number) * 7919 % 400;
                let hit = cache.access(number, bytes as u32, AccessKind::Read);
                let expected = model.access(number, bytes, capacity, largest);
                let at = format!("{name}, seed {seed}, step {step}, object {number} of {bytes}");
                assert_eq!(hit, expected, "{at}");
                let resident = (model.held.len() as u64, model.bytes());
                assert_eq!(cache.resident(), resident, "{at}");
                cache.audit();
                hits += u64::from(hit);
                missed += if hit { 0 } else { bytes };
            }
            let counts = cache.counts();
            assert_eq!((counts.hits, counts.missed_bytes), (hits, missed));
            assert_eq!(
                counts.misses,
                counts.admissions + counts.too_large + counts.declined
            );
            assert_eq!(counts.requests, counts.hits + counts.misses);
        }
    }
}

/// What makes a policy one of objects: where all have one size, it decides as in a level, whatever number of slots it was built for.
#[test]
fn objects_of_one_size_fare_as_blocks_do() {
    const BYTES: u32 = 100;
    let all = Kind::ALL
        .iter()
        .filter(|kind| kind.traits().contains(&Trait::AnySize));
    for kind in all {
        for slots in [1, 2, 7, 64] {
            let shape = Shape { slots, seed: 7 };
            let spec = kind.name().parse().expect("a policy");
            let mut policy = build(&spec, &shape).expect("it is built");
            policy.number_blocks(0);
            let mut level = Level::new(policy, BackedIndex::new(0), slots);
            // Not a whole object more.
            let capacity = u64::from(slots * BYTES + BYTES - 1);
            let mut cache = cache(kind.name(), capacity, None);
            let mut prng = Prng::new(3);
            for step in 0..5000 {
                let object = prng.below(200).min(prng.below(200));
                let block = BlockId::on_first(object);
                let wanted = matches!(
                    level.access(&Access::read(block)),
                    futae_policy::Outcome::Hit(_)
                );
                let hit = cache.access(object as u32, BYTES, AccessKind::Read);
                assert_eq!(hit, wanted, "{}, {slots} slots, step {step}", kind.name());
            }
        }
    }
}

#[test]
fn an_object_keeps_its_size_until_it_leaves_and_none_takes_no_room() {
    let mut cache = cache("lru", 10, Some(6));
    assert!(!cache.access(0, 4, AccessKind::Read));
    assert!(cache.access(0, 9, AccessKind::Write));
    assert_eq!(cache.resident(), (1, 4));
    assert!(!cache.access(1, 7, AccessKind::Read));
    assert_eq!(cache.counts().too_large, 1);
    assert!(!cache.access(2, 0, AccessKind::Read));
    assert_eq!(cache.resident(), (2, 5));
    assert!(!cache.access(3, 6, AccessKind::Read));
    assert_eq!(cache.resident(), (2, 7));
    assert_eq!(
        (cache.counts().evictions, cache.counts().evicted_bytes),
        (1, 4)
    );
}

#[test]
fn an_object_whose_time_is_over_is_a_miss_and_leaves_its_room() {
    let mut cache = cache("lru", 10, None);
    let read = AccessKind::Read;
    assert!(!cache.access_at(0, 4, read, 0, 5));
    assert!(!cache.access_at(1, 6, read, 1, super::cache::NEVER));
    assert!(
        cache.access_at(0, 4, read, 4, 9),
        "a hit does not lengthen its life"
    );
    assert!(!cache.access_at(0, 4, read, 5, 10));
    assert!(
        cache.access_at(0, 4, AccessKind::Write, 9, 14),
        "a write does"
    );
    assert!(cache.access_at(0, 4, read, 13, 18));
    assert!(
        !cache.access_at(0, 2, read, 14, 19),
        "placed anew, with the size that it has now"
    );
    assert!(cache.access_at(1, 6, read, 1 << 60, 0));
    assert_eq!((cache.counts().expired, cache.counts().evictions), (2, 0));
    assert_eq!(cache.resident(), (2, 8));
    cache.audit();
    // Where an object has gone whose time was over, others need not go.
    assert!(!cache.access_at(2, 2, read, 20, 30));
    assert_eq!(cache.counts().evictions, 0);
}

#[test]
fn a_time_to_live_is_a_time_or_none() {
    assert_eq!("1h".parse(), Ok(Lives::Micros(3_600_000_000)));
    assert_eq!("1500ms".parse(), Ok(Lives::Micros(1_500_000)));
    assert_eq!("none".parse(), Ok(Lives::Ever));
    for bad in ["", "0s", "5", "-1s", "never"] {
        assert!(bad.parse::<Lives>().is_err(), "{bad}");
    }
}

/// Nothing is counted where nothing is to be counted, not even the warm-up.
#[test]
fn a_warm_up_without_requests_after_it_is_not_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("objects.csv");
    std::fs::write(&path, "key,length\na,100\nb,50\na,100\nb,50\n").expect("a trace");
    let options = TraceOptions {
        sizes: true,
        ..TraceOptions::default()
    };
    let traces = Traces::read(&[path], &options, ViewChoice::Start, &mut |_| {});
    let traces = traces.expect("a trace");
    let of = |warmup_requests, requests| {
        let simulation = ObjectSimulation {
            policy: "lru".parse().expect("a policy"),
            size: Size::Bytes(1000),
            admit_bytes_max: None,
            lives: Lives::Ever,
            seed: 1,
            warmup_requests,
            requests: Some(requests),
        };
        let report = simulate(&traces, &[simulation], 1, &|_| {}).expect("a run");
        let run = &report.runs[0];
        (run.counts.requests, run.counts.hits, run.resident_objects)
    };
    assert_eq!(of(3, 1), (1, 1, 2));
    assert_eq!(of(3, 0), (0, 0, 2));
    assert_eq!(of(0, 0), (0, 0, 0));
}
