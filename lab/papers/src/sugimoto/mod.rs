//! Sugimoto and Yamaguchi 2015: an exclusive lower cache fed by demotion.

mod gap;
mod simulated;
mod sizes;

use crate::experiment::Experiment;

/// The figures of this paper.
pub const EXPERIMENTS: &[Experiment] = &[
    gap::FIGURES[0],
    gap::FIGURES[1],
    sizes::FIGURES[0],
    sizes::FIGURES[1],
    sizes::FIGURES[2],
    simulated::FIGURES[0],
    simulated::FIGURES[1],
    simulated::FIGURES[2],
];
