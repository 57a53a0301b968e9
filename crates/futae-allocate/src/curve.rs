//! A guest's miss-ratio curve, kept online in fixed memory.

mod told;

use futae_sim::curve::{ByHash, Histogram, Sample, StackDistances};

pub(crate) use told::Told;

/// The largest number of units that a curve remembers.
pub const SAMPLES_MAX: usize = 8192;
/// Room for units beyond the largest cache.
const MARGIN: f64 = 1.1;
/// A period with fewer sampled requests is merged with the next.
const REQUESTS_MIN: f64 = 200.0;
/// Weight of all earlier periods together, as a multiple of the last.
const HISTORY: f64 = 1.0;
/// Miss ratios that differ from the earlier ones by this much indicate another workload.
const CHANGED: f64 = 0.1;
/// Sizes at which curves are compared.
const COMPARED: u64 = 16;

/// The LRU miss-ratio curve of recent requests, by SHARDS (Waldspurger, Park, Garthwaite and Ahmad,
/// FAST 2015) with two changes, since it runs indefinitely and must describe the present:
///
/// * the largest cache of interest fixes the rate, and memory is limited by dropping the sampled
///   unit that was requested least recently: a request for it would be a miss at any size;
/// * the last period has at least half of the weight, and earlier ones have none once the workload
///   has changed.
///
/// Requests for units never seen before are taken for hits beyond the observed range: at first with
/// as many per unit of size as in the far half of it. Half of them continue at that density until
/// they are used up, as under uniform reads; the other half decay, as under reads concentrated
/// around a middle. A scan has no hits to extrapolate.
#[derive(Debug)]
pub struct OnlineCurve {
    most: u64,
    seed: u64,
    /// The fraction of units whose requests arrive.
    given: f64,
    sample: Option<Sample>,
    /// The fraction of all units that is sampled.
    rate: f64,
    keys: ByHash<u32>,
    hashes: Vec<u64>,
    free: Vec<u32>,
    distances: StackDistances,
    last: Tally,
    past: Tally,
    changed: bool,
    /// A curve set directly, instead of one computed from requests.
    told: Option<Told>,
}

/// Sampled requests by stack position, in units, and those for units not seen before.
#[derive(Clone, Debug, Default)]
struct Tally {
    positions: Histogram,
    cold: f64,
}

impl OnlineCurve {
    /// A curve up to a cache of `most` units, for any unit.
    #[must_use]
    pub fn new(most: u64, seed: u64) -> Self {
        let mut curve = Self {
            most: most.max(1),
            seed,
            given: 0.0,
            sample: None,
            rate: 1.0,
            keys: ByHash::default(),
            hashes: Vec::new(),
            free: Vec::new(),
            distances: StackDistances::default(),
            last: Tally::default(),
            past: Tally::default(),
            changed: false,
            told: None,
        };
        curve.given_share(1.0);
        curve
    }

    /// Sets the curve directly, regardless of requests: miss ratios at sizes that are `step` units
    /// apart, the first at size 0. Ratios outside of 0 to 1, or an empty slice, end this.
    pub fn tell(&mut self, step: f64, ratios: &[f64]) {
        let told = Told::new(step, ratios);
        let apart = told.as_ref().zip(self.told.as_ref());
        self.changed = apart.is_some_and(|(new, old)| new.apart(old) > CHANGED);
        self.told = told;
    }

    /// Requests arrive only for units of a sample from now on, which is this fraction of all (above
    /// 0 and at most 1). If the fraction changes, the curve is reset.
    pub fn given_share(&mut self, share: f64) {
        if share == self.given || !(share > 0.0 && share <= 1.0) {
            return;
        }
        let wanted = SAMPLES_MAX as f64 / (self.most as f64 * MARGIN * share);
        let own = wanted.min(1.0);
        *self = Self {
            given: share,
            rate: own * share,
            sample: Sample::new(own, self.seed).ok(),
            keys: ByHash::default(),
            hashes: Vec::new(),
            free: Vec::new(),
            distances: StackDistances::default(),
            last: Tally::default(),
            past: Tally::default(),
            told: self.told.take(),
            ..*self
        };
    }

    /// Takes a request for a unit, which any number stands for.
    pub fn access(&mut self, unit: u64) {
        let Some(hash) = self.sample.and_then(|sample| sample.take(unit)) else {
            return;
        };
        if let Some(&key) = self.keys.get(&hash) {
            let distance = self.distances.access(key).unwrap_or(0);
            let position = (f64::from(distance) / self.rate).round() as u64 + 1;
            self.last.positions.add(position, 1.0);
            return;
        }
        self.last.cold += 1.0;
        if self.keys.len() == SAMPLES_MAX {
            self.forget_oldest();
        }
        let key = self.free.pop().unwrap_or(self.hashes.len() as u32);
        match self.hashes.get_mut(key as usize) {
            Some(slot) => *slot = hash,
            None => self.hashes.push(hash),
        }
        self.keys.insert(hash, key);
        self.distances.access(key);
    }

    fn forget_oldest(&mut self) {
        if let Some(key) = self.distances.oldest() {
            self.distances.forget(key);
            if let Some(hash) = self.hashes.get(key as usize) {
                self.keys.remove(hash);
            }
            self.free.push(key);
        }
    }

    /// Ends a period.
    pub fn end_period(&mut self) {
        if self.told.is_some() || self.last.total() < REQUESTS_MIN {
            return;
        }
        self.changed = self.past.total() > 0.0 && self.last.differs(&self.past, self.most);
        if self.changed {
            self.past.clear();
        }
        let heavy = HISTORY * self.last.total();
        if self.past.total() > heavy {
            self.past.scale(heavy / self.past.total());
        }
        self.past.merge(&self.last);
        self.last.clear();
    }

    /// Whether the curve is known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.told.is_some() || self.past.total() > 0.0
    }

    /// Whether the last complete period differed from those before it.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Miss ratios, from 0 to 1, of caches of these sizes in units, in ascending order. 1 while the
    /// curve is unknown.
    #[must_use]
    pub fn miss_ratios(&self, sizes: &[f64]) -> Vec<f64> {
        match &self.told {
            Some(told) => sizes.iter().map(|&size| told.at(size)).collect(),
            None => self.past.miss_ratios(sizes),
        }
    }

    /// The same, including the requests of the current period, for a reader that does not wait for
    /// its end.
    #[must_use]
    pub fn miss_ratios_so_far(&self, sizes: &[f64]) -> Vec<f64> {
        if self.told.is_some() {
            return self.miss_ratios(sizes);
        }
        let mut all = self.past.clone();
        all.merge(&self.last);
        all.miss_ratios(sizes)
    }

    /// Its memory in bytes, to within a few hundred.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        // A map has up to twice as many places as entries, each with a byte of its own.
        let map = self.keys.capacity() * 8 / 7 * (size_of::<(u64, u32)>() + 1);
        let lists = self.hashes.capacity() * 8 + self.free.capacity() * 4;
        let tallies = self.last.positions.memory_bytes() + self.past.positions.memory_bytes();
        map + lists + tallies + self.distances.memory_bytes()
    }
}

impl Tally {
    fn total(&self) -> f64 {
        self.positions.total() + self.cold
    }

    fn scale(&mut self, factor: f64) {
        self.positions.scale(factor);
        self.cold *= factor;
    }

    fn merge(&mut self, other: &Self) {
        self.positions.merge(&other.positions);
        self.cold += other.cold;
    }

    fn clear(&mut self) {
        self.positions.clear();
        self.cold = 0.0;
    }

    fn differs(&self, other: &Self, most: u64) -> bool {
        let size = |at: u64| most as f64 * at as f64 / COMPARED as f64;
        let sizes: Vec<f64> = (1..=COMPARED).map(size).collect();
        let apart = self
            .miss_ratios(&sizes)
            .iter()
            .zip(other.miss_ratios(&sizes))
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        apart > CHANGED
    }

    fn miss_ratios(&self, sizes: &[f64]) -> Vec<f64> {
        let total = self.total();
        if total <= 0.0 {
            return vec![1.0; sizes.len()];
        }
        // Beyond the deepest, but for a few, positions go on as in the far half before it.
        let deep = self.positions.quantile(0.98);
        let far = self.positions.below(deep) - self.positions.below(deep / 2.0);
        let slope = if deep > 0.0 { far / (deep / 2.0) } else { 0.0 };
        let mut bins = self.positions.bins().peekable();
        let (mut below, mut ratios) = (0.0, Vec::with_capacity(sizes.len()));
        for &size in sizes {
            // A cache of n units hits at positions up to n.
            let end = size.floor() + 1.0;
            while let Some((_, _, weight)) = bins.next_if(|&(_, high, _)| high as f64 <= end) {
                below += weight;
            }
            let part = bins.peek().map_or(0.0, |&(low, high, weight)| {
                let share = (end - low as f64) / (high - low) as f64;
                weight * share.clamp(0.0, 1.0)
            });
            let beyond = if self.cold > 0.0 {
                let along = (slope * (size - deep) / self.cold).max(0.0);
                self.cold * ((along.min(1.0) + 1.0 - (-along).exp()) / 2.0)
            } else {
                0.0
            };
            ratios.push((1.0 - (below + part + beyond) / total).clamp(0.0, 1.0));
        }
        ratios
    }
}
