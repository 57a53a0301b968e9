//! Re-access intervals at one place, and their density.

use crate::curve::Histogram;
use serde::Serialize;

/// What counts as no re-access density: the density averaged over a gap is at most this share of
/// the density averaged up to the median interval.
pub const GAP_THRESHOLD: f64 = 0.01;

const GIB: f64 = (1u64 << 30) as f64;

/// How bins divide the intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bins {
    /// All as wide.
    Linear,
    /// Each as many times as wide as the one before it.
    Log,
}

/// One bin of a density.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bin {
    /// The shortest interval in it, in bytes.
    pub low_bytes: f64,
    /// The shortest interval of the next, in bytes.
    pub high_bytes: f64,
    /// The share of all re-accesses that is in it, from 0 to 1.
    pub share: f64,
    /// The share divided by the width: probability density, per GB (2^30 bytes).
    pub density_per_gb: f64,
}

/// The re-access intervals of a stream of requests.
#[derive(Clone, Debug)]
pub struct Intervals {
    block_bytes: u64,
    /// By block: the number of its last request, from 1; 0 for none.
    last: Vec<u64>,
    requests: u64,
    /// Intervals in blocks.
    histogram: Histogram,
}

impl Intervals {
    /// None yet, for blocks of this many bytes.
    #[must_use]
    pub fn new(block_bytes: u64) -> Self {
        Self {
            block_bytes,
            last: Vec::new(),
            requests: 0,
            histogram: Histogram::default(),
        }
    }

    /// Takes the next request. Blocks are array indexes: number them densely.
    #[inline]
    pub fn access(&mut self, block: u32) {
        let at = block as usize;
        if at >= self.last.len() {
            self.last.resize(at + 1, 0);
        }
        self.requests += 1;
        let last = std::mem::replace(&mut self.last[at], self.requests);
        if last > 0 {
            self.histogram.add(self.requests - last - 1, 1.0);
        }
    }

    /// From now on counts intervals anew; what was asked for before is remembered. To be called
    /// after a warm-up.
    pub fn restart(&mut self) {
        self.histogram = Histogram::default();
    }

    /// Requests so far, those of a warm-up included.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Requests for a block that had been asked for before: as many as there are intervals.
    #[must_use]
    pub fn reaccesses(&self) -> u64 {
        self.histogram.total() as u64
    }

    /// The interval that this share of the re-accesses, from 0 to 1, is below, in bytes. None
    /// without re-accesses.
    #[must_use]
    pub fn quantile_bytes(&self, share: f64) -> Option<f64> {
        let any = self.histogram.total() > 0.0;
        any.then(|| self.histogram.quantile(share) * self.block_bytes as f64)
    }

    /// The gap: the largest interval, in bytes, below which the re-access density is about 0
    /// ([`GAP_THRESHOLD`]); no more than the median. 0 where there is no gap, none without
    /// re-accesses.
    ///
    /// The density is held against that up to the median, and not against its highest, so that a
    /// few blocks that are asked for twice at once neither hide a gap nor make one.
    #[must_use]
    pub fn gap_bytes(&self) -> Option<f64> {
        let total = self.histogram.total();
        if total == 0.0 {
            return None;
        }
        let median = self.histogram.quantile(0.5).max(1.0);
        let usual = 0.5 / median;
        let (mut gap, mut sum) = (0u64, 0.0);
        for (low, _, weight) in self.histogram.bins() {
            // Up to `low`, which is the end of what was summed or of a run of empty bins.
            if low as f64 > median {
                break;
            }
            if sum / total <= GAP_THRESHOLD * usual * low as f64 {
                gap = low;
            }
            sum += weight;
        }
        Some(gap as f64 * self.block_bytes as f64)
    }

    /// The density of the intervals in this many bins, from 0 (linear) or one block (log; what is
    /// shorter is then in the first bin) to `end_bytes` or else the longest interval.
    #[must_use]
    pub fn density(&self, bins: usize, kind: Bins, end_bytes: Option<f64>) -> Vec<Bin> {
        let total = self.histogram.total();
        if total == 0.0 || bins == 0 {
            return Vec::new();
        }
        let unit = self.block_bytes as f64;
        let end = end_bytes.map_or(self.histogram.end() as f64, |bytes| bytes / unit);
        let end = end.max(2.0);
        let edge = |i: usize| match (kind, i as f64 / bins as f64) {
            (_, 0.0) => 0.0,
            (Bins::Linear, along) => end * along,
            (Bins::Log, along) => end.powf(along),
        };
        let share = |edge: f64| self.histogram.below(edge) / total;
        let bin = |i| {
            let (low, high) = (edge(i), edge(i + 1));
            let share = share(high) - share(low);
            Bin {
                low_bytes: low * unit,
                high_bytes: high * unit,
                share,
                density_per_gb: share / ((high - low) * unit / GIB),
            }
        };
        (0..bins).map(bin).collect()
    }
}
