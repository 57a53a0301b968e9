//! What the simple workloads have in common: a run of blocks and a share of writes.

use super::WorkloadErrorKind;
use crate::BlockRequest;
use futae_policy::{BlockId, Prng};
use futae_units::Size;
use std::fmt;

/// The blocks that a simple workload asks for, and how many of its requests are writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    pub size: Size,
    pub writes: f64,
}

impl Region {
    /// The size in blocks; at least one, at most what a volume can have.
    pub fn blocks(&self, block_bytes: u64) -> Result<u64, WorkloadErrorKind> {
        count(self.size.blocks(block_bytes)?)
    }

    /// Writes `name(arguments):SIZE`, leaving out what is the default.
    pub fn show(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        parameter: Option<f64>,
    ) -> fmt::Result {
        f.write_str(name)?;
        let writes = (self.writes > 0.0).then_some(self.writes);
        match (parameter, writes) {
            (Some(value), Some(writes)) => write!(f, "({value:?}, writes={writes:?})")?,
            (Some(value), None) => write!(f, "({value:?})")?,
            (None, Some(writes)) => write!(f, "(writes={writes:?})")?,
            (None, None) => {}
        }
        write!(f, ":{}", self.size)
    }
}

/// `blocks`, if there is at least one and a volume can have that many.
pub fn count(blocks: u64) -> Result<u64, WorkloadErrorKind> {
    match blocks {
        1..=BlockId::INDEX_LIMIT => Ok(blocks),
        _ => Err(WorkloadErrorKind::BlockCount { blocks }),
    }
}

/// Decides which requests are writes, by numbers of its own: the share of writes never changes
/// which blocks are asked for.
#[derive(Clone)]
pub struct Writes {
    /// Writes among 2^64 requests; more than 64 bits hold when all are.
    threshold: u128,
    prng: Prng,
}

impl Writes {
    pub fn new(share: f64, seed: u64) -> Self {
        Self {
            threshold: (share * 2f64.powi(64)) as u128,
            prng: Prng::new(seed),
        }
    }

    #[inline]
    pub fn mark(&mut self, request: &mut BlockRequest) {
        if self.threshold > 0 && u128::from(self.prng.bits()) < self.threshold {
            *request = BlockRequest::write(request.block());
        }
    }

    pub fn mark_all(&mut self, requests: &mut [BlockRequest]) {
        if self.threshold > 0 {
            requests.iter_mut().for_each(|request| self.mark(request));
        }
    }
}
