//! The calls that a library gets: each once and in order, however many are handed over together. Decisions that depend on
//! all calls before them are those of the same policy called at once.

use futae_policy::{
    Access, AccessKind, Admission, BlockId, Departure, HashIndex, Level, Policy, PolicySpec, Prng,
    RegisteredPolicy, Shape, Slot, build,
};
use kit::library_of_c;

mod kit;

const SLOTS: u32 = 40;

/// The policy of `past.c`.
struct Past {
    slots: u32,
    sum: u64,
    used: Vec<bool>,
    has_miss: bool,
}

impl Past {
    fn new(slots: u32, has_miss: bool) -> Self {
        Self {
            slots,
            sum: 0,
            used: vec![false; slots as usize],
            has_miss,
        }
    }

    fn note(&mut self, call: u64, slot: u32, block: BlockId, why: u64) {
        for value in [call, u64::from(slot), block.raw(), why] {
            self.sum = (self.sum ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            self.sum ^= self.sum >> 32;
        }
    }
}

/// The numbers of `enum futae_kind`.
fn kind(access: &Access) -> u64 {
    match access.kind {
        AccessKind::Read => 0,
        AccessKind::Write => 1,
        AccessKind::Demotion => 2,
        AccessKind::Notice => 3,
        AccessKind::Preload => 4,
    }
}

impl Policy for Past {
    fn miss(&mut self, access: &Access) -> Admission {
        if !self.has_miss {
            return Admission::Admit;
        }
        self.note(1, 0, access.block, kind(access));
        match self.sum % 8 {
            0 => Admission::Bypass,
            _ => Admission::Admit,
        }
    }
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.note(2, slot.0, access.block, kind(access));
        self.used[slot.i()] = true;
    }
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.note(3, slot.0, access.block, kind(access));
    }
    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        if !self.used.contains(&true) {
            return None;
        }
        self.note(4, 0, incoming.block, kind(incoming));
        if self.sum.is_multiple_of(16) {
            return None;
        }
        let first = (self.sum % u64::from(self.slots)) as u32;
        let mut slots = (first..self.slots).chain(0..first);
        slots.find(|&slot| self.used[slot as usize]).map(Slot)
    }
    fn remove(&mut self, slot: Slot, why: Departure) {
        let why = match why {
            Departure::Evicted => 0,
            Departure::Promoted => 1,
            Departure::Invalidated => 2,
        };
        self.note(5, slot.0, BlockId::on_first(0), why);
        self.used[slot.i()] = false;
    }
    fn order(&self) -> Vec<Slot> {
        let slots = (0..self.slots).filter(|&slot| self.used[slot as usize]);
        slots.map(Slot).collect()
    }
    fn audit(&self, _resident: u32) {}
}

/// Has two levels decide on the same random accesses, removals and changes of size, and panics where they differ. Returns how
/// many accesses in a row hit at most.
fn decide_alike<P: Policy>(one: P, other: Box<dyn RegisteredPolicy>, seed: u64) -> u32 {
    let mut one = Level::new(one, HashIndex::default(), SLOTS);
    let mut other = Level::new(other, HashIndex::default(), SLOTS);
    let mut random = Prng::new(seed);
    let (mut in_a_row, mut most) = (0, 0);
    // Few blocks are hit many times in a row, many blocks are evicted often.
    for round in 0..40 {
        let blocks = [SLOTS / 2, SLOTS + 3, 3 * SLOTS, 20 * SLOTS][round % 4];
        for _ in 0..500 {
            let block = BlockId::on_first(random.below(u64::from(blocks)));
            let kind = match random.below(24) {
                0 => AccessKind::Demotion,
                1 => AccessKind::Notice,
                2 => AccessKind::Preload,
                3..10 => AccessKind::Write,
                _ => AccessKind::Read,
            };
            let access = Access::of(block, kind);
            let outcome = one.access(&access);
            assert_eq!(outcome, other.access(&access));
            in_a_row = match outcome {
                futae_policy::Outcome::Hit(_) => in_a_row + 1,
                _ => 0,
            };
            most = most.max(in_a_row);
            if random.below(400) == 0 {
                let why = [Departure::Promoted, Departure::Invalidated][random.below(2) as usize];
                assert_eq!(one.remove(block, why), other.remove(block, why));
                in_a_row = 0;
            }
        }
        let slots = 1 + random.below(u64::from(SLOTS)) as u32;
        for slots in [slots, SLOTS] {
            assert_eq!(one.resize(slots), other.resize(slots));
        }
        assert_eq!(one.counters(), other.counters());
        other.audit();
    }
    let counters = one.counters();
    assert!(counters.hits > 1000 && counters.evictions > 1000 && counters.invalidations > 0);
    most
}

fn loaded(path: &str) -> Box<dyn RegisteredPolicy> {
    let spec: PolicySpec = path.parse().expect("a path");
    let shape = Shape {
        slots: SLOTS,
        seed: 1,
    };
    build(&spec, &shape).expect("a library")
}

#[test]
fn decisions_are_those_of_a_policy_that_is_called_at_once() {
    futae_plugin::enable();
    let folder = tempfile::tempdir().expect("a directory");
    for (name, has_miss) in [("libpast.so", false), ("libasked.so", true)] {
        let more: &[&str] = if has_miss { &["-DMISS"] } else { &[] };
        let Some(path) = library_of_c(folder.path(), name, "tests/past.c", more) else {
            return;
        };
        for seed in 0..4 {
            let most = decide_alike(Past::new(SLOTS, has_miss), loaded(&path), seed);
            // More than are handed over together.
            assert!(most > 200, "only {most} hits in a row");
        }
    }
}

#[test]
fn the_example_in_c_decides_as_lru_does() {
    futae_plugin::enable();
    let folder = tempfile::tempdir().expect("a directory");
    let source = "../../examples/plugins/lru.c";
    let Some(path) = library_of_c(folder.path(), "liblru.so", source, &[]) else {
        return;
    };
    for seed in 0..4 {
        decide_alike(loaded("lru"), loaded(&path), seed);
    }
}
