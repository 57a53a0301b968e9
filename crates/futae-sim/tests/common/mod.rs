//! What the theorem tests share.
#![expect(dead_code, reason = "each test file uses a part")]

use futae_policy::PolicySpec;
use futae_sim::{
    Hierarchy, HierarchyShape, LevelShape, Link, Run, SimulationSpec, WriteMode, links,
};

pub const SEED: u64 = 1;

/// A hierarchy for one guest from policies and slots, top down, all joined by `link`.
pub fn hierarchy(levels: &[(&str, u32)], link: Link, blocks: u64) -> Hierarchy {
    guests(levels, link, blocks, 1)
}

/// A hierarchy for several guests.
pub fn guests(levels: &[(&str, u32)], link: Link, blocks: u64, guests: u32) -> Hierarchy {
    Hierarchy::new(&shape(levels, link, blocks, guests)).expect("known policies")
}

/// The parameters of a hierarchy for guests with this many blocks each.
pub fn shape(levels: &[(&str, u32)], link: Link, blocks: u64, guests: u32) -> HierarchyShape {
    let level = |&(policy, slots): &(&str, u32)| {
        let policy: PolicySpec = policy.parse().expect("a policy");
        LevelShape {
            policy,
            slots,
            others: Vec::new(),
        }
    };
    HierarchyShape {
        levels: levels.iter().map(level).collect(),
        links: vec![link; levels.len() - 1],
        write_mode: WriteMode::WriteThrough,
        guests,
        blocks,
        volumes: Vec::new(),
        seed: SEED,
    }
}

/// A simulation of 4 KiB blocks for one guest; passes are over the workload's blocks.
pub fn spec(
    levels: &[&str],
    link: Option<Link>,
    workload: &str,
    passes: (u64, u64),
) -> SimulationSpec {
    let levels: Vec<_> = levels
        .iter()
        .map(|text| text.parse().expect("a level"))
        .collect();
    let workload: futae_trace::WorkloadSpec = workload.parse().expect("a workload");
    let blocks = workload.blocks(4096).expect("whole blocks");
    SimulationSpec {
        links: links(&levels, link),
        levels,
        write_mode: WriteMode::WriteThrough,
        guests: 1,
        workload,
        block_bytes: 4096,
        seed: SEED,
        warmup_requests: Some(passes.0 * blocks),
        requests: Some(passes.1 * blocks),
    }
}

/// The results of [`spec`].
pub fn run(levels: &[&str], link: Option<Link>, workload: &str, passes: (u64, u64)) -> Run {
    let report = futae_sim::simulate(&spec(levels, link, workload, passes), &mut |_| {});
    report.expect("a simulation").runs.remove(0)
}

/// The hit ratio of the lowest level, 0 where it was asked for nothing.
pub fn lower_hit(run: &Run) -> f64 {
    run.levels
        .last()
        .and_then(|level| level.hit_ratio)
        .unwrap_or(0.0)
}
