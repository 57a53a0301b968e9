//! What an experiment is.

use crate::report::{Options, PaperError, Progress, Reproduction};

/// One figure or table of a paper, or what stands beside them. `E` is why it may fail: simulations with a
/// [`PaperError`], live experiments with whatever they meet.
#[derive(Debug)]
pub struct Experiment<E = PaperError> {
    /// The paper, by first author and year.
    pub paper: &'static str,
    /// The figure or table, as it is numbered in the paper; a live experiment has a name of ours.
    pub figure: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What [`Experiment::run`] calls, which adds the names and the seed.
    pub run: fn(&Options, &Progress<'_>) -> Result<Reproduction, E>,
}

// Not derived, since an error need not be `Clone` for that.
impl<E> Clone for Experiment<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Experiment<E> {}

impl<E> Experiment<E> {
    /// Runs the experiment. `progress` is given the fraction done, from 0 to 1, now and then.
    pub fn run(&self, options: &Options, progress: &Progress<'_>) -> Result<Reproduction, E> {
        let mut reproduction = (self.run)(options, progress)?;
        reproduction.paper = self.paper;
        reproduction.figure = self.figure;
        reproduction.title = self.title;
        reproduction.seed = options.seed;
        Ok(reproduction)
    }
}
