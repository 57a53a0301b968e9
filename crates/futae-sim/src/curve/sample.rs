//! Spatial hash sampling: either all requests for a block are in the sample, or none.

use futae_policy::{Prng, mixed};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes are below this.
const HASHES: u64 = 1 << 63;

/// A block is in the sample if its hash is below a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    threshold: u64,
    salt: u64,
}

/// An invalid rate.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a sampling rate is above 0 and at most 1, not {0}")]
pub struct SampleError(pub f64);

impl Sample {
    /// A sample of this fraction of all blocks, above 0 and at most 1; `seed` selects them.
    pub fn new(rate: f64, seed: u64) -> Result<Self, SampleError> {
        if !(rate > 0.0 && rate <= 1.0) {
            return Err(SampleError(rate));
        }
        Ok(Self {
            threshold: ((rate * HASHES as f64) as u64).max(1),
            salt: Prng::new(seed).bits(),
        })
    }

    /// The fraction of all blocks that is in the sample.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.threshold as f64 / HASHES as f64
    }

    /// The block's hash, if it is in the sample. Different blocks below 2^63 rarely share one.
    #[inline]
    #[must_use]
    pub fn take(&self, block: u64) -> Option<u64> {
        let hash = mixed(block ^ self.salt) >> 1;
        (hash < self.threshold).then_some(hash)
    }

    /// Restricts the sample to hashes below this.
    pub(super) fn lower(&mut self, threshold: u64) {
        self.threshold = self.threshold.min(threshold);
    }
}

/// A map by hashes of sampled blocks, which are not hashed again.
pub type ByHash<V> = HashMap<u64, V, BuildHasherDefault<Hashed>>;

/// Uses a hash as its own hash.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        // The upper bits of a sample's hashes are alike, and the map uses those.
        self.0.rotate_left(32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mixed(self.0 ^ u64::from(byte));
        }
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_share_whatever_the_seed() {
        for (rate, seed) in [(0.01, 1), (0.1, 2), (1.0, 3)] {
            let sample = Sample::new(rate, seed).expect("a rate");
            let taken = (0..100_000).filter(|&block| sample.take(block).is_some());
            let share = taken.count() as f64 / 1e5;
            assert!((share - rate).abs() < 0.003, "{rate}: {share}");
        }
        for rate in [0.0, -1.0, 1.1, f64::NAN] {
            assert!(Sample::new(rate, 1).is_err(), "{rate}");
        }
    }
}
