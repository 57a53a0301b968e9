//! What crosses the boundaries of a hierarchy, in which order, and that every machine and the
//! replay of a log agree on it.

mod common;

use common::{SEED, guests, hierarchy, shape};
use futae_policy::{AccessKind, Counters, Decision, Kind};
use futae_sim::batch::Asked;
use futae_sim::machine::{self, Machine, Served};
use futae_sim::replay::{ReplaySpec, replay};
use futae_sim::{Hierarchy, Link};
use futae_trace::{BlockRequest, BlockStream, WorkloadSpec};
use std::path::Path;
use std::sync::{Arc, Mutex};

const READ: AccessKind = AccessKind::Read;
const WRITE: AccessKind = AccessKind::Write;

/// The decisions of all levels of one guest, in the order in which they were taken, each with its
/// level.
fn logged(hierarchy: &mut Hierarchy, guest: u32) -> Arc<Mutex<Vec<(usize, Decision)>>> {
    let log = Arc::new(Mutex::new(Vec::new()));
    for level in 0..hierarchy.levels() {
        let log = Arc::clone(&log);
        let write = move |decision: &Decision| {
            log.lock()
                .expect("no panic before")
                .push((level, *decision));
        };
        hierarchy.set_log(guest, level, Box::new(write));
    }
    log
}

fn lines(log: &Mutex<Vec<(usize, Decision)>>) -> Vec<String> {
    let mut log = log.lock().expect("no panic before");
    log.drain(..)
        .map(|(level, decision)| format!("{level}: {decision}"))
        .collect()
}

#[test]
fn the_order_of_events_is_decision_then_read_then_demotion() {
    let levels = [("lru", 1), ("exclusive", 1), ("fifo", 2)];
    let mut three = hierarchy(&levels, Link::Demote, 10);
    let log = logged(&mut three, 0);
    assert_eq!(three.access(0, 1, READ), 3, "from the store");
    assert_eq!(
        lines(&log),
        [
            "0: read 0 1 admit",
            "1: read 0 1 bypass",
            "2: read 0 1 admit"
        ]
    );
    assert_eq!(three.access(0, 2, READ), 3);
    let expected = [
        "0: read 0 2 admit 0 1",
        "1: read 0 2 bypass",
        "2: read 0 2 admit",
    ];
    assert_eq!(
        lines(&log),
        [&expected[..], &["1: demotion 0 1 admit"]].concat()
    );
    assert_eq!(three.access(0, 3, READ), 3);
    let expected = [
        "0: read 0 3 admit 0 2",
        "1: read 0 3 bypass",
        "2: read 0 3 admit 0 1",
        // What a middle level evicts for a demotion goes down its own link; the lowest level
        // evicts to nowhere.
        "1: demotion 0 2 admit 0 1",
        "2: demotion 0 1 admit 0 2",
    ];
    assert_eq!(lines(&log), expected);
    assert_eq!(three.access(0, 1, READ), 2, "from the lowest level");
    assert_eq!(three.access(0, 3, READ), 1, "from the middle level");
    assert_eq!(three.access(0, 3, READ), 0, "from the top");
    assert_eq!(three.store().reads, 3);
}

#[test]
fn a_write_goes_down_all_levels_even_where_it_hits() {
    let mut two = hierarchy(&[("lru", 2), ("lru", 2)], Link::None, 10);
    let log = logged(&mut two, 0);
    two.access(0, 1, READ);
    lines(&log);
    assert_eq!(two.access(0, 1, WRITE), 0, "served by the top");
    assert_eq!(lines(&log), ["0: write 0 1 hit", "1: write 0 1 hit"]);
    assert_eq!(two.access(0, 2, WRITE), 2);
    assert_eq!(lines(&log), ["0: write 0 2 admit", "1: write 0 2 admit"]);
    assert_eq!(
        (two.store().reads, two.store().writes),
        (1, 2),
        "writes need no read"
    );
}

#[test]
fn an_inclusive_link_tells_nothing_and_a_notice_costs_a_read_only_where_it_is_admitted() {
    let levels = [("lru", 1), ("fix", 1)];
    for link in Link::ALL {
        // The lower level keeps the block read first and declines every other.
        let mut two = hierarchy(&levels, link, 10);
        for block in 1..5 {
            two.access(0, block, READ);
        }
        let lower = two.counters(0, 1);
        let (demotions, notices) = match link {
            Link::None => (0, 0),
            Link::Demote => (3, 0),
            Link::Notice => (0, 3),
        };
        assert_eq!(
            (lower.demotions_in, lower.notices_in),
            (demotions, notices),
            "{link}"
        );
        let upper = two.counters(0, 0);
        assert_eq!(
            (upper.demotions_out, upper.notices_out),
            (demotions, notices),
            "{link}"
        );
        assert_eq!((lower.requests, two.store().reads), (4, 4), "{link}");
        assert_eq!(two.store().notice_reads, 0, "{link}: all declined");
    }
    let mut three = hierarchy(
        &[("lru", 1), ("exclusive", 2), ("lru", 5)],
        Link::Notice,
        10,
    );
    for block in 1..4 {
        three.access(0, block, READ);
    }
    assert_eq!(three.store().notice_reads, 2, "one for each admitted");
    assert_eq!(three.counters(0, 2).requests, 3, "past the levels below");
}

#[test]
fn an_invalidated_block_is_gone_at_every_level() {
    let mut two = hierarchy(&[("lru", 4), ("lru", 8)], Link::None, 10);
    two.access(0, 1, READ);
    two.invalidate(0, 1);
    assert_eq!(
        (
            two.counters(0, 0).invalidations,
            two.counters(0, 1).invalidations
        ),
        (1, 1)
    );
    assert_eq!(two.access(0, 1, READ), 2);
    two.audit();
}

#[test]
fn guests_share_the_last_level_and_nothing_else() {
    let mut two = guests(&[("lru", 2), ("lru", 3)], Link::None, 10, 2);
    assert_eq!(two.access(0, 1, READ), 2);
    assert_eq!(
        two.access(1, 1, READ),
        2,
        "another guest's block 1 is another block"
    );
    assert_eq!(two.access(1, 2, READ), 2);
    assert_eq!((two.order(0, 0), two.order(1, 0)), (vec![1], vec![12, 11]));
    assert_eq!(two.order(0, 1), [12, 11, 1]);
    two.access(1, 3, READ);
    assert_eq!(
        two.order(1, 1),
        [13, 12, 11],
        "guest 1 pushed out the block of guest 0"
    );
    two.invalidate(0, 1);
    assert_eq!(two.access(1, 1, READ), 1);
}

const BLOCKS: u64 = 300;

fn stream(guests: u64) -> Vec<BlockRequest> {
    let size = guests * BLOCKS;
    let workload = format!("zipf(0.7,writes=0.2):{size}blocks");
    let workload: WorkloadSpec = workload.parse().expect("a workload");
    let mut requests = vec![BlockRequest::default(); 20_000];
    workload
        .generator(4096, SEED)
        .expect("fits")
        .fill(&mut requests);
    requests
}

/// The machines made for speed against the general hierarchy, access by access in effect: equal
/// counts after every batch.
#[test]
fn fast_machines_count_what_the_general_one_counts() {
    let policies = Kind::ALL.iter().map(|kind| kind.name());
    for policy in policies.chain(["linux(readahead=8)"]) {
        for link in Link::ALL {
            for (levels, guests) in [
                (vec![(policy, 50)], 1),
                (vec![(policy, 50)], 3),
                (vec![("lru", 40), (policy, 50)], 1),
                (vec![(policy, 40), ("arc", 50)], 3),
                (vec![("lru", 20), (policy, 30), ("sieve", 50)], 2),
            ] {
                let shape = shape(&levels, link, BLOCKS, guests);
                let mut fast = machine::build(&shape).expect("known policies");
                let mut general = Hierarchy::new(&shape).expect("known policies");
                for batch in stream(u64::from(guests))[..10_000].chunks(777) {
                    // All levels and the store, for each guest.
                    let mut served = [[Served::default(); 3 * 4]; 2];
                    Machine::feed(
                        &mut general,
                        &Asked::default().put_down(batch),
                        &mut served[0],
                    );
                    fast.feed(&Asked::default().put_down(batch), &mut served[1]);
                    assert_eq!(served[0], served[1], "{levels:?}, {link}");
                    let expected: Vec<Counters> = Machine::counters(&general);
                    assert_eq!(fast.counters(), expected, "{levels:?}, {link}");
                    assert_eq!(fast.store(), *general.store(), "{levels:?}, {link}");
                }
            }
        }
    }
}

/// Counts that must add up at every boundary, for every policy and link, with several guests.
#[test]
fn counts_add_up_at_every_boundary() {
    for kind in Kind::ALL {
        for link in Link::ALL {
            let levels = [(kind.name(), 20), ("fifo", 30), (kind.name(), 60)];
            let shape = shape(&levels, link, BLOCKS, 2);
            let mut three = Hierarchy::new(&shape).expect("known policies");
            Machine::feed(
                &mut three,
                &Asked::default().put_down(&stream(2)),
                &mut [Served::default(); 4 * 2],
            );
            three.audit();
            let all = Machine::counters(&three);
            let at = format!("{}, {link}", kind.name());
            let writes = three.store().writes;
            for (above, below) in all.iter().zip(&all[1..]) {
                assert!(
                    below.requests >= above.misses,
                    "{at}: every miss is asked of the next"
                );
                assert!(
                    below.requests <= above.misses + writes,
                    "{at}: and writes besides"
                );
                assert_eq!(above.demotions_out, below.demotions_in, "{at}");
                assert_eq!(above.notices_out, below.notices_in, "{at}");
                let sent = above.demotions_out + above.notices_out;
                let expected = if link == Link::None {
                    0
                } else {
                    above.evictions
                };
                assert_eq!(sent, expected, "{at}: evictions sent down");
            }
        }
    }
}

/// The log of every level, replayed on a fresh one, gives the same decisions; and a log with one
/// decision changed is found out at its line.
#[test]
fn logs_replay() {
    for kind in Kind::ALL {
        let shape = shape(&[("lru", 40), (kind.name(), 50)], Link::Demote, BLOCKS, 1);
        let mut two = Hierarchy::new(&shape).expect("known policies");
        let log = logged(&mut two, 0);
        Machine::feed(
            &mut two,
            &Asked::default().put_down(&stream(1)[..3000]),
            &mut [Served::default(); 3],
        );
        let log = log.lock().expect("no panic before");
        for level in 0..2 {
            let own = log.iter().filter(|(at, _)| *at == level);
            let lines: Vec<String> = own.map(|(_, decision)| decision.to_string()).collect();
            let spec = ReplaySpec {
                policy: shape.levels[level].policy.clone(),
                slots: shape.levels[level].slots,
                seed: shape.policy_seed(0, level),
            };
            let name = Path::new("level.log");
            let same = replay(&spec, lines.join("\n").as_bytes(), name).expect("a log");
            assert_eq!(same.difference, None, "{}, level {level}", kind.name());
            assert_eq!(same.decisions, lines.len() as u64);
            let mut changed = lines;
            let last = changed.len() - 1;
            let to = if changed[last].ends_with("hit") {
                "bypass"
            } else {
                "hit"
            };
            let fields: Vec<&str> = changed[last].split(' ').take(3).collect();
            changed[last] = format!("{} {to}", fields.join(" "));
            let other = replay(&spec, changed.join("\n").as_bytes(), name).expect("a log");
            let difference = other.difference.expect("one decision was changed");
            assert_eq!(difference.line, changed.len() as u64);
        }
    }
}
