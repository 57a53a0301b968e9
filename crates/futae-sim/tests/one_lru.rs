//! Two theorems. Strict LRU above an exclusive level is one LRU of both sizes,
//! access by access, and blocks held twice while warming up only ever grow fewer.

mod common;

use common::hierarchy;
use futae_policy::AccessKind;
use futae_sim::Link;
use futae_trace::{BlockStream, WorkloadSpec};
use proptest::prelude::*;

const BLOCKS: u64 = 600;

const WORKLOADS: [&str; 9] = [
    "uniform:600blocks",
    "zipf(0.8):600blocks",
    "zipf(1.2):600blocks",
    "loop:600blocks",
    "normal(0.15):600blocks",
    "mix(0.7*zipf(1.0):300blocks, 0.3*scan:300blocks)",
    "phase(3000*zipf(0.8):200blocks, 3000*loop:300blocks, 3000*uniform:100blocks)",
    "shift(zipf(1.0):600blocks, every=2000)",
    "zipf(0.9,writes=0.3):600blocks",
];

fn requests(workload: &str, seed: u64, count: usize) -> Vec<(u64, AccessKind)> {
    let workload: WorkloadSpec = workload.parse().expect("a workload");
    let mut out = vec![futae_trace::BlockRequest::default(); count];
    workload.generator(4096, seed).expect("fits").fill(&mut out);
    out.iter()
        .map(|request| (request.block(), request.kind()))
        .collect()
}

/// Panics at the first access that one of the two serves and the other does not.
fn equal(upper: u32, lower: u32, blocks: u64, requests: &[(u64, AccessKind)], name: &str) {
    let mut pair = hierarchy(
        &[("lru", upper), ("exclusive", lower)],
        Link::Demote,
        blocks,
    );
    let mut one = hierarchy(&[("lru", upper + lower)], Link::Demote, blocks);
    for (at, &(block, kind)) in requests.iter().enumerate() {
        let (served, expected) = (
            pair.access(0, block, kind) < 2,
            one.access(0, block, kind) < 1,
        );
        assert_eq!(
            served, expected,
            "{name}: {upper} + {lower}, access {at}, block {block}"
        );
    }
    pair.audit();
}

#[test]
fn an_exclusive_pair_is_one_lru_under_every_workload_and_split() {
    let splits = [
        (1, 1),
        (1, 200),
        (200, 1),
        (30, 90),
        (100, 100),
        (150, 50),
        (299, 300),
    ];
    for workload in WORKLOADS {
        for seed in 1..3 {
            let requests = requests(workload, seed, 10_000);
            for (upper, lower) in splits {
                equal(upper, lower, BLOCKS, &requests, workload);
            }
        }
    }
}

proptest! {
    #[test]
    fn an_exclusive_pair_is_one_lru(
        upper in 1u32..10,
        lower in 1u32..10,
        blocks in prop::collection::vec((0u64..24, prop::bool::weighted(0.2)), 0..500),
    ) {
        let kind = |write| if write { AccessKind::Write } else { AccessKind::Read };
        let requests: Vec<_> = blocks.into_iter().map(|(b, write)| (b, kind(write))).collect();
        equal(upper, lower, 24, &requests, "drawn");
    }

    /// The same with the lower level fed by notices: only the cost differs.
    #[test]
    fn notices_place_what_demotions_place(
        upper in 1u32..10,
        lower in 1u32..10,
        blocks in prop::collection::vec(0u64..24, 0..300),
    ) {
        let levels = [("lru", upper), ("exclusive", lower)];
        let mut demoted = hierarchy(&levels, Link::Demote, 24);
        let mut noticed = hierarchy(&levels, Link::Notice, 24);
        for block in blocks {
            let read = AccessKind::Read;
            prop_assert_eq!(demoted.access(0, block, read), noticed.access(0, block, read));
            prop_assert_eq!(demoted.order(0, 1), noticed.order(0, 1));
        }
        prop_assert_eq!(demoted.store().reads, noticed.store().reads);
        prop_assert_eq!(demoted.store().notice_reads, 0);
        let counters = noticed.counters(0, 1);
        prop_assert_eq!(noticed.store().notice_reads, counters.admissions);
        prop_assert_eq!(noticed.counters(0, 0).notices_out, counters.notices_in);
    }
}

#[test]
fn blocks_held_twice_only_grow_fewer_once_the_lower_level_is_full() {
    let (upper, lower) = (20usize, 30usize);
    for workload in [
        "uniform:100blocks",
        "zipf(0.7):150blocks",
        "normal(0.2):120blocks",
    ] {
        let levels = [("lru", upper as u32), ("exclusive", lower as u32)];
        let mut pair = hierarchy(&levels, Link::Demote, BLOCKS);
        let (mut twice, mut full, mut was_positive) = (0, false, false);
        for (at, (block, kind)) in requests(workload, 1, 6_000).into_iter().enumerate() {
            let depth = pair.access(0, block, kind);
            let above = pair.order(0, 0);
            let below = pair.order(0, 1);
            let now = below.iter().filter(|block| above.contains(block)).count();
            let before = std::mem::replace(&mut twice, now);
            if full {
                was_positive |= before > 0;
                let most = if depth == 2 {
                    before.saturating_sub(1)
                } else {
                    before
                };
                assert!(
                    now <= most,
                    "{workload}: access {at}, {before} then {now} twice"
                );
            }
            full |= below.len() == lower;
        }
        assert!(
            was_positive,
            "{workload}: nothing was held twice, the test shows nothing"
        );
        assert_eq!(twice, 0, "{workload}");
    }
}
