//! LRU curves from reuse times: AET (Hu, Wang, Li, Zhou, Luo, Jiang, Wu and Sun, "Kinetic modeling of data eviction in
//! cache", ATC 2016, section 3).

use super::sample::ByHash;
use super::{Curve, Histogram, Point, Sample, SampleError};

/// An approximate LRU curve. The reuse time of a request is the number of requests since the last
/// one for its block. A block in the cache moves down one position for each request whose reuse
/// time exceeds the block's age. After *t* requests it has moved by the sum of P(0) to P(t − 1),
/// where P(t) is the fraction of requests with a longer reuse time; a cache of that size misses
/// P(t).
///
/// Reuse times are taken from a sample of the blocks. Memory is 16 bytes per sampled block, and a
/// histogram.
#[derive(Clone, Debug)]
pub struct Aet {
    sample: Sample,
    last: ByHash<u64>,
    times: Histogram,
    /// Requests of the sample that were the first for their block.
    first: u64,
    requests: u64,
}

impl Aet {
    /// Samples the reuse times of this fraction of the blocks, above 0 and at most 1.
    pub fn new(rate: f64, seed: u64) -> Result<Self, SampleError> {
        Ok(Self {
            sample: Sample::new(rate, seed)?,
            last: ByHash::default(),
            times: Histogram::default(),
            first: 0,
            requests: 0,
        })
    }

    /// Adds the next request, for any block below 2^63.
    #[inline]
    pub fn access(&mut self, block: u64) {
        self.requests += 1;
        if let Some(hash) = self.sample.take(block) {
            match self.last.insert(hash, self.requests) {
                Some(last) => self.times.add(self.requests - last, 1.0),
                None => self.first += 1,
            }
        }
    }

    /// The sampling rate.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.sample.rate()
    }

    /// The number of distinct blocks, estimated from the sample.
    #[must_use]
    pub fn distinct(&self) -> u64 {
        (self.last.len() as f64 / self.rate()).round() as u64
    }

    /// The curve so far.
    #[must_use]
    pub fn curve(&self) -> Curve {
        let total = self.times.total() + self.first as f64;
        let mut points = vec![Point {
            blocks: 0,
            miss_ratio: 1.0,
        }];
        // The fraction of requests with longer reuse times, the position of a block by then, and
        // since when that holds.
        let (mut longer, mut place, mut since) = (total, 0.0, 0);
        for (low, _, weight) in self.times.bins() {
            place += longer / total * (low - since) as f64;
            longer -= weight;
            since = low;
            points.push(Point {
                blocks: place.round() as u64,
                miss_ratio: longer / total,
            });
        }
        // Of several points with one size, the last one is valid.
        points.reverse();
        Curve::steps(points)
    }
}
