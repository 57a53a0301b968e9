//! Curves from a sample of the blocks, as SHARDS takes it (Waldspurger, Park, Garthwaite and Ahmad,
//! FAST 2015), with the paper's correction SHARDS-adj.

use super::sample::ByHash;
use super::{Curve, Histogram, Sample, SampleError};
use std::collections::BinaryHeap;

/// The smallest caches that hit the requests of a sample.
pub trait Positions {
    /// The size, in blocks of the whole trace, of the smallest cache that hits the next request,
    /// which is for block `key` of the sample; `None` if that block is new. Each block of the sample
    /// stands for `weight` blocks, at least 1. Keys are numbered densely.
    fn request(&mut self, key: u32, is_new: bool, weight: f64) -> Option<u64>;

    /// Block `key` is no longer in the sample. Its key may be used again, for a new block.
    fn forget(&mut self, key: u32);
}

/// An approximate curve. Only requests for sampled blocks are processed; a distance among them,
/// divided by the sampling rate, estimates the distance among all.
#[derive(Clone, Debug)]
pub struct Sampled<P> {
    sample: Sample,
    /// With fixed memory: the largest number of blocks, and the hashes of the current ones.
    bound: Option<(usize, BinaryHeap<u64>)>,
    keys: ByHash<u32>,
    free: Vec<u32>,
    found: P,
    /// Weight, in requests, by stack position.
    positions: Histogram,
    requests: u64,
    /// The number of requests expected from the sample's rate.
    expected: f64,
}

impl<P: Positions> Sampled<P> {
    /// Samples at a fixed rate.
    pub(super) fn at_rate(rate: f64, seed: u64, found: P) -> Result<Self, SampleError> {
        Ok(Self {
            sample: Sample::new(rate, seed)?,
            bound: None,
            keys: ByHash::default(),
            free: Vec::new(),
            found,
            positions: Histogram::default(),
            requests: 0,
            expected: 0.0,
        })
    }

    /// Samples at most this many blocks (at least 1) at a time: begins at its rate, and lowers it
    /// when there are more, dropping those with the highest hashes.
    pub(super) fn bounded_by(self, blocks: usize) -> Self {
        Self {
            bound: Some((blocks.max(1), BinaryHeap::new())),
            ..self
        }
    }

    /// Adds the next request, for any block below 2^63.
    #[inline]
    pub fn access(&mut self, block: u64) {
        self.requests += 1;
        if let Some(hash) = self.sample.take(block) {
            self.sampled(hash);
        }
    }

    fn sampled(&mut self, hash: u64) {
        let weight = 1.0 / self.sample.rate();
        self.expected += weight;
        let known = self.keys.len() as u32;
        let mut is_new = false;
        let key = *self.keys.entry(hash).or_insert_with(|| {
            is_new = true;
            self.free.pop().unwrap_or(known)
        });
        if let Some(position) = self.found.request(key, is_new, weight) {
            self.positions.add(position, weight);
        }
        if is_new {
            self.bounded(hash);
        }
    }

    /// Lowers the threshold if one more block exceeds the limit.
    fn bounded(&mut self, hash: u64) {
        let Some((most, hashes)) = &mut self.bound else {
            return;
        };
        hashes.push(hash);
        while hashes.len() > *most {
            let Some(highest) = hashes.pop() else { return };
            self.sample.lower(highest);
            if let Some(key) = self.keys.remove(&highest) {
                self.found.forget(key);
                self.free.push(key);
            }
        }
    }

    /// Ends a warm-up: resets the counts and keeps the state of the caches.
    pub fn restart(&mut self) {
        self.positions = Histogram::default();
        self.requests = 0;
        self.expected = 0.0;
    }

    pub(super) fn found(&self) -> &P {
        &self.found
    }

    pub(super) fn found_mut(&mut self) -> &mut P {
        &mut self.found
    }

    /// Memory of the sample without what finds the positions, in bytes, roughly: a map's entries are
    /// counted with what it keeps beside them.
    pub(super) fn sample_bytes(&self) -> usize {
        let keys = self.keys.capacity() * (size_of::<(u64, u32)>() + 1);
        let hashes = self
            .bound
            .as_ref()
            .map_or(0, |(_, hashes)| hashes.capacity() * 8);
        keys + hashes + self.free.capacity() * 4 + self.positions.memory_bytes()
    }

    /// The current sampling rate.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.sample.rate()
    }

    /// Blocks in the sample now.
    #[must_use]
    pub fn sampled_blocks(&self) -> usize {
        self.keys.len()
    }

    /// The number of distinct blocks, estimated from the sample.
    #[must_use]
    pub fn distinct(&self) -> u64 {
        (self.keys.len() as f64 / self.rate()).round() as u64
    }

    /// The curve so far. The sample may have too few or too many requests, because the most popular
    /// blocks are not represented in proportion. The difference is added to (or subtracted from)
    /// the hits at the smallest size, where most of it belongs.
    #[must_use]
    pub fn curve(&self) -> Curve {
        let requests = self.requests as f64;
        let missing = requests - self.expected;
        let middle = |(low, high, weight): (u64, u64, f64)| (low + (high - low - 1) / 2, weight);
        let (mut first, mut rest) = (missing, Vec::new());
        for (position, weight) in self.positions.bins().map(middle) {
            if position == 1 {
                first += weight;
            } else {
                rest.push((position, weight));
            }
        }
        let positions = std::iter::once((1, first)).chain(rest);
        Curve::from_positions(positions, requests.max(1.0))
    }
}
