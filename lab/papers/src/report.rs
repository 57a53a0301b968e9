//! What an experiment is given and what comes of it.

use futae_allocate::SettingsError;
use futae_policy::SpecError;
use futae_sim::SimulationError;
use futae_trace::WorkloadError;
use futae_units::SizeError;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Is told the fraction done, from 0 to 1, possibly by several threads.
pub type Progress<'a> = dyn Fn(f64) + Sync + 'a;

/// How an experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sizes are divided by this; 1 is full size. Experiments that are small anyway ignore it, and live ones.
    pub scale: u64,
    /// Seed of all randomness.
    pub seed: u64,
    /// Threads to run on.
    pub threads: usize,
    /// Requests of a warm-up and of a measurement, as a multiple of the blocks; none: what the
    /// experiment prescribes.
    pub passes: Option<u64>,
    /// Traces of a near and of a far store in place of synthetic requests, for the live experiment that
    /// takes them.
    pub traces: Option<[PathBuf; 2]>,
    /// Ends a live experiment early when it is set. Simulations ignore it.
    pub stopped: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scale: 64,
            seed: 1,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            passes: None,
            traces: None,
            stopped: Arc::default(),
        }
    }
}

impl Options {
    /// Refuses a scale that does not divide the sizes of the papers.
    pub(crate) fn check_scale(&self) -> Result<(), PaperError> {
        if self.scale.is_power_of_two() && self.scale <= 1024 {
            Ok(())
        } else {
            Err(PaperError::Scale(self.scale))
        }
    }
}

/// Where a check's bounds come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Printed in the paper.
    Published,
    /// Derived or simulated independently; not in the paper.
    Model,
}

/// One claim, and whether the reproduction bears it out.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What is claimed.
    pub name: String,
    /// What came out; none where it is undefined.
    pub value: Option<f64>,
    /// The least value that is accepted, if any.
    pub low: Option<f64>,
    /// The greatest value that is accepted, if any.
    pub high: Option<f64>,
    /// Whether the value is within the bounds.
    pub ok: bool,
    /// Where the bounds come from.
    pub source: Source,
}

impl Check {
    /// A value that must lie within bounds, where there are bounds; an undefined value (NaN) never
    /// does.
    #[must_use]
    pub fn within(
        source: Source,
        name: impl Into<String>,
        value: f64,
        low: impl Into<Option<f64>>,
        high: impl Into<Option<f64>>,
    ) -> Self {
        let (low, high) = (low.into(), high.into());
        let above = low.is_none_or(|low| value >= low);
        let below = high.is_none_or(|high| value <= high);
        Self {
            name: name.into(),
            value: value.is_finite().then_some(value),
            low,
            high,
            ok: !value.is_nan() && above && below,
            source,
        }
    }

    /// How many of `of` cases bear a claim out, which must be all.
    #[must_use]
    pub fn all(source: Source, name: impl Into<String>, cases: &[bool]) -> Self {
        let held = cases.iter().filter(|&&held| held).count() as f64;
        let of = cases.len() as f64;
        Self::within(source, name, held, of, of)
    }
}

/// A table: heads, and rows of as many cells.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Grid {
    /// What each column holds.
    pub heads: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    /// An empty table.
    pub fn new<S: Into<String>>(heads: impl IntoIterator<Item = S>) -> Self {
        Self {
            heads: heads.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

/// What came of one experiment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Reproduction {
    /// The paper, by first author and year.
    pub paper: &'static str,
    /// The figure or table.
    pub figure: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The seed of all randomness.
    pub seed: u64,
    /// Names and values of what was set.
    pub parameters: Vec<(&'static str, String)>,
    /// Our result.
    pub result: Grid,
    /// What the paper printed, in sentences; nothing else.
    pub published: Vec<&'static str>,
    /// Where the paper is wrong or reads otherwise than it is meant.
    pub errata: Vec<&'static str>,
    /// The claims.
    pub checks: Vec<Check>,
}

impl Reproduction {
    /// Whether every check passed.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }
}

/// Why an experiment cannot be run with the options given.
#[derive(Debug, thiserror::Error)]
pub enum PaperError {
    /// The simulator refused.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// A policy could not be built.
    #[error(transparent)]
    Policy(#[from] SpecError),
    /// A workload could not be made.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A size could not be made.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// An allocator cannot be set so.
    #[error(transparent)]
    Allocator(#[from] SettingsError),
    /// Decisions that are not of the requests.
    #[error("the recorded decisions are not those of the recorded requests from number {0} on")]
    Record(u64),
    /// The scale leaves nothing, or does not divide the sizes.
    #[error("scale {0} is not a power of two from 1 to 1024")]
    Scale(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_include_their_ends_and_exclude_the_undefined() {
        let within = |value| Check::within(Source::Model, "x", value, 1.0, 2.0).ok;
        assert_eq!(
            [0.9, 1.0, 2.0, 2.1, f64::NAN].map(within),
            [false, true, true, false, false]
        );
        assert!(Check::within(Source::Model, "x", 5.0, 1.0, None).ok);
        assert!(!Check::all(Source::Published, "x", &[true, false]).ok);
    }
}
