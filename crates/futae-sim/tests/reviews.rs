//! Policies that choose their contents: what they ask for by themselves is loaded at once.

mod common;

use common::{guests, hierarchy, run};
use futae_policy::AccessKind::{Read, Write};
use futae_policy::{Decision, Prng};
use futae_sim::replay::{ReplaySpec, replay};
use futae_sim::run::{Neighbours, Reading, TraceSimulation, Traces, ViewChoice};
use futae_sim::{Link, SimulationError, WriteMode, links};
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
        let mut prng = Prng::new(5);
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

/// What a guest's kernel reads ahead comes from the host's cache, as what its programs ask for does.
#[test]
fn what_is_read_ahead_is_read_through_the_level_below() {
    let levels = [("linux(readahead=32)", 100), ("lru", 100)];
    let mut two = guests(&levels, Link::None, 200, 2);
    // Windows of 4, 8, 16, 32 and 32 blocks are there when they are asked for; only the first block is waited for.
    let served = (0..60).map(|block| two.access(1, block, Read));
    assert_eq!(served.sum::<u32>(), 2);
    let lower = two.counters(1, 1);
    assert_eq!((lower.requests, lower.misses), (92, 92));
    assert_eq!((two.store().reads, two.store().preload_reads), (92, 0));
    two.audit();
    // Alone, over the store, and no further than the disk goes.
    let mut one = hierarchy(&[("mglru(readahead=32)", 40)], Link::None, 20);
    for block in 0..20 {
        one.access(0, block, Read);
    }
    assert_eq!((one.store().reads, one.store().preload_reads), (1, 19));
    one.audit();
}

/// In a trace, neighbours are those of the disk, whatever was accessed first; and what nobody asks for is read ahead, too.
#[test]
fn a_trace_is_read_ahead_by_the_places_of_its_blocks() {
    // Short runs from anywhere, backwards, and a run that all others lie in or beside.
    let mut prng = Prng::new(7);
    let mut reads: Vec<u64> = (0..300)
        .flat_map(|_| {
            let (first, length) = (5 + prng.below(3000), prng.below(9));
            first..first + length
        })
        .collect();
    reads.extend((100..140).rev());
    reads.extend(1000..1500);
    let last = reads.iter().copied().max().expect("reads");
    let mut direct = hierarchy(
        &[("linux(readahead=32)", 200), ("lru", 500)],
        Link::None,
        last + 33,
    );
    for &block in &reads {
        direct.access(0, block, Read);
    }
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("reads.txt");
    let lines: Vec<String> = reads.iter().map(ToString::to_string).collect();
    std::fs::write(&path, lines.join("\n")).expect("a trace");
    let levels = ["linux(readahead=32):200blocks", "lru:500blocks"];
    let levels = levels.map(|text| text.parse().expect("a level")).to_vec();
    let spec = TraceSimulation {
        links: links(&levels, Some(Link::None)),
        levels,
        write_mode: WriteMode::WriteThrough,
        seed: 1,
        warmup_requests: 0,
        requests: None,
    };
    let simulate = |neighbours: Neighbours, view: ViewChoice| {
        let reading = Reading {
            options: vec![futae_trace::TraceOptions::default()],
            view,
            neighbours,
            ..Reading::default()
        };
        let traces = Traces::read_guests(std::slice::from_ref(&path), &reading, &mut |_| ())?;
        traces.simulate(std::slice::from_ref(&spec), 4096, 1, &|_| ())
    };
    let report = simulate(Neighbours::UsedByAll, ViewChoice::Usual).expect("it is simulated");
    let (run, store) = (&report.runs[0], direct.store());
    assert_eq!(run.store_reads, store.reads);
    assert!(
        store.reads > reads.len() as u64 / 2,
        "the disk is read for more than a few"
    );
    for level in 0..2 {
        assert_eq!(run.levels[level].counters, direct.counters(0, level));
    }
    let error = simulate(Neighbours::Unused, ViewChoice::Usual).expect_err("places are needed");
    assert!(matches!(error, SimulationError::Neighbours(_)), "{error}");
    let error =
        simulate(Neighbours::UsedByAll, ViewChoice::Start).expect_err("starts have no neighbours");
    assert!(matches!(error, SimulationError::NoNeighbours), "{error}");
}
