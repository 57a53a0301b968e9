//! What the evaluator of miss-ratio curves is given.

use crate::bounds::SettingsError;
use serde::Serialize;

/// Sizes are whole pages.
pub(super) const PAGE_BYTES: u64 = 4096;

/// What the evaluator is given.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// Bytes of a unit that curves are told requests for.
    pub unit: u64,
    /// Sizes that are considered are this many bytes apart; 0: a 512th of the total.
    pub grain: u64,
    /// Bytes that move in a period, at most; 0: an eighth of the total.
    pub step: u64,
    /// The share of all access time that must be saved, or nothing moves.
    pub gain: f64,
    /// Periods from the last step of a move to its judgement.
    pub cool_down: u32,
    /// A guest that misses by so much more than its curve says gives nothing.
    pub surprise: f64,
    /// A guest in which all tasks wait for memory for this share of the time gives nothing.
    pub pressure: f64,
    /// What a miss takes, in hits.
    pub miss_cost: f64,
    /// For the samples.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            unit: PAGE_BYTES,
            grain: 0,
            step: 0,
            gain: 0.002,
            cool_down: 2,
            surprise: 0.1,
            pressure: 0.1,
            miss_cost: 8.0,
            seed: 1,
        }
    }
}

impl Settings {
    pub(super) fn check(&self, total: u64) -> Result<(), SettingsError> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let problem = if self.unit == 0 {
            "a unit has at least one byte"
        } else if !share(self.gain) || !share(self.surprise) || !share(self.pressure) {
            "gain, surprise and pressure are shares, from 0 to 1"
        } else if !(self.miss_cost > 1.0 && self.miss_cost <= 1e9) {
            "miss_cost is what a miss takes in hits: above 1"
        } else if self.grain > total {
            "grain, the distance between the sizes considered, is above the total of all guests"
        } else {
            return Ok(());
        };
        Err(SettingsError(format!("the mrc evaluator: {problem}")))
    }
}
