//! A workload as a user writes it.

use super::generator::Generator;
use super::parse;
use super::piece::Piece;
use super::region::Region;
use super::{WorkloadError, WorkloadErrorKind, mix, normal, phase, shift, zipf};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The highest rate of a guest.
const RATE_MAX: f64 = 1e6;

/// A synthetic workload, such as `zipf(1.0):10GiB`; see [`workloads`](super::workloads) for all.
///
/// It is parsed from a string and shown as one that parses to the same workload. Simple workloads
/// take `writes=0.3` among their parameters. The parts of `mix` and `phase` stand side by side,
/// each with blocks of its own, unless `space=shared` makes all of them begin at block 0.
///
/// Of several guests, one whose workload has a number before it, as in `3*zipf(1.0):10GiB`, asks
/// that many times as often as one without. Everywhere else the number changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkloadSpec {
    rate: f64,
    family: Family,
}

/// The families, each with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Family {
    Uniform(Region),
    Zipf(zipf::Spec),
    Loop(Region),
    Scan(Region),
    Normal(normal::Spec),
    Mix(mix::Spec),
    Phase(phase::Spec),
    Shift(shift::Spec),
}

impl WorkloadSpec {
    /// How often a guest with this workload asks, beside one whose rate is 1.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// The number of blocks that the workload can request: all are below it.
    pub fn blocks(&self, block_bytes: u64) -> Result<u64, WorkloadError> {
        self.family
            .blocks(block_bytes)
            .map_err(|kind| self.unfit(kind))
    }

    /// The number of requests after which a `scan` is complete: one pass. Every other workload is
    /// endless, and so is a scan that is read further: it begins again.
    pub fn natural_requests(&self, block_bytes: u64) -> Result<Option<u64>, WorkloadError> {
        match &self.family {
            Family::Scan(region) => region
                .blocks(block_bytes)
                .map(Some)
                .map_err(|kind| self.unfit(kind)),
            _ => Ok(None),
        }
    }

    /// The endless stream of requests for blocks of `block_bytes`. The same workload, block size
    /// and seed give the same requests on every machine.
    pub fn generator(&self, block_bytes: u64, seed: u64) -> Result<Generator, WorkloadError> {
        Generator::new(&self.family, block_bytes, seed).map_err(|kind| self.unfit(kind))
    }

    fn unfit(&self, kind: WorkloadErrorKind) -> WorkloadError {
        WorkloadError {
            spec: self.to_string(),
            character: None,
            kind,
        }
    }
}

impl Family {
    /// How many blocks the workload can ask for.
    pub fn blocks(&self, block_bytes: u64) -> Result<u64, WorkloadErrorKind> {
        match self {
            Self::Uniform(region) | Self::Loop(region) | Self::Scan(region) => {
                region.blocks(block_bytes)
            }
            Self::Zipf(spec) => spec.region.blocks(block_bytes),
            Self::Normal(spec) => spec.region.blocks(block_bytes),
            Self::Mix(spec) => spec.blocks(block_bytes),
            Self::Phase(spec) => spec.blocks(block_bytes),
            Self::Shift(spec) => spec.inner.blocks(block_bytes),
        }
    }
}

impl FromStr for WorkloadSpec {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let of_rate = |piece: Piece<'_>| {
            let expected = "a rate above 0 and up to 1e6";
            piece.number(expected, |&rate| rate > 0.0 && rate <= RATE_MAX)
        };
        let whole = Piece { text, at: 0 };
        let parsed = match whole.split_once('*') {
            None => parse::family(whole, 0).map(|family| (1.0, family)),
            Some((rate, rest)) => {
                of_rate(rate).and_then(|rate| Ok((rate, parse::family(rest, 0)?)))
            }
        };
        let (rate, family) = parsed.map_err(|(at, kind)| WorkloadError {
            spec: text.to_owned(),
            character: Some(text[..at].chars().count() + 1),
            kind,
        })?;
        Ok(Self { rate, family })
    }
}

impl fmt::Display for WorkloadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rate != 1.0 {
            write!(f, "{}*", self.rate)?;
        }
        self.family.fmt(f)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform(region) => region.show(f, "uniform", None),
            Self::Zipf(spec) => spec.region.show(f, "zipf", Some(spec.exponent)),
            Self::Loop(region) => region.show(f, "loop", None),
            Self::Scan(region) => region.show(f, "scan", None),
            Self::Normal(spec) => spec.region.show(f, "normal", Some(spec.sigma)),
            Self::Mix(spec) => spec.fmt(f),
            Self::Phase(spec) => spec.fmt(f),
            Self::Shift(spec) => spec.fmt(f),
        }
    }
}

impl TryFrom<String> for WorkloadSpec {
    type Error = WorkloadError;

    fn try_from(text: String) -> Result<Self, WorkloadError> {
        text.parse()
    }
}

impl From<WorkloadSpec> for String {
    fn from(spec: WorkloadSpec) -> Self {
        spec.to_string()
    }
}
