//! The experiments of the five source papers, reproduced in simulation: one file a figure (or a
//! group of figures that share their runs), each opening with what the paper says, its
//! parameters, and how it was read where it leaves a choice.
//!
//! [`experiments`] lists them; [`Experiment::run`] gives a [`Reproduction`]: our table, what the
//! paper printed, errata, and one [`Check`] a claim. A check's [`Source`] says whether the claim
//! was published or comes from a model of ours.

#![forbid(unsafe_code)]

pub mod aoki;
mod experiment;
pub mod kotoge;
mod report;
pub mod sudo;
mod sugimoto;
pub mod yoshida;

pub use experiment::Experiment;
pub use report::{Check, Grid, Options, PaperError, Progress, Reproduction, Source};

/// Every experiment that can be simulated, by paper and figure.
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
