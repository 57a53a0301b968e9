//! Any policy's curve by miniature simulation (Waldspurger, Saemundsson, Ahmad and Park, ATC
//! 2017): the requests for a sample of the blocks, in a cache scaled down by the same rate.

use super::sample::ByHash;
use super::{Curve, Point, Sample, SampleError};
use futae_policy::{Access, AccessKind, BlockId, DenseIndex, Level, PolicySpec, Shape, SpecError};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The requests for the blocks of a sample, kept in memory: four bytes and a bit each.
#[derive(Clone, Debug)]
pub struct MiniTrace {
    sample: Sample,
    keys: ByHash<u32>,
    ids: Vec<u32>,
    /// A bit for each of `ids`: whether it is a write.
    writes: Vec<u64>,
    requests: u64,
}

impl MiniTrace {
    /// An empty trace that takes the requests for this fraction of the blocks, above 0 and at most
    /// 1; at 1 it takes all, and simulations are of full size.
    pub fn new(rate: f64, seed: u64) -> Result<Self, SampleError> {
        Ok(Self {
            sample: Sample::new(rate, seed)?,
            keys: ByHash::default(),
            ids: Vec::new(),
            writes: Vec::new(),
            requests: 0,
        })
    }

    /// Adds the next request, for any block below 2^63; the sample may have at most 2^32 - 1
    /// distinct blocks.
    #[inline]
    pub fn access(&mut self, block: u64, is_write: bool) {
        self.requests += 1;
        let Some(hash) = self.sample.take(block) else {
            return;
        };
        let known = self.keys.len() as u32;
        let id = *self.keys.entry(hash).or_insert(known);
        let bit = self.ids.len() % 64;
        if bit == 0 {
            self.writes.push(0);
        }
        if let Some(word) = self.writes.last_mut() {
            *word |= u64::from(is_write) << bit;
        }
        self.ids.push(id);
    }

    /// Requests in the sample.
    #[must_use]
    pub fn sampled_requests(&self) -> u64 {
        self.ids.len() as u64
    }

    /// The number of distinct blocks, estimated from the sample.
    #[must_use]
    pub fn distinct(&self) -> u64 {
        (self.keys.len() as f64 / self.rate()).round() as u64
    }

    /// The sampling rate.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.sample.rate()
    }

    /// The number of slots of the small cache that models one of this many blocks, at least 1.
    #[must_use]
    pub fn slots(&self, blocks: u64) -> u32 {
        let slots = (blocks as f64 * self.rate()).round();
        slots.clamp(1.0, f64::from(u32::MAX - 1)) as u32
    }

    /// The miss ratio of a cache of this many blocks under a policy.
    ///
    /// Misses are divided by the expected number of requests in the sample. The difference to the
    /// actual number comes from the most popular blocks, whose requests are mostly hits, as in
    /// SHARDS-adj. Blocks have other numbers here, so a policy with block numbers as parameters
    /// (`const`) holds other blocks.
    pub fn simulate(&self, policy: &PolicySpec, blocks: u64, seed: u64) -> Result<f64, SpecError> {
        let next_uses = self.next_uses(policy);
        self.misses(policy, &next_uses, blocks, seed)
    }

    fn misses(
        &self,
        policy: &PolicySpec,
        next_uses: &[u64],
        blocks: u64,
        seed: u64,
    ) -> Result<f64, SpecError> {
        let slots = self.slots(blocks);
        let policy = futae_policy::build(policy, &Shape { slots, seed })?;
        let mut level = Level::new(policy, DenseIndex::new(self.keys.len()), slots);
        for (at, &id) in self.ids.iter().enumerate() {
            let kind = if self.writes[at / 64] >> (at % 64) & 1 == 1 {
                AccessKind::Write
            } else {
                AccessKind::Read
            };
            let mut access = Access::of(BlockId::on_first(u64::from(id)), kind);
            if let Some(&next_use) = next_uses.get(at) {
                access.next_use = next_use;
            }
            level.access(&access);
            // As in the simulator, blocks that do not exist are skipped.
            while let Some(block) = level.review() {
                if block.index() >= self.keys.len() as u64 {
                    break;
                }
                level.access(&Access::of(block, AccessKind::Preload));
            }
        }
        if let Some(fault) = level.fault() {
            return Err(fault.clone());
        }
        let expected = self.requests as f64 * self.rate();
        Ok((level.counters().misses as f64 / expected.max(1.0)).min(1.0))
    }

    /// For each request the number of the next one for its block, if the policy needs the future.
    fn next_uses(&self, policy: &PolicySpec) -> Vec<u64> {
        if !policy.needs_future() {
            return Vec::new();
        }
        let mut next_uses = vec![Access::UNKNOWN; self.ids.len()];
        let mut seen = vec![Access::UNKNOWN; self.keys.len()];
        for (at, &id) in self.ids.iter().enumerate().rev() {
            next_uses[at] = std::mem::replace(&mut seen[id as usize], at as u64);
        }
        next_uses
    }
}

/// The curve of a policy at these sizes, in blocks, each simulated separately, on `threads` threads
/// (at least one). `progress` gets the fraction done.
pub fn simulate_sizes(
    trace: &MiniTrace,
    policy: &PolicySpec,
    sizes: &[u64],
    seed: u64,
    threads: usize,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Curve, SpecError> {
    let next_uses = trace.next_uses(policy);
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let work = || {
        while let Some(&blocks) = sizes.get(next.fetch_add(1, Ordering::Relaxed)) {
            let miss_ratio = trace.misses(policy, &next_uses, blocks, seed);
            let point = miss_ratio.map(|miss_ratio| Point { blocks, miss_ratio });
            let mut results = results.lock().unwrap_or_else(|poison| poison.into_inner());
            results.push(point);
            drop(results);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(done as f64 / sizes.len() as f64);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, sizes.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let results = results
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    let points = results.into_iter().collect::<Result<_, _>>()?;
    Ok(Curve::samples(points))
}
