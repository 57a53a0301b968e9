//! On a loop longer than both caches, the proposed policy of Sugimoto and Yamaguchi 2015 has no
//! hits. And its likeliest mistake: demoting at the end of the next victim. The paper's
//! own experiment cannot tell that policy from the right one; skewed and looping reads can.

mod common;

use common::{lower_hit, run};
use futae_policy::replace::lru::Lru;
use futae_policy::structures::Queues;
use futae_policy::{
    Access, Admission, Counters, DenseIndex, Departure, Level, Policy, SimulatorHints, Slot,
};
use futae_sim::batch::Asked;
use futae_sim::machine::{Cascade, Machine, Served};
use futae_sim::{BackedIndex, Link, theory};
use futae_trace::{BlockRequest, BlockStream, WorkloadSpec};

/// The exclusive policy with the mistake: a demoted block is the next victim.
struct WrongEnd(Queues);

const HEAD_FIRST: usize = 0;

impl SimulatorHints for WrongEnd {}

impl Policy for WrongEnd {
    fn miss(&mut self, access: &Access) -> Admission {
        if access.kind.is_demand() {
            Admission::Bypass
        } else {
            Admission::Admit
        }
    }
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.0.push_front(HEAD_FIRST, slot);
    }
    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.0.remove(slot);
        self.0.push_front(HEAD_FIRST, slot);
    }
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        self.0.front(HEAD_FIRST)
    }
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.0.remove(slot);
    }
    fn order(&self) -> Vec<Slot> {
        self.0.iter_back(HEAD_FIRST).collect()
    }
    fn audit(&self, resident: u32) {
        assert_eq!(self.0.len(HEAD_FIRST), resident);
    }
}

/// The lower hit ratio of the wrong policy.
fn wrong(upper: u32, lower: u32, workload: &str, passes: (u64, u64)) -> f64 {
    let workload: WorkloadSpec = workload.parse().expect("a workload");
    let blocks = workload.blocks(4096).expect("whole blocks");
    let mut stream = workload.generator(4096, common::SEED).expect("fits");
    let mut machine = Cascade::of_two(
        Level::new(Lru::new(upper), BackedIndex::new(0), upper),
        Link::Demote,
        Level::new(
            WrongEnd(Queues::new(1, lower)),
            DenseIndex::new(blocks as usize),
            lower,
        ),
        blocks,
    );
    let mut send = |requests: u64| -> Counters {
        let mut batch = vec![BlockRequest::default(); requests as usize];
        stream.fill(&mut batch);
        machine.feed(
            &Asked::default().put_down(&batch),
            &mut [Served::default(); 3],
        );
        machine.counters()[1]
    };
    let warm = send(passes.0 * blocks);
    send(passes.1 * blocks)
        .since(&warm)
        .hit_ratio()
        .expect("requests")
}

fn right(upper: u32, lower: u32, workload: &str, passes: (u64, u64)) -> f64 {
    let levels = [
        format!("lru:{upper}blocks"),
        format!("exclusive:{lower}blocks"),
    ];
    lower_hit(&run(&[&levels[0], &levels[1]], None, workload, passes))
}

fn close(value: f64, percent: f64, band: f64, what: &str) {
    assert!(
        (100.0 * value - percent).abs() < band,
        "{what}: {value}, expected {percent} %"
    );
}

#[test]
fn uniform_reads_cannot_tell_the_ends_apart() {
    let workload = "uniform:10000blocks";
    close(right(3000, 3000, workload, (20, 20)), 42.86, 0.6, "right");
    close(wrong(3000, 3000, workload, (20, 20)), 42.86, 0.6, "wrong");
}

#[test]
fn skewed_reads_tell_the_ends_apart() {
    let workload = "zipf(1.0):20480blocks";
    close(right(6144, 6144, workload, (40, 40)), 57.6, 1.0, "right");
    close(wrong(6144, 6144, workload, (40, 40)), 42.9, 1.0, "wrong");
}

#[test]
fn loops_tell_the_ends_apart() {
    let workload = "loop:6500blocks";
    close(right(3000, 3000, workload, (14, 70)), 0.0, 1e-9, "right");
    close(
        wrong(3000, 3000, workload, (14, 70)),
        100.0 * 3.0 / 3.5,
        0.2,
        "wrong",
    );
}

/// T6: what each policy gives on a loop larger than both caches. The exclusive policy is not the
/// best on loops and scans.
#[test]
fn loops_give_their_closed_forms() {
    for (upper, lower, length) in [(300.0, 300.0, 650.0), (200.0, 400.0, 900.0)] {
        for policy in ["lru", "fifo", "mru", "fix", "exclusive"] {
            let levels = [
                format!("lru:{upper}blocks"),
                format!("{policy}:{lower}blocks"),
            ];
            let workload = format!("loop:{length}blocks");
            let hit = lower_hit(&run(&[&levels[0], &levels[1]], None, &workload, (20, 20)));
            let expected = theory::loop_lower_hit(policy, upper, lower, length).expect("known");
            close(hit, 100.0 * expected, 0.5, policy);
        }
    }
}
