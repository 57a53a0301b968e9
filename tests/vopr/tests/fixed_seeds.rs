//! Some seeds of the simulator and of the crash explorer, the same ones each time; `make vopr` and
//! `make crash-states` run others.

use futae_vopr::{Cover, Failure, Options, States, crash_states, run_seed};
use std::process::Command;

const HONEST: Options = Options {
    traces: false,
    lies: false,
};
const LYING: Options = Options {
    traces: false,
    lies: true,
};

fn good(name: &str, result: Result<(), Failure>) {
    if let Err(Failure { seed, what }) = result {
        panic!("{what}\nagain: make {name} ARGS=\"--seed {seed} --runs 1 --trace\"");
    }
}

#[test]
fn simulated_caches_lose_nothing_and_answer_in_one_order() {
    let mut cover = Cover::default();
    // A quarter of the runs has a page cache that holds the blocks, so 1,500 runs are as before.
    for seed in 1..=2000 {
        good("vopr", run_seed(seed, HONEST, &mut cover));
    }
    // Seeds that do nothing find nothing.
    assert!(cover.operations > 500_000, "{}", cover.operations);
    assert!(cover.power_losses > 2_000 && cover.process_crashes > 2_000);
    assert!(cover.restarts > 2_000 && cover.resizes > 20_000);
    assert!(cover.failures > 50_000, "{}", cover.failures);
    assert!(cover.demotions > 100_000, "{}", cover.demotions);
    assert!(cover.equal_reads > 200, "{}", cover.equal_reads);
    assert!(cover.states() > 200_000, "{} states", cover.states());
}

#[test]
fn every_state_that_a_crash_leaves_has_what_was_flushed() {
    let mut states = States::default();
    for seed in 1..=400 {
        good("crash-states", crash_states(seed, HONEST, &mut states));
    }
    assert!(states.images > 1_000_000, "{states:?}");
    assert!(states.exhaustive > states.moments / 2, "{states:?}");
}

#[test]
fn a_disk_that_lies_is_found() {
    let lied = |seed| run_seed(seed, LYING, &mut Cover::default()).is_err();
    let found = (1..=60).filter(|&seed| lied(seed)).count();
    assert!(found > 10, "{found} of 60 seeds with power loss found it");
    let lied = |seed| crash_states(seed, LYING, &mut States::default()).is_err();
    let found = (1..=20).filter(|&seed| lied(seed)).count();
    assert!(
        found > 10,
        "{found} of 20 seeds of every crash state found it"
    );
}

#[test]
fn a_seed_decides_on_everything() {
    let digest = |seed| {
        let mut cover = Cover::default();
        good("vopr", run_seed(seed, HONEST, &mut cover));
        cover.digest
    };
    let first: Vec<u64> = (1..=60).map(digest).collect();
    let again: Vec<u64> = (1..=60).map(digest).collect();
    assert_eq!(first, again);
    let mut distinct = first;
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 60, "seeds differ");
    // Caches that hold equal blocks once, with keys that are new each time.
    for seed in [243, 1227, 1673] {
        let digests: Vec<u64> = (0..20).map(|_| digest(seed)).collect();
        assert!(digests.iter().all(|one| *one == digests[0]), "seed {seed}");
    }
}

#[test]
fn no_run_is_no_run_without_violations() {
    for kind in ["run", "states"] {
        let mut vopr = Command::new(env!("CARGO_BIN_EXE_futae-vopr"));
        let ended = vopr.args([kind, "--runs", "0"]).output().expect("it runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{kind}: {said}");
        assert!(said.contains("--runs takes at least 1"), "{said}");
    }
}
