//! Shift: the blocks exchange roles after every N requests.
//!
//! The blocks form a ring, which every shift rotates by a random number of blocks. A Zipf
//! distribution then has other popular blocks, since its ranks are scattered; a normal distribution
//! moves its middle; a loop jumps; a uniform one is unaffected.

use super::WorkloadErrorKind;
use super::generator::Generator;
use super::parse::Raw;
use super::piece::Problem;
use super::spec::Family;
use crate::{BlockRequest, BlockStream};
use futae_policy::Prng;
use std::fmt;

/// `shift(workload, every=requests)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    pub inner: Box<Family>,
    every: u64,
}

impl Spec {
    pub fn parse(raw: &Raw<'_>) -> Result<Self, Problem> {
        raw.no_size()?;
        raw.keys(&["every"])?;
        raw.plain_at_most(1)?;
        let inner = raw
            .plain
            .first()
            .ok_or_else(|| raw.missing("a workload, as in `zipf(1.0):10GiB`"))?;
        let inner = Box::new(raw.inner(*inner)?);
        let every = raw
            .key("every")
            .ok_or_else(|| raw.missing("the number of requests between shifts, `every=100000`"))?;
        let every = every.number("a number of requests, at least 1", |&n: &u64| n > 0)?;
        Ok(Self { inner, every })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shift({}, every={})", self.inner, self.every)
    }
}

/// The running workload.
#[derive(Clone)]
pub struct Shifting {
    inner: Generator,
    blocks: u64,
    every: u64,
    /// Requests until the next shift.
    left: u64,
    /// By how much the ring is turned.
    turn: u64,
    prng: Prng,
}

impl Shifting {
    pub fn new(spec: &Spec, block_bytes: u64, seeds: &mut Prng) -> Result<Self, WorkloadErrorKind> {
        let blocks = spec.inner.blocks(block_bytes)?;
        let inner = Generator::new(&spec.inner, block_bytes, seeds.bits())?;
        let prng = Prng::new(seeds.bits());
        Ok(Self {
            inner,
            blocks,
            every: spec.every,
            left: spec.every,
            turn: 0,
            prng,
        })
    }

    pub fn fill(&mut self, mut out: &mut [BlockRequest]) {
        while !out.is_empty() {
            if self.left == 0 {
                self.left = self.every;
                self.turn = self.prng.below(self.blocks);
            }
            let now = usize::try_from(self.left).map_or(out.len(), |left| left.min(out.len()));
            let (head, rest) = out.split_at_mut(now);
            self.inner.fill(head);
            for request in head {
                let turned = request.block() + self.turn;
                let wrapped = if turned >= self.blocks {
                    turned - self.blocks
                } else {
                    turned
                };
                *request = request.at(wrapped);
            }
            self.left -= now as u64;
            out = rest;
        }
    }
}
