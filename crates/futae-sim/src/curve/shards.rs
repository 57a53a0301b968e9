//! LRU curves from a sample of the blocks: SHARDS (Waldspurger, Park, Garthwaite and Ahmad, FAST
//! 2015), with the paper's correction SHARDS-adj.

use super::sample::ByHash;
use super::{Curve, Histogram, Sample, SampleError, StackDistances};
use std::collections::BinaryHeap;

/// An approximate LRU curve. Only requests for sampled blocks are processed; a distance among them,
/// divided by the sampling rate, estimates the distance among all.
#[derive(Clone, Debug)]
pub struct Shards {
    sample: Sample,
    /// With fixed memory: the largest number of blocks, and the hashes of the current ones.
    bound: Option<(usize, BinaryHeap<u64>)>,
    keys: ByHash<u32>,
    free: Vec<u32>,
    distances: StackDistances,
    /// Weight, in requests, by stack position.
    positions: Histogram,
    requests: u64,
    /// The number of requests expected from the sample's rate.
    expected: f64,
}

impl Shards {
    /// Samples at a fixed rate; memory is this fraction of that for all blocks.
    pub fn fixed_rate(rate: f64, seed: u64) -> Result<Self, SampleError> {
        Ok(Self {
            sample: Sample::new(rate, seed)?,
            bound: None,
            keys: ByHash::default(),
            free: Vec::new(),
            distances: StackDistances::default(),
            positions: Histogram::default(),
            requests: 0,
            expected: 0.0,
        })
    }

    /// Samples at most this many blocks (at least 1) at a time: begins at `rate`, and lowers it
    /// when there are more, dropping those with the highest hashes. Memory is fixed.
    pub fn fixed_size(blocks: usize, rate: f64, seed: u64) -> Result<Self, SampleError> {
        let shards = Self::fixed_rate(rate, seed)?;
        Ok(Self {
            bound: Some((blocks.max(1), BinaryHeap::new())),
            ..shards
        })
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
        if let Some(distance) = self.distances.access(key) {
            let position = (f64::from(distance) * weight).round() as u64 + 1;
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
                self.distances.forget(key);
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
