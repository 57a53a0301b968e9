//! Phase: N requests of the first part, then of the next; after the last the first again,
//! where it left off.

use super::WorkloadErrorKind;
use super::generator::Generator;
use super::mix::{places, show_parts};
use super::parse::Raw;
use super::piece::Problem;
use super::spec::Family;
use crate::{BlockRequest, BlockStream};
use futae_policy::Prng;
use std::fmt;

/// `phase(requests*workload, ..., space=shared)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    parts: Vec<(u64, Family)>,
    shared: bool,
}

impl Spec {
    pub fn parse(raw: &Raw<'_>) -> Result<Self, Problem> {
        let shared = raw.shared()?;
        let parts = raw.parts("a number of requests, at least 1", |&n: &u64| n > 0)?;
        Ok(Self { parts, shared })
    }

    pub fn blocks(&self, block_bytes: u64) -> Result<u64, WorkloadErrorKind> {
        places(
            self.parts.iter().map(|(_, part)| part),
            self.shared,
            block_bytes,
        )
        .map(|(_, blocks)| blocks)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_parts(f, "phase", &self.parts, self.shared)
    }
}

/// A part of running phases.
#[derive(Clone)]
struct Part {
    requests: u64,
    start: u64,
    generator: Generator,
}

/// The running phases.
#[derive(Clone)]
pub struct Phases {
    parts: Vec<Part>,
    current: usize,
    /// Requests of the current phase that are still to come.
    left: u64,
}

impl Phases {
    pub fn new(spec: &Spec, block_bytes: u64, seeds: &mut Prng) -> Result<Self, WorkloadErrorKind> {
        let families = spec.parts.iter().map(|(_, part)| part);
        let (starts, _) = places(families, spec.shared, block_bytes)?;
        let mut parts = Vec::with_capacity(starts.len());
        for (&(requests, ref family), start) in spec.parts.iter().zip(starts) {
            let generator = Generator::new(family, block_bytes, seeds.bits())?;
            parts.push(Part {
                requests,
                start,
                generator,
            });
        }
        let left = parts[0].requests;
        Ok(Self {
            parts,
            current: 0,
            left,
        })
    }

    pub fn fill(&mut self, mut out: &mut [BlockRequest]) {
        while !out.is_empty() {
            if self.left == 0 {
                self.current = (self.current + 1) % self.parts.len();
                self.left = self.parts[self.current].requests;
            }
            let part = &mut self.parts[self.current];
            let now = usize::try_from(self.left).map_or(out.len(), |left| left.min(out.len()));
            let (head, rest) = out.split_at_mut(now);
            part.generator.fill(head);
            if part.start > 0 {
                head.iter_mut()
                    .for_each(|r| *r = r.at(part.start + r.block()));
            }
            self.left -= now as u64;
            out = rest;
        }
    }
}
