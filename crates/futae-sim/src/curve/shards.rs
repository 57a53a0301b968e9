//! LRU curves from a sample of the blocks: SHARDS (Waldspurger, Park, Garthwaite and Ahmad, FAST
//! 2015), with the paper's correction SHARDS-adj.

use super::sampled::Positions;
use super::{SampleError, Sampled, StackDistances};

/// An approximate LRU curve.
pub type Shards = Sampled<StackDistances>;

impl Positions for StackDistances {
    #[inline]
    fn request(&mut self, key: u32, _is_new: bool, weight: f64) -> Option<u64> {
        let distance = self.access(key)?;
        Some((f64::from(distance) * weight).round() as u64 + 1)
    }

    fn forget(&mut self, key: u32) {
        self.forget(key);
    }
}

impl Shards {
    /// Samples at a fixed rate; memory is this fraction of that for all blocks.
    pub fn fixed_rate(rate: f64, seed: u64) -> Result<Self, SampleError> {
        Self::at_rate(rate, seed, StackDistances::default())
    }

    /// Samples at most this many blocks (at least 1) at a time: begins at `rate`, and lowers it
    /// when there are more, dropping those with the highest hashes. Memory is fixed.
    pub fn fixed_size(blocks: usize, rate: f64, seed: u64) -> Result<Self, SampleError> {
        Ok(Self::fixed_rate(rate, seed)?.bounded_by(blocks))
    }
}
