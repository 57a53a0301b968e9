//! What the simulator says about the very same requests: every decision of both levels.

use futae_policy::AccessKind;
use futae_sim::replay::{ReplaySpec, replay};
use futae_sim::{Hierarchy, HierarchyShape, LevelShape, Link, WriteMode};
use futae_trace::{BlockRequest, WorkloadSpec};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::BLOCK;

/// Two levels over one store.
#[derive(Clone, Debug)]
pub struct TwoLevels {
    /// Policy and slots of the level nearest the application.
    pub upper: (&'static str, u32),
    /// Policy and slots of the level below it.
    pub lower: (&'static str, u32),
    /// How they are joined.
    pub link: Link,
    /// Blocks of the disk.
    pub blocks: u64,
    /// For policies that draw lots.
    pub seed: u64,
}

/// What a simulation came to.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// Every decision of the upper level, one a line.
    pub upper_log: String,
    /// Every decision of the lower level.
    pub lower_log: String,
    /// Hit ratios, as live ones.
    pub ratios: Ratios,
    /// Blocks read from the store, for whatever reason.
    pub store_reads: u64,
}

/// Hit ratios of two levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    /// Of the upper level.
    pub upper: f64,
    /// Of the lower level, of the requests that came to it.
    pub lower: f64,
    /// Of both together.
    pub combined: f64,
}

impl Ratios {
    /// From requests and hits of both levels.
    #[must_use]
    pub fn new(upper: (u64, u64), lower: (u64, u64)) -> Self {
        let ratio = |hits: u64, requests: u64| hits as f64 / requests as f64;
        Self {
            upper: ratio(upper.1, upper.0),
            lower: ratio(lower.1, lower.0),
            combined: ratio(upper.1 + lower.1, upper.0),
        }
    }

    /// The largest difference between two ratios of the same kind.
    #[must_use]
    pub fn distance(self, other: Self) -> f64 {
        let pairs = [
            (self.upper, other.upper),
            (self.lower, other.lower),
            (self.combined, other.combined),
        ];
        pairs.iter().map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    }
}

impl TwoLevels {
    fn shape(&self) -> HierarchyShape {
        let level = |(policy, slots): (&str, u32)| LevelShape {
            policy: policy.parse().expect("a policy"),
            slots,
            others: Vec::new(),
        };
        HierarchyShape {
            levels: vec![level(self.upper), level(self.lower)],
            links: vec![self.link],
            write_mode: WriteMode::WriteThrough,
            guests: 1,
            blocks: self.blocks,
            volumes: Vec::new(),
            seed: self.seed,
        }
    }

    /// The seed that level `at` (0 is the upper one) is to be started with.
    #[must_use]
    pub fn level_seed(&self, at: usize) -> u64 {
        self.shape().policy_seed(0, at)
    }

    /// Simulates the requests.
    #[must_use]
    pub fn predict(&self, requests: &[BlockRequest]) -> Prediction {
        let mut hierarchy = Hierarchy::new(&self.shape()).expect("a hierarchy");
        let logs = [0, 1].map(|level| {
            let log = Arc::new(Mutex::new(String::new()));
            let to = Arc::clone(&log);
            let add = move |decision: &futae_policy::Decision| {
                let mut text = to.lock().unwrap_or_else(PoisonError::into_inner);
                text.push_str(&decision.to_string());
                text.push('\n');
            };
            hierarchy.set_log(0, level, Box::new(add));
            log
        });
        for request in requests {
            hierarchy.access(0, request.block(), request.kind());
        }
        let of = |level| {
            let counters = hierarchy.counters(0, level);
            (counters.requests, counters.hits)
        };
        let text = |log: &Mutex<String>| log.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let store = hierarchy.store();
        Prediction {
            upper_log: text(&logs[0]),
            lower_log: text(&logs[1]),
            ratios: Ratios::new(of(0), of(1)),
            store_reads: store.reads + store.notice_reads + store.preload_reads,
        }
    }

    /// Panics unless the recorded log of level `at` is that of its policy, decision by decision.
    pub fn assert_replays(&self, at: usize, log: &Path) {
        let (policy, slots) = [self.upper, self.lower][at];
        let spec = ReplaySpec {
            policy: policy.parse().expect("a policy"),
            slots,
            seed: self.level_seed(at),
        };
        let file = BufReader::new(File::open(log).expect("the log is there"));
        let replayed = replay(&spec, file, log).expect("the log is one");
        if let Some(difference) = replayed.difference {
            panic!("{}: {difference}", log.display());
        }
        assert!(replayed.decisions > 0, "{} is empty", log.display());
    }
}

/// Panics at the first decision in which a live log and a simulated one differ. Remarks are no decisions.
pub fn assert_same_log(name: &str, live: &Path, simulated: &str) {
    let live = fs::read_to_string(live).expect("the live log is there");
    let live: Vec<_> = live.lines().filter(|line| !line.starts_with('#')).collect();
    let simulated: Vec<_> = simulated.lines().collect();
    let same = live.iter().zip(&simulated).take_while(|(a, b)| a == b);
    let same = same.count();
    if same < live.len().max(simulated.len()) {
        let next = |log: &[&str]| {
            log[same..]
                .iter()
                .take(4)
                .copied()
                .collect::<Vec<_>>()
                .join("\n  ")
        };
        panic!(
            "{name}: after {same} equal decisions\n live, of {}:\n  {}\n simulated, of {}:\n  {}",
            live.len(),
            next(&live),
            simulated.len(),
            next(&simulated)
        );
    }
}

/// The first `count` requests of a workload in blocks, such as `uniform:1000blocks`.
#[must_use]
pub fn requests(workload: &str, seed: u64, count: usize) -> Vec<BlockRequest> {
    let spec: WorkloadSpec = workload.parse().expect("a workload");
    let generator = spec
        .generator(BLOCK as u64, seed)
        .expect("a workload of blocks");
    let requests: Vec<_> = generator.take(count).collect();
    assert_eq!(requests.len(), count, "{workload} ends early");
    requests
}

/// How many of the requests write.
#[must_use]
pub fn writes(requests: &[BlockRequest]) -> usize {
    let is_write = |request: &&BlockRequest| request.kind() == AccessKind::Write;
    requests.iter().filter(is_write).count()
}

/// One level over its store.
#[must_use]
pub fn one_level_hierarchy(policy: &str, slots: u32, blocks: u64) -> Hierarchy {
    let shape = HierarchyShape {
        levels: vec![LevelShape {
            policy: policy.parse().expect("a policy"),
            slots,
            others: Vec::new(),
        }],
        links: Vec::new(),
        write_mode: WriteMode::WriteThrough,
        guests: 1,
        blocks,
        volumes: Vec::new(),
        seed: 0,
    };
    Hierarchy::new(&shape).expect("a hierarchy")
}

/// Every decision of one level over its store, one a line, for reads of these blocks.
#[must_use]
pub fn one_level(policy: &str, slots: u32, blocks: u64, reads: &[u64]) -> String {
    let mut hierarchy = one_level_hierarchy(policy, slots, blocks);
    let log = Arc::new(Mutex::new(String::new()));
    let to = Arc::clone(&log);
    let add = move |decision: &futae_policy::Decision| {
        let mut text = to.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str(&format!("{decision}\n"));
    };
    hierarchy.set_log(0, 0, Box::new(add));
    for &block in reads {
        hierarchy.access(0, block, AccessKind::Read);
    }
    let text = log.lock().unwrap_or_else(PoisonError::into_inner);
    text.clone()
}

/// Panics unless the recorded log of a single level is that of its policy, decision by decision.
pub fn assert_replays_one(policy: &str, slots: u32, log: &Path) {
    let spec = ReplaySpec {
        policy: policy.parse().expect("a policy"),
        slots,
        seed: 0,
    };
    let file = BufReader::new(File::open(log).expect("the log is there"));
    let replayed = replay(&spec, file, log).expect("the log is one");
    if let Some(difference) = replayed.difference {
        panic!("{}: {difference}", log.display());
    }
    assert!(replayed.decisions > 0, "{} is empty", log.display());
}
