//! Hit ratios by the size of a cache, kept while the caches run: of each cache, and of each export in a common one.
//!
//! Each cache takes a sample of the blocks that it is asked for ([`Engine::begin_sampling`]), small enough for the fixed memory of
//! a curve ([`OnlineCurve`]: SHARDS, Waldspurger, Park, Garthwaite and Ahmad, FAST 2015). A thread beside the caches takes the sample
//! and reckons; a hit costs the hash of its block.

use futae_allocate::{OnlineCurve, SAMPLES_MAX};
use futae_engine::{Engine, SampledPart};
use futae_policy::VolumeId;
use std::sync::{Arc, Weak};

/// The largest size of interest, as a multiple of what the cache has.
const LARGEST: u64 = 4;
/// Points of a curve to each multiple of the cache.
const POINTS: u64 = 8;
/// Exports of common caches that have curves; the first ones. A curve takes less than 1 MiB.
const FOLLOWED: usize = 16;
/// Seconds after which what was asked last counts for half of a curve.
const PERIOD_SECONDS: f64 = 60.0;
/// The sample's margin: blocks beyond the largest size whose requests are kept.
const MARGIN: f64 = 1.1;
/// A cache whose size was changed by more than this has its curves begun anew.
const RESIZED: f64 = 1.25;

/// A curve as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CurveShown {
    /// The export, or `common` for the cache of several.
    pub(crate) name: String,
    /// The size of its cache, in bytes.
    pub(crate) cache_bytes: u64,
    /// Sizes in bytes, ascending, each with the hit ratio of an LRU cache of that size.
    pub(crate) points: Vec<(u64, f64)>,
    /// Sampled blocks that there was no room for: a curve without them is rough.
    pub(crate) lost: u64,
}

impl CurveShown {
    /// The hit ratio at a multiple of the cache's size.
    pub(crate) fn at(&self, times: f64) -> Option<f64> {
        let wanted = self.cache_bytes as f64 * times;
        let nearest = |one: &&(u64, f64)| (one.0 as f64 - wanted).abs() as u64;
        self.points
            .iter()
            .min_by_key(nearest)
            .map(|&(_, hits)| hits)
    }
}

/// The curves of all caches.
#[derive(Default)]
pub(crate) struct Curves(Vec<OfCache>);

struct OfCache {
    engine: Weak<Engine>,
    /// What it had when the curves began.
    capacity: u64,
    share: f64,
    whole: OnlineCurve,
    volumes: Vec<OfVolume>,
    /// Sampled blocks that were lost in this period, and in the one before.
    lost: [u64; 2],
    /// Seconds, since the program's start, at which the last period ended.
    ended: f64,
}

struct OfVolume {
    volume: VolumeId,
    name: String,
    curve: OnlineCurve,
}

impl Curves {
    /// Takes what the caches were asked for since the last time. Returns the part of a sample's room that was used at most: who
    /// comes late finds it full.
    pub(crate) fn follow(&mut self, caches: &[Arc<Engine>], now: f64) -> f64 {
        let is_there = |of: &OfCache| caches.iter().any(|cache| of.is_of(cache));
        self.0.retain(is_there);
        let mut fullest = 0.0_f64;
        for cache in caches {
            let known = self.0.iter_mut().find(|of| of.is_of(cache));
            let of = match known {
                Some(of) if !of.is_resized(cache) => of,
                Some(of) => {
                    *of = OfCache::begin(cache, now);
                    continue;
                }
                None => {
                    self.0.push(OfCache::begin(cache, now));
                    continue;
                }
            };
            fullest = fullest.max(of.follow(cache, now));
        }
        fullest
    }

    /// The curves that are known.
    pub(crate) fn shown(&self, caches: &[Arc<Engine>]) -> Vec<CurveShown> {
        let shown = |of: &OfCache| {
            let cache = caches.iter().find(|cache| of.is_of(cache))?;
            Some(of.shown(cache.block_bytes()))
        };
        self.0.iter().filter_map(shown).flatten().collect()
    }

    /// Nothing is sampled any more.
    pub(crate) fn end(&mut self) {
        for of in self.0.drain(..) {
            if let Some(engine) = of.engine.upgrade() {
                engine.end_sampling();
            }
        }
    }
}

impl OfCache {
    fn begin(cache: &Arc<Engine>, now: f64) -> Self {
        let capacity = capacity_of(cache);
        let most = (capacity * LARGEST).max(1);
        let share = (SAMPLES_MAX as f64 / (most as f64 * MARGIN)).min(1.0);
        cache.begin_sampling(share);
        Self {
            engine: Arc::downgrade(cache),
            capacity,
            share,
            whole: curve(most, share),
            volumes: Vec::new(),
            lost: [0; 2],
            ended: now,
        }
    }

    fn is_of(&self, cache: &Arc<Engine>) -> bool {
        std::ptr::eq(self.engine.as_ptr(), Arc::as_ptr(cache))
    }

    fn is_resized(&self, cache: &Engine) -> bool {
        let (then, now) = (self.capacity as f64, capacity_of(cache) as f64);
        now > then * RESIZED || now * RESIZED < then
    }

    fn follow(&mut self, cache: &Engine, now: f64) -> f64 {
        let Some(part) = cache.take_sampled() else {
            return 0.0;
        };
        self.lost[0] += part.lost;
        self.note_volumes(cache, &part);
        for &(volume, block) in &part.blocks {
            self.whole.access(u64::from(volume.0) << 48 ^ block);
            if let Some(of) = self.volumes.iter_mut().find(|of| of.volume == volume) {
                of.curve.access(block);
            }
        }
        let is_over = now - self.ended >= PERIOD_SECONDS;
        let curves = self.volumes.iter_mut().map(|of| &mut of.curve);
        for curve in curves.chain([&mut self.whole]) {
            if is_over || !curve.is_known() {
                curve.end_period();
            }
        }
        if is_over {
            self.ended = now;
            self.lost = [0, self.lost[0]];
        }
        part.blocks.len() as f64 / SampledPart::BLOCKS_MAX as f64
    }

    /// Begins curves of volumes that are asked for the first time, and anew of those whose number is another's now.
    fn note_volumes(&mut self, cache: &Engine, part: &SampledPart) {
        let mut seen: Vec<_> = part.blocks.iter().map(|&(volume, _)| volume).collect();
        seen.sort_unstable();
        seen.dedup();
        for volume in seen {
            let name = cache.volume_name(volume);
            let has_room = self.volumes.len() < FOLLOWED;
            let known = self.volumes.iter_mut().find(|of| of.volume == volume);
            let fresh = || curve((self.capacity * LARGEST).max(1), self.share);
            match known {
                Some(of) if of.name == name => {}
                Some(of) => (of.name, of.curve) = (name, fresh()),
                None if has_room => {
                    let curve = fresh();
                    self.volumes.push(OfVolume {
                        volume,
                        name,
                        curve,
                    });
                }
                None => {}
            }
        }
    }

    fn shown(&self, block_bytes: u64) -> Vec<CurveShown> {
        let sizes =
            (1..=LARGEST * POINTS).map(|at| self.capacity as f64 * at as f64 / POINTS as f64);
        let sizes: Vec<f64> = sizes.collect();
        let one = |name: &str, curve: &OnlineCurve| CurveShown {
            name: name.to_owned(),
            cache_bytes: self.capacity * block_bytes,
            points: sizes
                .iter()
                .zip(curve.miss_ratios_so_far(&sizes))
                .map(|(size, misses)| ((size * block_bytes as f64) as u64, 1.0 - misses))
                .collect(),
            lost: self.lost.iter().sum(),
        };
        // The cache of one export has its curve.
        let whole =
            (self.volumes.len() > 1 && self.whole.is_known()).then(|| one("common", &self.whole));
        let volumes = self.volumes.iter().filter(|of| of.curve.is_known());
        let volumes = volumes.map(|of| one(&of.name, &of.curve));
        whole.into_iter().chain(volumes).collect()
    }
}

/// The size that a cache was told to have, in blocks.
fn capacity_of(cache: &Engine) -> u64 {
    cache.wanted_bytes() / cache.block_bytes().max(1)
}

fn curve(most: u64, share: f64) -> OnlineCurve {
    let mut curve = OnlineCurve::new(most, 1);
    curve.given_share(share);
    curve
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_policy::Prng;

    #[test]
    fn a_curve_of_a_large_cache_is_right_and_takes_little_memory() {
        // A cache of 4 GiB in blocks of 4 KiB; even reads of twice that. Of each block all requests are sampled, or none.
        let blocks = 1 << 20;
        let most = blocks * LARGEST;
        let share = SAMPLES_MAX as f64 / (most as f64 * MARGIN);
        let sampled = (2.0 * blocks as f64 * share) as u64;
        let mut curve = curve(most, share);
        let mut dice = Prng::new(7);
        for _ in 0..40 * sampled {
            curve.access(dice.below(sampled) << 20);
        }
        curve.end_period();
        let sizes = [0.5, 1.0, 2.0, 4.0].map(|times| times * blocks as f64);
        let misses = curve.miss_ratios(&sizes);
        for (miss, wanted) in misses.iter().zip([0.75, 0.5, 0.0, 0.0]) {
            assert!((miss - wanted).abs() < 0.04, "{misses:?}");
        }
        let bytes = curve.memory_bytes();
        assert!(bytes < 1 << 20, "{bytes}");
    }
}
