//! The closed forms of `futae_sim::theory` and figures 12 to 14 of Sugimoto and Yamaguchi 2015:
//! uniform reads below an LRU upper cache.

mod common;

use common::{lower_hit, run, spec};
use futae_policy::Kind;
use futae_sim::{Link, theory};

/// T3: given an upper miss, the request is for any of the D − U other blocks alike, and the lower
/// cache has at most L of them. The exclusive policy has exactly L.
#[test]
fn no_online_policy_beats_the_bound_and_exclusive_attains_it() {
    let levels = |policy: &str| ["lru:1200blocks".to_owned(), format!("{policy}:1200blocks")];
    let bound = 1200.0 / (4000.0 - 1200.0);
    // About 4 standard deviations of a ratio of 112,000 lower requests.
    let noise = 0.006;
    for kind in Kind::ALL {
        // A clairvoyant policy is no online policy.
        if kind.name() == "opt" {
            continue;
        }
        let levels = levels(kind.name());
        let levels: Vec<&str> = levels.iter().map(String::as_str).collect();
        for link in [Link::None, Link::Demote] {
            let hit = lower_hit(&run(&levels, Some(link), "uniform:4000blocks", (20, 40)));
            let name = kind.name();
            assert!(hit <= bound + noise, "{name}, {link}: {hit} beats {bound}");
            if name == "exclusive" && link == Link::Demote {
                assert!(hit >= bound - noise, "{name}: {hit} is below {bound}");
            }
        }
    }
}

/// T5: below the shortest lower re-access interval, LRU and FIFO have no hits at all.
#[test]
fn lru_below_lru_has_no_hits_below_the_gap() {
    let data = 20_000.0;
    for upper in [6000u32, 8000] {
        let gap = theory::shortest_gap(f64::from(upper), data);
        for policy in ["lru", "fifo"] {
            let lower = (0.93 * gap) as u32;
            let levels = [
                format!("lru:{upper}blocks"),
                format!("{policy}:{lower}blocks"),
            ];
            let levels: Vec<&str> = levels.iter().map(String::as_str).collect();
            let hit = lower_hit(&run(
                &levels,
                Some(Link::None),
                "uniform:20000blocks",
                (10, 20),
            ));
            assert!(hit < 1e-4, "{policy} {lower} below lru {upper}: {hit}");
        }
    }
}

/// 10 GiB of the paper at 1/64: MiB for GiB, and 16 of them for one.
const SCALE: u64 = 16;

const POLICIES: [(&str, f64); 6] = [
    ("lru", 0.005),
    ("fifo", 0.005),
    ("random", 0.005),
    ("mru", 0.003),
    ("fix", 0.003),
    ("exclusive", 0.003),
];

/// Figures 12 to 14: the lower hit ratio of every cell within the band of its closed form, and
/// what the paper states of them in words: the proposed policy is best everywhere and rises with
/// the upper cache; LRU is worst and falls with it.
#[test]
fn the_first_experiment_of_the_paper() {
    let cells: Vec<(u64, u64)> = (2..5).flat_map(|u| (2..6).map(move |l| (u, l))).collect();
    let workload = format!("uniform:{}MiB", 10 * SCALE);
    let specs: Vec<_> = cells
        .iter()
        .flat_map(|&cell| POLICIES.map(|policy| (cell, policy.0)))
        .map(|((upper, lower), policy)| {
            let upper = format!("lru:{}MiB", upper * SCALE);
            let lower = format!("{policy}:{}MiB", lower * SCALE);
            spec(&[&upper, &lower], None, &workload, (10, 20))
        })
        .collect();
    let report = futae_sim::simulate_all(&specs, 2, &|_| {}).expect("a simulation");
    let hits: Vec<f64> = report.runs.iter().map(lower_hit).collect();
    for (&(upper, lower), hits) in cells.iter().zip(hits.chunks(POLICIES.len())) {
        for ((policy, band), &hit) in POLICIES.into_iter().zip(hits) {
            let at = format!("{policy}, U {upper}, L {lower}");
            let expected =
                theory::uniform_lower_hit(policy, upper as f64, lower as f64, 10.0).expect("known");
            assert!(
                (hit - expected).abs() <= band,
                "{at}: {hit}, expected {expected}"
            );
            assert!(hit <= hits[5], "{at}: {hit} beats exclusive {}", hits[5]);
            assert!(hit >= hits[0], "{at}: {hit} is below lru {}", hits[0]);
        }
    }
    // Four sizes of the lower cache for each of the upper.
    for (at, cell) in cells.iter().enumerate().skip(4) {
        let of = |at: usize, policy: usize| hits[at * POLICIES.len() + policy];
        assert!(
            of(at, 5) > of(at - 4, 5),
            "exclusive does not rise with U at {cell:?}"
        );
        assert!(
            of(at, 0) <= of(at - 4, 0),
            "lru does not fall with U at {cell:?}"
        );
    }
}
