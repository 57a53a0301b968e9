//! Miss-ratio curves: the fraction of requests that a cache of each size misses.
//!
//! * [`ExactLru`]: LRU at every size at once, by stack distances (Mattson et al., 1970);
//! * [`Shards`]: the same from a sample of the blocks (Waldspurger et al., FAST 2015), at a fixed
//!   rate or in fixed memory;
//! * [`Aet`]: the same from the times between uses (Hu et al., ATC 2016);
//! * [`Kosmo`]: policies that evict by ranks, such as FIFO and LRFU, in one pass (Shakiba et al., FAST
//!   2024);
//! * [`Source::simulate_sizes`]: any policy, by a simulation of each size;
//! * [`MiniTrace`]: any policy that reads nothing ahead, by a small copy of the trace and of the cache (Waldspurger et al.,
//!   ATC 2017).
//!
//! [`Methods`] selects several of them at once.
//!
//! Caches begin empty and every request counts, reads and writes alike: the first request for a
//! block is a miss at every size. Sizes are in blocks, ratios fractions from 0 to 1.

mod aet;
mod distance;
mod exact;
mod histogram;
mod kosmo;
mod methods;
mod mini;
mod sample;
mod sampled;
mod shards;
mod simulated;
mod source;
mod stream;
#[cfg(test)]
mod tests;

pub use aet::Aet;
pub use distance::StackDistances;
pub use exact::ExactLru;
pub use histogram::Histogram;
pub use kosmo::{Kosmo, KosmoError};
pub use methods::{CacheSizesError, Made, Makings, Methods, MethodsError, cache_sizes};
pub use mini::{MiniTrace, simulate_sizes};
pub use sample::{ByHash, Sample, SampleError};
pub use sampled::{Positions, Sampled};
pub use shards::Shards;
pub use source::{Source, SourceError};
pub use stream::TraceStream;

use serde::Serialize;

/// One point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The cache's capacity, in blocks.
    pub blocks: u64,
    /// The share of requests that it misses, from 0 to 1.
    pub miss_ratio: f64,
}

/// The interpolation between two points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Between {
    /// The value of the previous point.
    Step,
    /// A straight line.
    Line,
}

/// A miss-ratio curve. A cache of 0 blocks misses every request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    points: Vec<Point>,
    #[serde(skip)]
    between: Between,
}

impl Curve {
    /// A curve known at every size: `points` are those at which it changes.
    #[must_use]
    pub fn steps(points: Vec<Point>) -> Self {
        Self::new(points, Between::Step)
    }

    /// A curve known only at the sizes of `points`, interpolated linearly between them.
    #[must_use]
    pub fn samples(points: Vec<Point>) -> Self {
        Self::new(points, Between::Line)
    }

    fn new(mut points: Vec<Point>, between: Between) -> Self {
        points.sort_by_key(|point| point.blocks);
        points.dedup_by_key(|point| point.blocks);
        Self { points, between }
    }

    /// The curve from stack positions: a request at position *p* is a hit in every LRU cache of *p*
    /// blocks or more. `total` is the number of requests, including those that are never a hit.
    #[must_use]
    pub fn from_positions(positions: impl IntoIterator<Item = (u64, f64)>, total: f64) -> Self {
        let mut points = vec![Point {
            blocks: 0,
            miss_ratio: 1.0,
        }];
        let mut hits = 0.0;
        for (blocks, weight) in positions {
            hits += weight;
            let miss_ratio = (1.0 - hits / total).clamp(0.0, 1.0);
            points.push(Point { blocks, miss_ratio });
        }
        Self::steps(points)
    }

    /// Its points, by size.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The miss ratio of a cache of this many blocks; beyond the last point, the ratio of that
    /// point.
    #[must_use]
    pub fn miss_ratio_at(&self, blocks: u64) -> f64 {
        let after = self.points.partition_point(|point| point.blocks <= blocks);
        let before = match after.checked_sub(1) {
            Some(at) => self.points[at],
            None => Point {
                blocks: 0,
                miss_ratio: 1.0,
            },
        };
        match (self.between, self.points.get(after)) {
            (Between::Line, Some(next)) => {
                let along = (blocks - before.blocks) as f64 / (next.blocks - before.blocks) as f64;
                before.miss_ratio + along * (next.miss_ratio - before.miss_ratio)
            }
            _ => before.miss_ratio,
        }
    }

    /// The curve at these sizes only.
    #[must_use]
    pub fn at(&self, sizes: &[u64]) -> Self {
        let point = |&blocks| Point {
            blocks,
            miss_ratio: self.miss_ratio_at(blocks),
        };
        Self::samples(sizes.iter().map(point).collect())
    }

    /// The mean absolute difference of the two miss ratios over `sizes`, from 0 to 1; 0 without
    /// sizes.
    #[must_use]
    pub fn mean_absolute_error(&self, other: &Self, sizes: &[u64]) -> f64 {
        let apart = |&size| (self.miss_ratio_at(size) - other.miss_ratio_at(size)).abs();
        sizes.iter().map(apart).sum::<f64>() / sizes.len().max(1) as f64
    }
}

/// `points` sizes, evenly spaced up to and including `largest` blocks; fewer if there are not that
/// many.
#[must_use]
pub fn even_sizes(points: usize, largest: u64) -> Vec<u64> {
    // More points than blocks are a point for each block, without going through all of them.
    let points = (points as u64).min(largest);
    let size = |i: u64| (u128::from(largest) * u128::from(i) / u128::from(points.max(1))) as u64;
    let mut sizes: Vec<u64> = (1..=points).map(size).filter(|&size| size > 0).collect();
    sizes.dedup();
    sizes
}
