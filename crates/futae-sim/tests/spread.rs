//! A run whose parts have threads of their own comes to what it comes to on one thread.

mod common;

use common::{SEED, shape, spec};
use futae_policy::replace::lru::Lru;
use futae_policy::{Access, DenseIndex, Departure, Level, Policy, SimulatorHints, Slot, SpecError};
use futae_sim::batch::{Asked, Batch, Batches};
use futae_sim::machine::{self, Cascade, Machine, Served};
use futae_sim::{BackedIndex, Hierarchy, Link, Report, SimulationSpec, simulate_all};
use futae_trace::{BlockRequest, BlockStream, WorkloadSpec};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

const BLOCKS: u32 = 300;

/// Requests with their lengths, in batches of a number that nothing divides.
struct Kept {
    requests: Vec<BlockRequest>,
    bytes: Vec<u32>,
}

impl Kept {
    fn new(guests: u32, count: usize) -> Self {
        let workload = format!("zipf(0.7,writes=0.2):{}blocks", guests * BLOCKS);
        let workload: WorkloadSpec = workload.parse().expect("a workload");
        let mut requests = vec![BlockRequest::default(); count];
        workload
            .generator(4096, SEED)
            .expect("fits")
            .fill(&mut requests);
        let bytes = (0..count as u32).map(|at| 512 * (1 + at % 9)).collect();
        Self { requests, bytes }
    }
}

impl Batches for Kept {
    fn each(&mut self, take: &mut dyn FnMut(&Batch<'_>) -> bool) {
        let mut asked = Asked::default();
        for (requests, bytes) in self.requests.chunks(777).zip(self.bytes.chunks(777)) {
            let batch = Batch {
                bytes,
                ..asked.put_down(requests)
            };
            if !take(&batch) {
                return;
            }
        }
    }
}

#[test]
fn levels_count_the_same_on_threads_of_their_own() {
    for (policy, link, guests) in [
        ("exclusive", Link::Demote, 1),
        ("inferred", Link::None, 2),
        ("linux(readahead=8)", Link::Notice, 3),
        ("lfu-history", Link::Demote, 2),
    ] {
        for levels in [
            vec![("lru", 40), (policy, 50)],
            vec![(policy, 40), ("arc", 50)],
            vec![("lru", 20), (policy, 30), ("sieve", 50)],
        ] {
            let shape = shape(&levels, link, u64::from(BLOCKS), guests);
            let mut spread = machine::build(&shape).expect("known policies");
            let mut general = Hierarchy::new(&shape).expect("known policies");
            let mut served = [[Served::default(); 3 * 4]; 2];
            general.feed_all(&mut Kept::new(guests, 20_000), &mut served[0]);
            spread.feed_spread(&mut Kept::new(guests, 20_000), &mut served[1]);
            let what = format!("{levels:?}, {link}, {guests} guests");
            assert_eq!(served[0], served[1], "{what}");
            assert_eq!(spread.counters(), Machine::counters(&general), "{what}");
            assert_eq!(spread.store(), *general.store(), "{what}");
        }
    }
}

fn on(threads: usize, spec: &SimulationSpec) -> Report {
    let specs = std::slice::from_ref(spec);
    let mut report = simulate_all(specs, threads, &|_| {}).expect("a simulation");
    report.runs[0].seconds = 0.0;
    report
}

#[test]
fn results_do_not_depend_on_the_threads() {
    let one = ["arc:700blocks"];
    let two = ["lru:400blocks", "exclusive:700blocks"];
    let three = ["lru:400blocks", "sieve:500blocks", "lru:700blocks"];
    for levels in [&one[..], &two, &three] {
        for guests in [1, 2] {
            let mut spec = spec(levels, None, "zipf(0.9,writes=0.1):3000blocks", (9, 23));
            spec.guests = guests;
            let single = serde_json::to_value(on(1, &spec)).expect("JSON");
            let spread = serde_json::to_value(on(2, &spec)).expect("JSON");
            assert_eq!(single, spread, "{levels:?}, {guests} guests");
        }
    }
}

#[test]
fn progress_can_end_a_run_on_several_threads() {
    let mut spec = spec(
        &["lru:400blocks", "lru:700blocks"],
        None,
        "uniform:3000blocks",
        (0, 1),
    );
    spec.requests = Some(1 << 40);
    let thrown = catch_unwind(AssertUnwindSafe(|| {
        simulate_all(&[spec], 2, &|done| {
            if done > 1e-6 {
                std::panic::panic_any("enough");
            }
        })
    }));
    let thrown = thrown.expect_err("it was ended");
    assert_eq!(thrown.downcast_ref(), Some(&"enough"));
}

#[test]
fn progress_is_asked_while_requests_are_drawn_in_advance() {
    let mut spec = spec(&["opt:400blocks"], None, "uniform:3000blocks", (0, 1));
    spec.requests = Some(3 << 20);
    let asked = AtomicU32::new(0);
    let thrown = catch_unwind(AssertUnwindSafe(|| {
        simulate_all(&[spec], 1, &|done| {
            assert_eq!(done, 0.0, "nothing is simulated yet");
            if asked.fetch_add(1, Ordering::Relaxed) == 2 {
                std::panic::panic_any("enough");
            }
        })
    }));
    let thrown = thrown.expect_err("it was ended");
    assert_eq!(thrown.downcast_ref(), Some(&"enough"));
}

/// LRU, with a fault from its 100th miss on.
struct Failing {
    lru: Lru,
    misses: u32,
    fault: SpecError,
}

impl SimulatorHints for Failing {}

impl Policy for Failing {
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.misses += 1;
        self.lru.insert(slot, access);
    }
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.lru.hit(slot, access);
    }
    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        self.lru.victim(incoming)
    }
    fn remove(&mut self, slot: Slot, why: Departure) {
        self.lru.remove(slot, why);
    }
    fn order(&self) -> Vec<Slot> {
        self.lru.order()
    }
    fn audit(&self, resident: u32) {
        self.lru.audit(resident);
    }
    fn fault(&self) -> Option<&SpecError> {
        (self.misses >= 100).then_some(&self.fault)
    }
}

/// The same reads again and again, without an end.
struct Endless;

impl Batches for Endless {
    fn each(&mut self, take: &mut dyn FnMut(&Batch<'_>) -> bool) {
        let blocks: Vec<u32> = (0..BLOCKS).collect();
        let batch = Batch {
            blocks: &blocks,
            ..Batch::default()
        };
        while take(&batch) {}
    }
}

#[test]
fn a_policy_that_fails_below_ends_the_run() {
    let fault = SpecError::Syntax {
        text: "failing".to_owned(),
        problem: "it fails",
    };
    let failing = Failing {
        lru: Lru::new(50),
        misses: 0,
        fault,
    };
    let mut machine = Cascade::of_two(
        Level::new(Lru::new(40), BackedIndex::new(0), 40),
        Link::None,
        Level::new(failing, DenseIndex::new(BLOCKS as usize), 50),
        u64::from(BLOCKS),
    );
    machine.feed_spread(&mut Endless, &mut [Served::default(); 3]);
    assert!(machine.fault().is_some());
}
