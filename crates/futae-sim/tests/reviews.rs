//! Policies that choose their contents: what they ask for by themselves is loaded at once.

mod common;

use common::{guests, hierarchy, run};
use futae_policy::AccessKind::{Read, Write};
use futae_policy::Decision;
use futae_sim::Link;
use futae_sim::replay::{ReplaySpec, replay};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The chosen set is there after the first request; nothing else ever is.
#[test]
fn const_loads_its_set_and_keeps_it() {
    let mut one = hierarchy(&[("const(pin=2-4+9)", 10)], Link::None, 20);
    assert_eq!(one.access(0, 7, Read), 1);
    assert_eq!(one.order(0, 0).len(), 4);
    let served: Vec<u32> = [2, 3, 4, 9, 7, 0]
        .map(|block| one.access(0, block, Read))
        .into();
    assert_eq!(served, [0, 0, 0, 0, 1, 1]);
    let store = one.store();
    assert_eq!(
        (store.reads, store.preload_reads, store.notice_reads),
        (3, 4, 0)
    );
    one.audit();
}

/// Blocks that the disk does not have, or that are another guest's, are not loaded.
#[test]
fn blocks_that_do_not_exist_are_not_loaded() {
    let mut one = hierarchy(&[("const(pin=3-1000000)", 10)], Link::None, 5);
    one.access(0, 0, Read);
    assert_eq!((one.order(0, 0).len(), one.store().preload_reads), (2, 2));
    let levels = [("const(pin=3-1000000)", 10), ("lru", 4)];
    let mut two = guests(&levels, Link::Demote, 5, 2);
    for guest in 0..2 {
        two.access(guest, 0, Write);
        let own: Vec<u64> = two.order(guest, 0);
        let first = u64::from(guest) * 5;
        assert!(
            own.iter().all(|block| (first..first + 5).contains(block)),
            "{own:?}"
        );
    }
    two.audit();
}

/// Section 3.1 of Yoshida, Kourai and Yamaguchi 2018 with small numbers: two slots, a review every two misses, the last six requests. A
/// block is loaded at the review that finds it more frequent than a resident.
#[test]
fn lfu_history_loads_at_its_reviews() {
    let policy = "lfu-history(history=6,review=2,min_gain=0)";
    let mut one = hierarchy(&[(policy, 2)], Link::None, 20);
    let mut seen = Vec::new();
    for block in [1, 1, 2, 2, 3, 3, 3, 3] {
        one.access(0, block, Read);
        let mut held = one.order(0, 0);
        held.sort_unstable();
        seen.push((one.store().preload_reads, held));
    }
    let expected = [
        (0, vec![]),
        (1, vec![1]),
        (1, vec![1]),
        (2, vec![1, 2]),
        (2, vec![1, 2]),
        (2, vec![1, 2]),
        (2, vec![1, 2]),
        // Counts of the last six: 2 twice, 3 four times, 1 never.
        (3, vec![2, 3]),
    ];
    assert_eq!(seen, expected);
    assert_eq!(one.store().reads, 8, "no request was for a resident block");
}

/// A policy's own choice evicts as a request does: the victim goes where the link says.
#[test]
fn a_victim_of_a_preload_is_sent_down() {
    let upper = "lfu-history(history=6,review=2,min_gain=0)";
    let mut two = hierarchy(&[(upper, 1), ("fifo", 4)], Link::Demote, 20);
    for block in [1, 1, 2, 2, 2, 2, 2, 2] {
        two.access(0, block, Read);
    }
    assert_eq!(two.order(0, 0), [2]);
    assert_eq!(two.counters(0, 0).demotions_out, 1);
    assert_eq!(two.counters(0, 1).demotions_in, 1);
    two.audit();
}

/// The fast machine counts as the general one does, and a log of a choosing policy replays.
#[test]
fn logs_of_choosing_policies_replay() {
    for policy in [
        "lfu-history(swaps_per_review=3,min_gain=0)",
        "const",
        "lfu-history(prefill=true)",
    ] {
        let mut one = hierarchy(&[(policy, 16)], Link::None, 64);
        let log = Arc::new(Mutex::new(String::new()));
        let lines = Arc::clone(&log);
        let write = move |decision: &Decision| {
            let mut log = lines.lock().expect("no panic before");
            log.push_str(&format!("{decision}\n"));
        };
        one.set_log(0, 0, Box::new(write));
        let mut prng = futae_policy::Prng::new(5);
        for _ in 0..3000 {
            let block = (prng.bits() % 64).min(prng.bits() % 64);
            one.access(0, block, Read);
        }
        let log = log.lock().expect("no panic before");
        assert!(log.contains("preload"), "{policy}");
        let spec = ReplaySpec {
            policy: policy.parse().expect("a policy"),
            slots: 16,
            seed: 1,
        };
        let replayed = replay(&spec, log.as_bytes(), Path::new("log")).expect("a log");
        assert_eq!(replayed.difference, None, "{policy}");
    }
}

/// Section 4 of the same paper: below a cache of the chosen set, the host's LRU sees a small stable set and serves it
/// all; below the paper's literal LFU it does not, for most of what comes is swaps.
#[test]
fn a_chosen_set_above_makes_the_host_cache_work() {
    let workload = "uniform:32blocks";
    let set = run(
        &["const:21blocks", "lru:11blocks"],
        Some(Link::None),
        workload,
        (10, 300),
    );
    assert_eq!(set.levels[1].hit_ratio, Some(1.0));
    assert_eq!(
        (set.store_reads, set.preload_reads),
        (0, 0),
        "all before counting began"
    );
    let literal = "lfu-history(min_gain=0):21blocks";
    let literal = run(
        &[literal, "lru:11blocks"],
        Some(Link::None),
        workload,
        (10, 300),
    );
    let gaining = run(
        &["lfu-history:21blocks", "lru:11blocks"],
        Some(Link::None),
        workload,
        (10, 300),
    );
    let per_request = |run: &futae_sim::Run| run.preload_reads as f64 / run.requests as f64;
    assert!(per_request(&literal) > 0.02, "{}", per_request(&literal));
    assert!(per_request(&gaining) < per_request(&literal) / 10.0);
}
