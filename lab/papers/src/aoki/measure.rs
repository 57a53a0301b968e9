//! Which hits are compared.
//!
//! Figure 2 plots the hits of both guests together, trial by trial, with the system and without; the paper compares
//! the 24 trials that the run with the system has. A trial is a fixed time, so a guest that hits more often reads
//! more in it. Both runs do the same work in the end, though: hits in all are reads less misses, where what
//! was won in the first trials is gone again if some guest is slow in the end, which the figure no longer shows.

use super::guests::{MOVERS, Phases, SETTINGS, Setting, mover, simulate};
use crate::report::PaperError;
use futae_allocate::{Settings, paper};

/// The trials of the paper's run with the system.
pub const TRIALS_COMPARED: usize = 24;
/// Runs whose mean is taken.
const SEEDS: u64 = 8;

/// Hits of one run relative to those of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hits {
    /// Of the first [`TRIALS_COMPARED`] trials: what the paper compares.
    pub compared: f64,
    /// Of all trials until the first of both runs is over.
    pub until_one_ends: f64,
    /// Of all trials until both are over, so of the same work.
    pub in_all: f64,
}

impl Hits {
    /// Of both runs' hits by trial.
    #[must_use]
    pub fn relative(one: &[u64], other: &[u64]) -> Self {
        let of = |trials: usize| {
            let total = |hits: &[u64]| hits.iter().take(trials).sum::<u64>() as f64;
            total(one) / total(other)
        };
        Self {
            compared: of(TRIALS_COMPARED),
            until_one_ends: of(one.len().min(other.len())),
            in_all: of(usize::MAX),
        }
    }

    /// Of each measure of both.
    fn each(self, other: Self, of: fn(f64, f64) -> f64) -> Self {
        Self {
            compared: of(self.compared, other.compared),
            until_one_ends: of(self.until_one_ends, other.until_one_ends),
            in_all: of(self.in_all, other.in_all),
        }
    }

    pub(super) fn add(&mut self, share: f64, other: Self) {
        self.compared += share * other.compared;
        self.until_one_ends += share * other.until_one_ends;
        self.in_all += share * other.in_all;
    }

    pub(super) const ZERO: Self = Self {
        compared: 0.0,
        until_one_ends: 0.0,
        in_all: 0.0,
    };
}

/// Simulated runs of one rule, measure by measure.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The mean.
    pub mean: Hits,
    /// The least and the most.
    pub ends: [Hits; 2],
}

impl Spread {
    /// Of runs of which there is one at least.
    fn of(runs: &[Hits]) -> Self {
        let share = 1.0 / runs.len() as f64;
        let mut spread = Self {
            mean: Hits::ZERO,
            ends: [runs[0]; 2],
        };
        for run in runs {
            spread.mean.add(share, *run);
        }
        spread.with(runs)
    }

    /// The same mean, and ends that are no nearer than any of these runs.
    fn with(self, runs: &[Hits]) -> Self {
        let reach = |end: Hits, of: fn(f64, f64) -> f64| {
            runs.iter().fold(end, |end, run| end.each(*run, of))
        };
        let [least, most] = self.ends;
        Self {
            ends: [reach(least, f64::min), reach(most, f64::max)],
            ..self
        }
    }
}

/// Hits relative to those of fixed memory, in simulations with eight seeds.
#[derive(Clone, Copy, Debug)]
pub struct Simulated {
    /// With the paper's rule: the mean is that of the rule as printed, and the ends are also those of runs with a
    /// threshold that is a tenth lower or higher. How far the values are apart depends on what a page cache keeps; near the
    /// threshold, a little decides whether memory moves.
    pub paper: Spread,
    /// With miss-ratio curves.
    pub mrc: Spread,
    /// With miss-ratio curves, relative to the paper's rule with each of those thresholds.
    pub mrc_to_paper: Spread,
}

/// Simulates guests that read files by the workload `access`; 0.4 GiB and `extra_mib` MiB of each guest are no page
/// cache.
///
/// # Errors
///
/// An `access` that is no workload.
pub fn simulated_hits(
    access: &'static str,
    extra_mib: u64,
    seed: u64,
) -> Result<Simulated, PaperError> {
    let setting = Setting {
        access,
        extra_mib,
        ..SETTINGS[0]
    };
    let [fixed, _, _, _, curves] = MOVERS;
    let printed = |of_printed: f64| {
        Settings::Paper(paper::Settings {
            threshold: of_printed * paper::Settings::default().threshold,
            ..paper::Settings::default()
        })
    };
    let mut runs: [Vec<Hits>; 4] = Default::default();
    let mut mrc_to_paper = Vec::new();
    for seed in (0..SEEDS).map(|number| seed.wrapping_add(number)) {
        let run = |mover| simulate(&setting, mover, Phases::Work, seed);
        let fixed = run(mover(fixed, seed))?;
        let movers = [
            printed(0.9),
            printed(1.0),
            printed(1.1),
            mover(curves, seed),
        ];
        let [lower, paper, higher, curves] = movers.map(run);
        let made = [lower?, paper?, higher?, curves?];
        for (runs, made) in runs.iter_mut().zip(&made) {
            runs.push(Hits::relative(&made.hits, &fixed.hits));
        }
        let [papers @ .., curves] = &made;
        mrc_to_paper.extend(
            papers
                .each_ref()
                .map(|it| Hits::relative(&curves.hits, &it.hits)),
        );
    }
    let [lower, paper, higher, mrc] = &runs;
    Ok(Simulated {
        paper: Spread::of(paper).with(lower).with(higher),
        mrc: Spread::of(mrc),
        mrc_to_paper: Spread::of(&mrc_to_paper),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_won_in_the_compared_trials_may_be_lost_in_the_end() {
        let early = [[30; 24].as_slice(), &[10; 6]].concat();
        let even = [26; 30];
        let hits = Hits::relative(&early, &even);
        assert_eq!(hits.compared, 30.0 / 26.0);
        assert_eq!(hits.in_all, hits.until_one_ends);
        assert_eq!(hits.in_all, 780.0 / 780.0);
        let longer = [early.as_slice(), &[10; 6]].concat();
        let hits = Hits::relative(&longer, &even);
        assert_eq!([hits.until_one_ends, hits.in_all], [1.0, 840.0 / 780.0]);
    }

    #[test]
    fn the_paper_has_more_hits_in_its_trials_and_fewer_in_all() {
        let Simulated { paper, mrc, .. } = simulated("normal(0.1666667)", 0);
        let [paper, mrc] = [paper.mean, mrc.mean];
        assert!(paper.compared > 1.05 && paper.in_all < 1.0, "{paper:?}");
        assert!(mrc.compared > paper.compared && mrc.in_all > 1.0, "{mrc:?}");
    }

    #[test]
    fn read_more_evenly_it_has_more_in_all_too() {
        for extra_mib in [0, 1024] {
            let Simulated { paper, mrc, .. } = simulated("normal(0.25)", extra_mib);
            let [paper, mrc] = [paper.mean, mrc.mean];
            assert!(paper.compared > 1.0 && paper.in_all > 1.0, "{paper:?}");
            assert!(mrc.compared > 1.0 && mrc.in_all > paper.in_all, "{mrc:?}");
        }
    }

    #[test]
    fn every_run_says_what_the_live_ones_are_checked_for() {
        // What a guest has on top: about 68 MiB at a sixteenth.
        let [narrow, wide] =
            ["normal(0.1666667)", "normal(0.25)"].map(|access| simulated(access, 1088));
        let least = |runs: Spread| runs.ends[0];
        for runs in [narrow, wide] {
            assert!(least(runs.mrc).compared > 1.0 && least(runs.mrc).in_all > 1.0);
            assert!(least(runs.paper).compared > 1.0 && least(runs.mrc_to_paper).in_all > 1.0);
        }
        assert!(least(narrow.mrc_to_paper).compared > 1.0, "{narrow:?}");
        assert!(least(wide.paper).in_all > 1.0, "{wide:?}");
    }

    #[test]
    fn a_threshold_near_the_values_decides_how_much_is_won() {
        let narrow = simulated("normal(0.1666667)", 1024).paper;
        let wide = simulated("normal(0.25)", 1024).paper;
        let width = |it: Spread| it.ends[1].compared - it.ends[0].compared;
        assert!(
            width(narrow) < 0.05 && width(wide) > 0.2,
            "{narrow:?} {wide:?}"
        );
        for Spread { mean, ends } in [narrow, wide] {
            let [least, most] = ends;
            assert!((least.compared..=most.compared).contains(&mean.compared));
            assert!((least.in_all..=most.in_all).contains(&mean.in_all));
        }
    }

    fn simulated(access: &'static str, extra_mib: u64) -> Simulated {
        simulated_hits(access, extra_mib, 1).expect("runs")
    }
}
