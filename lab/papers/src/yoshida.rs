//! Yoshida, Kourai and Yamaguchi 2018, figures 5 and 6: LFU Cache FS in the guest over a host LRU.
//!
//! # What the paper says
//! A FUSE file system in the guest keeps 21 blocks of 128 MB of a 4 GB file and changes its
//! contents at reviews only: every K = 10 misses, by use among the last N = 100 accesses. FFSB
//! reads 1 MB at random, uniformly. The host's hit ratio rises from 0 % (ordinary guest cache) to
//! 92 % (figure 5), and throughput with it (figure 6, without numbers in the text).
//!
//! # Readings
//! An access is one request of 1 MiB, which counts once for each 128 MiB block it touches;
//! a review makes one swap, which loads the whole block (section 3.1). The ratio is 1 − B/A, A
//! being all volume to the host's cache, loads included. The host's cache has no published
//! size: 1.45 GiB, the largest that explains 0 %. Requests start at whole MiB. The host works in
//! units of 64 KiB, as does the ordinary guest's cache of 2.59 GiB.
//!
//! The guest's 128 MiB blocks and the host's 64 KiB units are of different size, which the
//! simulator's hierarchies cannot join; a small simulation here does, made of the same levels.
//! Figure 6 is the volume that the disk must read for each MiB asked for: the paper's throughput
//! depends on its disk.

use crate::experiment::Experiment;
use crate::report::{Check, Grid, Options, PaperError, Progress, Reproduction, Source};
use futae_policy::Prng;
use futae_sim::run::in_parallel;

mod model;
mod policies;

use model::{HOST_GIB, ORDINARY_GIB};

pub use model::{Measured, Sizes, simulate, simulate_asked, simulate_host, simulate_loading};
pub use policies::{
    CHOSEN, GAIN, GENERATIONS, LITERAL, MAPPED, ORDINARY, TWICE, TWO_LISTS, is_ordinary,
};

/// The figures of this paper.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        paper: "yoshida-2018",
        figure: "fig5",
        title: "hit ratio of the host's cache by the guest's policy",
        run: |options, progress| run(false, options, progress),
    },
    Experiment {
        paper: "yoshida-2018",
        figure: "fig6",
        title: "what the disk reads for each MiB asked for (the paper: throughput)",
        run: |options, progress| run(true, options, progress),
    },
];

/// Requests before counting begins.
pub const WARMUP: u64 = 20_000;
/// Requests that are counted.
pub const REQUESTS: u64 = 20_000;

const VARIANTS: [(&str, &str); 5] = [
    ("ordinary guest cache (lru)", ORDINARY),
    ("Const Cache FS", CHOSEN),
    ("LFU Cache FS, as printed (N=100, K=10)", LITERAL),
    ("LFU Cache FS, N=100, min_gain 10", GAIN),
    (
        "LFU Cache FS, N=100000",
        "lfu-history(history=100000,min_gain=0)",
    ),
];

fn run(
    of_disk: bool,
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Reproduction, PaperError> {
    let mut result = Grid::new([
        "guest",
        "guest hit",
        "host hit",
        "disk MiB a MiB",
        "share of loads",
    ]);
    let mut all = Vec::new();
    let count = VARIANTS.len();
    let each = in_parallel(count, options.threads, progress, |at, progress| {
        let sizes = Sizes::PRINTED;
        let mut prng = Prng::new(options.seed);
        let requests = (0..WARMUP + REQUESTS).map(|_| prng.below(sizes.file / sizes.request));
        let measured = simulate(&sizes, VARIANTS[at].1, options.seed, WARMUP, requests);
        progress(1.0);
        measured
    });
    for ((name, _), measured) in VARIANTS.iter().zip(each) {
        let measured = measured?;
        result.row([
            (*name).to_owned(),
            format!("{:.1} %", 100.0 * measured.guest_hit),
            format!("{:.1} %", 100.0 * measured.host_hit),
            format!("{:.3}", measured.disk),
            format!("{:.0} %", 100.0 * measured.loads),
        ]);
        all.push(measured);
    }
    let [normal, chosen, literal, gain, _] = all.as_slice() else {
        return Ok(Reproduction::default());
    };
    let checks = if of_disk {
        disk_checks(normal, chosen, literal, gain)
    } else {
        hit_checks(normal, chosen, literal, gain)
    };
    Ok(Reproduction {
        parameters: vec![
            (
                "file",
                "4 GiB, 32 blocks of 128 MiB; reads of 1 MiB, uniform".to_owned(),
            ),
            (
                "guest",
                format!(
                    "{} blocks (2.625 GiB), or an lru of {ORDINARY_GIB} GiB",
                    Sizes::PRINTED.slots
                ),
            ),
            ("host", format!("lru of {HOST_GIB} GiB in units of 64 KiB")),
            (
                "requests",
                format!("{WARMUP} of warm-up, {REQUESTS} measured"),
            ),
        ],
        result,
        published: vec![
            "host hit ratio: 0 % with the ordinary guest cache, 92 % with LFU Cache FS",
            "LFU Cache FS has the higher throughput (no number in the text)",
        ],
        errata: vec![
            "with the printed N = 100 and K = 10 the steady state under uniform reads is not 92 %: counts of about 3 are noise, nearly every review swaps a 128 MiB block, and the disk reads more than under plain LRU",
            "92 % is what a nearly unchanging content gives; min_gain, which is ours, gives that",
            "Const Cache FS was not measured in the paper",
        ],
        checks,
        ..Reproduction::default()
    })
}

fn hit_checks(
    normal: &Measured,
    chosen: &Measured,
    literal: &Measured,
    gain: &Measured,
) -> Vec<Check> {
    vec![
        Check::within(
            Source::Published,
            "ordinary guest cache, host hit ratio (published 0)",
            normal.host_hit,
            None,
            0.01,
        ),
        Check::within(
            Source::Model,
            "LFU Cache FS with min_gain 10, host hit ratio (published 0.92)",
            gain.host_hit,
            0.89,
            0.95,
        ),
        Check::within(
            Source::Published,
            "LFU Cache FS as printed, host hit ratio above the ordinary by",
            literal.host_hit - normal.host_hit,
            f64::MIN_POSITIVE,
            None,
        ),
        Check::within(
            Source::Model,
            "Const Cache FS, host hit ratio",
            chosen.host_hit,
            0.99,
            None,
        ),
        Check::within(
            Source::Model,
            "LFU Cache FS as printed, host hit ratio in the steady state",
            literal.host_hit,
            0.14,
            0.20,
        ),
    ]
}

fn disk_checks(
    normal: &Measured,
    chosen: &Measured,
    literal: &Measured,
    gain: &Measured,
) -> Vec<Check> {
    vec![
        Check::within(
            Source::Model,
            "LFU Cache FS with min_gain 10 needs less of the disk than the ordinary cache, MiB a MiB less",
            normal.disk - gain.disk,
            f64::MIN_POSITIVE,
            None,
        ),
        Check::within(
            Source::Model,
            "ordinary guest cache, disk MiB a MiB",
            normal.disk,
            0.33,
            0.37,
        ),
        Check::within(
            Source::Model,
            "Const Cache FS, disk MiB a MiB",
            chosen.disk,
            None,
            0.005,
        ),
        Check::within(
            Source::Model,
            "LFU Cache FS as printed, disk MiB a MiB",
            literal.disk,
            3.5,
            4.4,
        ),
        Check::within(
            Source::Model,
            "LFU Cache FS with min_gain 10, disk MiB a MiB",
            gain.disk,
            0.015,
            0.05,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::model::level;
    use super::{
        CHOSEN, EXPERIMENTS, GAIN, LITERAL, ORDINARY, Sizes, TWO_LISTS, is_ordinary, simulate,
        simulate_asked, simulate_host, simulate_loading,
    };
    use crate::Options;
    use futae_policy::{Access, AccessKind, BlockId, Decision, Outcome, Prng, Verdict};

    #[test]
    fn hit_ratios_and_disk_reads_are_in_their_bands() {
        for experiment in EXPERIMENTS {
            let made = experiment.run(&Options::default(), &|_| ()).expect("runs");
            assert!(made.ok(), "{:#?}\n{:#?}", made.checks, made.result);
        }
    }

    /// The decisions of a guest whose loads arrive at once.
    fn decisions(sizes: &Sizes, policy: &str, slots: u64, block: u64, at: &[u64]) -> Vec<Decision> {
        let mut guest = level(policy, slots, sizes.file / block, 1).expect("a policy");
        let mut log = Vec::new();
        for number in at {
            let (mut from, end) = (number * sizes.request, (number + 1) * sizes.request);
            while from < end {
                let access = Access::read(BlockId::on_first(from / block));
                let outcome = guest.access(&access);
                log.push(Decision::new(&access, &outcome));
                from = end.min((from / block + 1) * block);
            }
            while let Some(block) = guest.review() {
                let access = Access::of(block, AccessKind::Preload);
                let outcome = guest.access(&access);
                assert!(matches!(outcome, Outcome::Admitted { .. }));
                log.push(Decision::new(&access, &outcome));
            }
        }
        log
    }

    #[test]
    fn what_a_guest_misses_gives_the_host_what_the_whole_simulation_gives() {
        let sizes = Sizes::SIXTEENTH;
        let mut prng = Prng::new(5);
        let at: Vec<_> = (0..30_000)
            .map(|_| prng.below(sizes.file / sizes.request))
            .collect();
        let mut host_hits = Vec::new();
        for policy in [ORDINARY, TWO_LISTS] {
            assert!(is_ordinary(policy));
            let slots = sizes.ordinary / sizes.unit;
            let log = decisions(&sizes, policy, slots, sizes.unit, &at);
            let misses = |log: &[Decision]| -> Vec<u64> {
                let missed = log.iter().filter(|it| it.verdict != Verdict::Hit);
                missed.map(|it| it.block.index()).collect()
            };
            let units_a_request = (sizes.request / sizes.unit) as usize;
            let before = misses(&log[..20_000 * units_a_request]).len() as u64;
            let whole = simulate(&sizes, policy, 1, 20_000, at.iter().copied()).expect("runs");
            let counted = 10_000 * sizes.request;
            let part = simulate_asked(&sizes, before, counted, misses(&log)).expect("runs");
            assert_eq!(
                (whole.host_hit, whole.disk),
                (part.host_hit, part.disk),
                "{policy}"
            );
            host_hits.push(part.host_hit);
        }
        // Two lists give some pages up so soon that the host still has them when they are asked for again.
        let [lru, lists] = host_hits[..] else {
            panic!("two policies")
        };
        assert!(lru < 0.01 && lists > 0.05, "{host_hits:?}");
    }

    #[test]
    fn two_lists_leave_the_host_hits_unless_all_is_read_twice() {
        let sizes = Sizes::SIXTEENTH;
        let mut prng = Prng::new(7);
        let at: Vec<_> = (0..24_000)
            .map(|_| prng.below(sizes.file / sizes.request))
            .collect();
        let host_hit = |times: usize| {
            let requests = at.iter().flat_map(|&at| std::iter::repeat_n(at, times));
            let warmup = 16_000 * times as u64;
            let measured = simulate(&sizes, TWO_LISTS, 1, warmup, requests).expect("runs");
            measured.host_hit
        };
        let [once, twice] = [1, 2].map(host_hit);
        assert!(once > 0.05 && twice < 0.01, "{once}, {twice}");
    }

    #[test]
    fn loads_take_the_time_that_they_are_said_to_take() {
        let sizes = Sizes::SIXTEENTH;
        let places = sizes.file / sizes.request;
        let mut prng = Prng::new(9);
        let at: Vec<_> = (0..8000).map(|_| prng.below(places)).collect();
        let of = |policy, arrivals: &mut dyn Iterator<Item = u64>| {
            let requests = at.iter().copied();
            simulate_loading(&sizes, policy, 1, 4000, requests, arrivals).expect("runs")
        };
        for policy in [CHOSEN, LITERAL] {
            let at_once = simulate(&sizes, policy, 1, 4000, at.iter().copied()).expect("runs");
            let same = of(policy, &mut std::iter::repeat(0));
            assert_eq!((same.host_hit, same.disk), (at_once.host_hit, at_once.disk));
        }
        // Each is over 100 requests after the one before, at the earliest: reviews come less often.
        let quick = of(LITERAL, &mut std::iter::empty());
        let slow = of(LITERAL, &mut (1..).map(|load| load * 100));
        assert!(slow.disk < 0.5 * quick.disk, "{slow:?}, {quick:?}");
        // One that is never over: everything goes to the host, as without a cache in the guest.
        let never = of(LITERAL, &mut std::iter::repeat(u64::MAX));
        let units = (sizes.host / sizes.unit, sizes.file / sizes.unit);
        let mut host = level(ORDINARY, units.0, units.1, 1).expect("a policy");
        let mut before = host.counters();
        for (number, place) in at.iter().enumerate() {
            if number == 4000 {
                before = host.counters();
            }
            let unit = place * sizes.request / sizes.unit;
            for unit in unit..unit + sizes.request / sizes.unit {
                host.access(&Access::read(BlockId::on_first(unit)));
            }
        }
        let alone = host.counters().since(&before).hit_ratio().expect("asked");
        assert!((never.host_hit - alone).abs() < 1e-9, "{never:?}, {alone}");
        assert!(
            (never.disk - (1.0 - alone)).abs() < 1e-9,
            "{never:?}, {alone}"
        );
    }

    #[test]
    fn recorded_decisions_give_what_the_whole_simulation_gives() {
        let sizes = Sizes::SIXTEENTH;
        let mut prng = Prng::new(3);
        let at: Vec<_> = (0..6000)
            .map(|_| prng.below(sizes.file / sizes.request))
            .collect();
        for policy in [ORDINARY, LITERAL, GAIN] {
            let (block, slots) = match policy {
                ORDINARY => (sizes.unit, sizes.ordinary / sizes.unit),
                _ => (sizes.block, sizes.slots.into()),
            };
            let whole = simulate(&sizes, policy, 1, 3000, at.iter().copied()).expect("runs");
            let log = decisions(&sizes, policy, slots, block, &at);
            let part = simulate_host(&sizes, block, 3000, at.iter().copied(), log.clone());
            let part = part.expect("the log is of these requests");
            assert_eq!(
                (whole.host_hit, whole.disk),
                (part.host_hit, part.disk),
                "{policy}"
            );
            assert_eq!(
                (whole.guest_hit, whole.loads),
                (part.guest_hit, part.loads),
                "{policy}"
            );
            let short = simulate_host(
                &sizes,
                block,
                3000,
                at.iter().copied(),
                log.into_iter().skip(40),
            );
            assert!(
                short.is_err(),
                "{policy}: a log of something else goes unseen"
            );
        }
    }
}
