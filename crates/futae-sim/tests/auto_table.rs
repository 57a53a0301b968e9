//! `auto` beside each of its candidates on a part of the table of `futae-lab auto-table`. The bounds are what was reached.

use futae_policy::replace::auto::candidates;
use futae_policy::{Kind, PolicySpec};
use futae_sim::run::in_parallel;
use futae_sim::{LevelSpec, SimulationSpec, WriteMode, links, simulate};

const WORKLOADS: [&str; 5] = [
    "uniform:16MiB",
    "zipf(0.9, writes=0.3):16MiB",
    "loop:16MiB",
    "mix(0.7*zipf(1.0):16MiB, 0.3*scan:16MiB)",
    "phase(50000*zipf(0.8):16MiB, 50000*loop:16MiB)",
];
const SIZES: [&str; 3] = ["5%", "20%", "50%"];
const ABOVE: [Option<&str>; 2] = [None, Some("lru")];
const REQUESTS: u64 = 200_000;
/// Requests that some level served, percent.
fn ratio(workload: &str, above: Option<&str>, mut policy: PolicySpec, size: &str) -> f64 {
    if above.is_none() {
        // Alone, what lives on demotions must keep what it serves.
        policy.keep_served();
    }
    let level = |policy: &str| -> LevelSpec { format!("{policy}:{size}").parse().expect("level") };
    let upper = above.map(level);
    let levels: Vec<LevelSpec> = upper
        .into_iter()
        .chain([level(&policy.to_string())])
        .collect();
    let simulation = SimulationSpec {
        links: links(&levels, None),
        levels,
        write_mode: WriteMode::default(),
        guests: 1,
        workload: workload.parse().expect("a workload"),
        block_bytes: 4096,
        seed: 1,
        warmup_requests: Some(0),
        requests: Some(REQUESTS),
    };
    let report = simulate(&simulation, &mut |_| {}).expect("a run");
    100.0 * report.runs[0].combined_hit_ratio.expect("requests")
}

/// Points by which `auto` is below the best candidate, and below the first.
fn gaps(workload: &str, above: Option<&str>, size: &str) -> (f64, f64) {
    let of = |policy: PolicySpec| ratio(workload, above, policy, size);
    let fixed: Vec<f64> = candidates().into_iter().map(of).collect();
    let chosen = of(PolicySpec::of(Kind::auto));
    let best = fixed.iter().copied().fold(0.0, f64::max);
    (best - chosen, fixed[0] - chosen)
}

#[test]
fn auto_is_near_the_best_candidate_and_not_below_the_first() {
    let mut cells = Vec::new();
    for workload in WORKLOADS {
        for above in ABOVE {
            cells.extend(SIZES.map(|size| (workload, above, size)));
        }
    }
    let found = in_parallel(
        cells.len(),
        2,
        &|_| {},
        |at, _: &mut (dyn FnMut(f64) + Send)| {
            let (workload, above, size) = cells[at];
            gaps(workload, above, size)
        },
    );
    for (cell, gap) in cells.iter().zip(&found) {
        println!(
            "{cell:?}: {:.2} below the best, {:.2} below the first",
            gap.0, gap.1
        );
    }
    let near = found.iter().filter(|gap| gap.0 <= 1.0).count();
    let furthest = found.iter().map(|gap| gap.0).fold(0.0, f64::max);
    let regretted = found.iter().map(|gap| gap.1).fold(0.0, f64::max);
    assert!(near >= 28, "{near} of {} cells within a point", cells.len());
    assert!(furthest <= 2.3, "{furthest:.2} points below the best");
    assert!(regretted <= 0.2, "{regretted:.2} points below the first");
}
