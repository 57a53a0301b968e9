//! Mix: each request comes from one of the parts, drawn by weight.

use super::WorkloadErrorKind;
use super::generator::Generator;
use super::parse::Raw;
use super::piece::Problem;
use super::region::count;
use super::spec::Family;
use crate::BlockRequest;
use futae_policy::Prng;
use std::fmt;

/// `mix(weight*workload, ..., space=shared)`. Weights need not add up to anything.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    parts: Vec<(f64, Family)>,
    shared: bool,
}

impl Spec {
    pub fn parse(raw: &Raw<'_>) -> Result<Self, Problem> {
        let shared = raw.shared()?;
        let expected = "a weight above 0 and up to 1e9";
        let parts = raw.parts(expected, |&w: &f64| w > 0.0 && w <= 1e9)?;
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
        show_parts(f, "mix", &self.parts, self.shared)
    }
}

/// Writes the parts of a workload made of others.
pub fn show_parts<T: fmt::Debug>(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    parts: &[(T, Family)],
    shared: bool,
) -> fmt::Result {
    write!(f, "{name}(")?;
    for (i, (number, part)) in parts.iter().enumerate() {
        write!(f, "{}{number:?}*{part}", if i == 0 { "" } else { ", " })?;
    }
    f.write_str(if shared { ", space=shared)" } else { ")" })
}

/// Where each part's blocks begin, and how many blocks there are in all: the parts share their
/// blocks or stand side by side.
pub fn places<'a>(
    parts: impl Iterator<Item = &'a Family>,
    shared: bool,
    block_bytes: u64,
) -> Result<(Vec<u64>, u64), WorkloadErrorKind> {
    let (mut starts, mut total) = (Vec::new(), 0u64);
    for part in parts {
        let blocks = part.blocks(block_bytes)?;
        starts.push(if shared { 0 } else { total });
        total = if shared {
            total.max(blocks)
        } else {
            count(total + blocks)?
        };
    }
    Ok((starts, total))
}

/// A part of a running mixture.
#[derive(Clone)]
struct Part {
    /// The weights of this part and of those before it.
    until: f64,
    start: u64,
    generator: Generator,
}

/// The running mixture.
#[derive(Clone)]
pub struct Mixture {
    parts: Vec<Part>,
    total: f64,
    prng: Prng,
}

impl Mixture {
    pub fn new(spec: &Spec, block_bytes: u64, seeds: &mut Prng) -> Result<Self, WorkloadErrorKind> {
        let families = spec.parts.iter().map(|(_, part)| part);
        let (starts, _) = places(families, spec.shared, block_bytes)?;
        let prng = Prng::new(seeds.bits());
        let mut total = 0.0;
        let mut parts = Vec::with_capacity(starts.len());
        for ((weight, family), start) in spec.parts.iter().zip(starts) {
            total += weight;
            let generator = Generator::new(family, block_bytes, seeds.bits())?;
            parts.push(Part {
                until: total,
                start,
                generator,
            });
        }
        Ok(Self { parts, total, prng })
    }

    #[inline]
    pub fn next(&mut self) -> BlockRequest {
        let u = self.prng.unit() * self.total;
        // Rounding may leave a u of exactly the total: then the last part takes it.
        let last = self.parts.len() - 1;
        let chosen = self.parts[..last]
            .iter()
            .position(|part| u < part.until)
            .unwrap_or(last);
        let part = &mut self.parts[chosen];
        let request = part.generator.next_request();
        request.at(part.start + request.block())
    }
}
