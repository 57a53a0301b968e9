//! An upper cache that is simulated once for several lower ones makes no difference.

mod common;

use common::spec;
use futae_policy::cards;
use futae_sim::{LevelSpec, Link, SimulationSpec, simulate, simulate_all};
use serde_json::Value;

/// Runs without the times that they took.
fn runs(report: futae_sim::Report) -> Vec<Value> {
    let json = serde_json::to_value(report.runs).expect("only strings as keys");
    let mut runs = json.as_array().expect("runs").clone();
    for run in &mut runs {
        run["seconds"] = Value::Null;
    }
    runs
}

fn are_as_if_alone(specs: &[SimulationSpec]) {
    for threads in [1, 3] {
        let together = simulate_all(specs, threads, &|_| {}).expect("simulations");
        let digest = together.trace_digest.clone();
        let together = runs(together);
        assert_eq!(together.len(), specs.len());
        for (spec, together) in specs.iter().zip(together) {
            let alone = simulate(spec, &mut |_| {}).expect("a simulation");
            assert_eq!(alone.trace_digest, digest);
            assert_eq!(together, runs(alone)[0], "{:?}", spec.levels);
        }
    }
}

/// Every policy below LRU caches of two sizes.
fn all(workload: &str, link: Option<Link>) -> Vec<SimulationSpec> {
    let mut specs = Vec::new();
    for card in cards() {
        let lower = format!("{}:150blocks", card.name);
        if lower
            .parse::<LevelSpec>()
            .is_ok_and(|level| level.needs_future())
        {
            continue;
        }
        for upper in ["lru:50blocks", "lru:120blocks"] {
            specs.push(spec(&[upper, &lower], link, workload, (3, 4)));
        }
    }
    specs
}

#[test]
fn of_every_policy_and_link() {
    for link in [None, Some(Link::None), Some(Link::Notice)] {
        are_as_if_alone(&all("zipf(0.7):500blocks", link));
    }
}

#[test]
fn of_a_warm_up_that_ends_anywhere_or_is_none() {
    for (warmup, requests) in [(0, 1000), (777, 1234), (1000, 0), (0, 0)] {
        let mut specs = all("uniform:300blocks", None);
        for spec in &mut specs {
            (spec.warmup_requests, spec.requests) = (Some(warmup), Some(requests));
        }
        are_as_if_alone(&specs);
    }
}

#[test]
fn of_writes_from_the_first_and_from_later_on() {
    are_as_if_alone(&all("uniform(writes=0.3):300blocks", None));
    are_as_if_alone(&all(
        "phase(900*uniform:300blocks, 900*uniform(writes=0.5):300blocks)",
        None,
    ));
}
