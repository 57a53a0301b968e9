//! The experiments of the five source papers, reproduced in simulation: one file a figure (or a
//! group of figures that share their runs), each opening with what the paper says, its
//! parameters, and how it was read where it leaves a choice.
//!
//! [`experiments`] lists them; [`Experiment::run`] gives a [`Reproduction`]: our table, what the
//! paper printed, errata, and one [`Check`] a claim. A check's [`Source`] says whether the claim
//! was published or comes from a model of ours.

#![forbid(unsafe_code)]

pub mod aoki;
pub mod kotoge;
mod report;
pub mod sudo;
mod sugimoto;
pub mod yoshida;

pub use report::{Check, Grid, Options, PaperError, Progress, Reproduction, Source};

/// One figure or table of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The paper, by first author and year.
    pub paper: &'static str,
    /// The figure or table, as it is numbered in the paper.
    pub figure: &'static str,
    /// What it shows.
    pub title: &'static str,
    run: fn(&Options, &Progress<'_>) -> Result<Reproduction, PaperError>,
}

impl Experiment {
    /// Runs the experiment. `progress` is given the fraction done, from 0 to 1, now and then.
    pub fn run(
        &self,
        options: &Options,
        progress: &Progress<'_>,
    ) -> Result<Reproduction, PaperError> {
        let mut reproduction = (self.run)(options, progress)?;
        reproduction.paper = self.paper;
        reproduction.figure = self.figure;
        reproduction.title = self.title;
        reproduction.seed = options.seed;
        Ok(reproduction)
    }
}

/// Every experiment that can be run, by paper and figure.
#[must_use]
pub fn experiments() -> Vec<Experiment> {
    [
        sugimoto::EXPERIMENTS,
        aoki::EXPERIMENTS,
        yoshida::EXPERIMENTS,
        kotoge::EXPERIMENTS,
        sudo::EXPERIMENTS,
    ]
    .concat()
}
