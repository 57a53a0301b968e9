//! Streams of requests drawn from a workload.

use super::region::{Region, Writes};
use super::spec::Family;
use super::{WorkloadErrorKind, cyclic, mix, normal, phase, shift, uniform, zipf};
use crate::{BlockRequest, BlockStream};
use futae_policy::{AccessKind, Prng};

/// What a simple workload is in the end: one block number after another.
pub trait Source {
    fn draw(&mut self) -> u64;
}

/// An endless stream of requests, drawn from a [`WorkloadSpec`](super::WorkloadSpec).
///
/// [`BlockStream::fill`] decides once a batch which workload it draws from, and then runs code
/// made for that workload; use it where speed matters. It can be mixed with
/// [`Generator::next_block`] freely: both take the next requests of one stream.
#[derive(Clone)]
pub struct Generator(Kind);

#[derive(Clone)]
enum Kind {
    Uniform(Simple<uniform::Draw>),
    Zipf(Simple<zipf::Draw>),
    Cyclic(Simple<cyclic::Draw>),
    Normal(Simple<normal::Draw>),
    Mix(mix::Mixture),
    Phase(phase::Phases),
    Shift(Box<shift::Shifting>),
}

/// A source with its share of writes.
#[derive(Clone)]
struct Simple<S> {
    source: S,
    writes: Writes,
}

impl<S: Source> Simple<S> {
    fn new(region: &Region, seeds: &mut Prng, source: impl FnOnce(Prng) -> S) -> Self {
        let source = source(Prng::new(seeds.bits()));
        Self {
            source,
            writes: Writes::new(region.writes, seeds.bits()),
        }
    }

    #[inline]
    fn next(&mut self) -> BlockRequest {
        let mut request = BlockRequest::read(self.source.draw());
        self.writes.mark(&mut request);
        request
    }

    fn fill(&mut self, out: &mut [BlockRequest]) {
        for request in out.iter_mut() {
            *request = BlockRequest::read(self.source.draw());
        }
        self.writes.mark_all(out);
    }
}

impl Generator {
    pub(super) fn new(
        family: &Family,
        block_bytes: u64,
        seed: u64,
    ) -> Result<Self, WorkloadErrorKind> {
        let blocks = family.blocks(block_bytes)?;
        let mut seeds = Prng::new(seed);
        let seeds = &mut seeds;
        Ok(Self(match family {
            Family::Uniform(region) => Kind::Uniform(Simple::new(region, seeds, |prng| {
                uniform::Draw::new(blocks, prng)
            })),
            Family::Zipf(spec) => Kind::Zipf(Simple::new(&spec.region, seeds, |prng| {
                zipf::Draw::new(blocks, spec.exponent, prng)
            })),
            Family::Loop(region) | Family::Scan(region) => {
                Kind::Cyclic(Simple::new(region, seeds, |_| cyclic::Draw::new(blocks)))
            }
            Family::Normal(spec) => Kind::Normal(Simple::new(&spec.region, seeds, |prng| {
                normal::Draw::new(blocks, spec.sigma, prng)
            })),
            Family::Mix(spec) => Kind::Mix(mix::Mixture::new(spec, block_bytes, seeds)?),
            Family::Phase(spec) => Kind::Phase(phase::Phases::new(spec, block_bytes, seeds)?),
            Family::Shift(spec) => {
                Kind::Shift(Box::new(shift::Shifting::new(spec, block_bytes, seeds)?))
            }
        }))
    }

    /// The next request: which block, and whether it is read or written.
    pub fn next_block(&mut self) -> (u64, AccessKind) {
        let request = self.next_request();
        (request.block(), request.kind())
    }

    #[inline]
    pub(super) fn next_request(&mut self) -> BlockRequest {
        match &mut self.0 {
            Kind::Uniform(simple) => simple.next(),
            Kind::Zipf(simple) => simple.next(),
            Kind::Cyclic(simple) => simple.next(),
            Kind::Normal(simple) => simple.next(),
            Kind::Mix(mixture) => mixture.next(),
            Kind::Phase(phases) => one(|out| phases.fill(out)),
            Kind::Shift(shifting) => one(|out| shifting.fill(out)),
        }
    }
}

fn one(fill: impl FnOnce(&mut [BlockRequest])) -> BlockRequest {
    let mut request = [BlockRequest::default()];
    fill(&mut request);
    request[0]
}

impl BlockStream for Generator {
    fn fill(&mut self, out: &mut [BlockRequest]) -> usize {
        match &mut self.0 {
            Kind::Uniform(simple) => simple.fill(out),
            Kind::Zipf(simple) => simple.fill(out),
            Kind::Cyclic(simple) => simple.fill(out),
            Kind::Normal(simple) => simple.fill(out),
            Kind::Mix(mixture) => out.iter_mut().for_each(|request| *request = mixture.next()),
            Kind::Phase(phases) => phases.fill(out),
            Kind::Shift(shifting) => shifting.fill(out),
        }
        out.len()
    }
}

/// Never ends.
impl Iterator for Generator {
    type Item = BlockRequest;

    fn next(&mut self) -> Option<BlockRequest> {
        Some(self.next_request())
    }
}
