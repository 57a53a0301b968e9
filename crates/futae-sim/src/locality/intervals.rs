//! Re-access intervals at one place, and their density.

use crate::curve::Histogram;
use serde::Serialize;

/// The limit of a negligible re-access density: the density averaged over a gap is at most this
/// fraction of the density averaged up to the median interval.
pub const GAP_THRESHOLD: f64 = 0.01;

/// Bins that a density may have: each is in memory, and in what is printed.
pub const BINS_MAX: usize = 1_000_000;

const GIB: f64 = (1u64 << 30) as f64;

/// How intervals are divided into bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bins {
    /// All bins have the same width.
    Linear,
    /// Each bin is wider than the previous one by the same factor.
    Log,
}

/// One bin of a density.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bin {
    /// The shortest interval in it, in bytes.
    pub low_bytes: f64,
    /// The shortest interval of the next, in bytes.
    pub high_bytes: f64,
    /// The fraction of all re-accesses that is in it, from 0 to 1.
    pub share: f64,
    /// The fraction divided by the width: probability density, per GB (2^30 bytes).
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
    /// An empty state, for blocks of this many bytes.
    #[must_use]
    pub fn new(block_bytes: u64) -> Self {
        Self {
            block_bytes,
            last: Vec::new(),
            requests: 0,
            histogram: Histogram::default(),
        }
    }

    /// Adds the next request. Blocks are array indexes: number them densely.
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

    /// Ends a warm-up: resets the counts, and keeps each block's last request.
    pub fn restart(&mut self) {
        self.histogram = Histogram::default();
    }

    /// Number of requests so far, including those of a warm-up.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Number of requests for a block that was requested before, which is the number of intervals.
    #[must_use]
    pub fn reaccesses(&self) -> u64 {
        self.histogram.total() as u64
    }

    /// The quantile of the intervals: this fraction of the re-accesses, from 0 to 1, is below it,
    /// in bytes. `None` without re-accesses.
    #[must_use]
    pub fn quantile_bytes(&self, share: f64) -> Option<f64> {
        let any = self.histogram.total() > 0.0;
        any.then(|| self.histogram.quantile(share) * self.block_bytes as f64)
    }

    /// The gap: the largest interval, in bytes, below which the re-access density is about 0
    /// ([`GAP_THRESHOLD`]); at most the median. 0 if there is no gap, `None` without re-accesses.
    ///
    /// The density is compared with its average up to the median, and not with its maximum, so that
    /// a few blocks requested twice in a row neither hide a gap nor create one.
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
            // Up to `low`, which is the end of the summed bins or of a run of empty ones.
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

    /// The density of the intervals in this many bins, from 0 (linear) or one block (log; shorter
    /// intervals are in the first bin) to `end_bytes`, by default the longest interval.
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
