//! Which hits are compared.
//!
//! Figure 2 plots the hits of both guests together, trial by trial, with the system and without; the paper compares
//! the 24 trials that the run with the system has. A trial is a fixed time, so whoever hits more often reads
//! more in it. Both runs do the same work in the end, though: hits in all are reads less misses, where what
//! was won in the first trials is gone again if some guest is slow in the end, which the figure no longer shows.

use super::guests::{MOVERS, Phases, SETTINGS, Setting, mover, simulate};
use crate::report::PaperError;

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

/// Hits of the paper's rule as printed, and of `mrc`, relative to those of fixed memory: means over eight seeds in the
/// setting nearest to the published run, whose guests have `extra_mib` MiB more that are no page cache.
///
/// # Errors
///
/// None with settings that can be simulated.
pub fn simulated_hits(extra_mib: u64, seed: u64) -> Result<[Hits; 2], PaperError> {
    let setting = Setting {
        extra_mib,
        ..SETTINGS[0]
    };
    let [fixed, printed, _, _, curves] = MOVERS;
    let mut means = [Hits::ZERO; 2];
    for seed in (0..SEEDS).map(|number| seed.wrapping_add(number)) {
        let run = |name| simulate(&setting, mover(name, seed), Phases::Work, seed);
        let fixed = run(fixed)?;
        for (mean, name) in means.iter_mut().zip([printed, curves]) {
            mean.add(
                1.0 / SEEDS as f64,
                Hits::relative(&run(name)?.hits, &fixed.hits),
            );
        }
    }
    Ok(means)
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
        let [paper, mrc] = simulated_hits(0, 1).expect("runs");
        assert!(paper.compared > 1.05 && paper.in_all < 1.0, "{paper:?}");
        assert!(mrc.compared > paper.compared && mrc.in_all > 1.0, "{mrc:?}");
    }
}
