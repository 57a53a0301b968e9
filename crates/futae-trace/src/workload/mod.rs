//! Synthetic workloads: what a user writes, and the streams drawn from it.
//!
//! One file for each family. A family has a spec (parsed, shown, measured) and a source or
//! generator that draws from it. A new family is a new file, a line in [`workloads`] and a
//! variant of [`Family`].

mod cyclic;
mod error;
mod generator;
mod mix;
mod normal;
mod parse;
mod phase;
mod piece;
mod region;
mod requests;
mod scatter;
mod shift;
mod spec;
mod uniform;
mod zipf;

pub use error::{WorkloadError, WorkloadErrorKind};
pub use generator::Generator;
pub use requests::WorkloadReader;
pub use spec::WorkloadSpec;

use parse::Raw;
use piece::Problem;
use spec::Family;

/// One family of workloads, for help texts and error messages.
#[derive(Clone, Copy)]
pub struct Workload {
    /// The name that a spec begins with.
    pub name: &'static str,
    /// A spec of this family.
    pub example: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    parse: fn(&Raw<'_>) -> Result<Family, Problem>,
}

/// Every family of workloads, simple ones first.
#[must_use]
pub fn workloads() -> &'static [Workload] {
    &[
        Workload {
            name: "uniform",
            example: "uniform:10GiB",
            summary: "every block is equally likely",
            parse: |raw| raw.simple().map(Family::Uniform),
        },
        Workload {
            name: "zipf",
            example: "zipf(1.0):10GiB",
            summary: "the block of rank r has weight 1/r^exponent; ranks are scattered",
            parse: |raw| zipf::Spec::parse(raw).map(Family::Zipf),
        },
        Workload {
            name: "loop",
            example: "loop:6GiB",
            summary: "every block in order, again and again",
            parse: |raw| raw.simple().map(Family::Loop),
        },
        Workload {
            name: "scan",
            example: "scan:10GiB",
            summary: "every block in order, once",
            parse: |raw| raw.simple().map(Family::Scan),
        },
        Workload {
            name: "normal",
            example: "normal(0.25):2GiB",
            summary: "normally distributed around the middle; sigma is a share of the size",
            parse: |raw| normal::Spec::parse(raw).map(Family::Normal),
        },
        Workload {
            name: "mix",
            example: "mix(0.7*zipf(1.0):10GiB, 0.3*scan:4GiB)",
            summary: "each request comes from one of the parts, drawn by weight",
            parse: |raw| mix::Spec::parse(raw).map(Family::Mix),
        },
        Workload {
            name: "phase",
            example: "phase(1000000*zipf(0.8):10GiB, 1000000*loop:6GiB)",
            summary: "N requests of the first part, then of the next, and round again",
            parse: |raw| phase::Spec::parse(raw).map(Family::Phase),
        },
        Workload {
            name: "shift",
            example: "shift(zipf(1.0):10GiB, every=100000)",
            summary: "the blocks change roles after every N requests",
            parse: |raw| shift::Spec::parse(raw).map(Family::Shift),
        },
    ]
}

#[cfg(test)]
mod tests;
