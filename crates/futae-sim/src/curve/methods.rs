//! The selectable methods for a curve: all are computed in one pass over the same requests.

use super::sample::ByHash;
use super::{
    Aet, Curve, ExactLru, Kosmo, KosmoError, MiniTrace, Point, SampleError, Shards, Source,
    SourceError, simulate_sizes,
};
use crate::forecast::Estimate;
use crate::hierarchy::derived_seed;
use crate::run::SimulationError;
use crate::spec::LevelSpecError;
use futae_policy::{Kind, PolicySpec, mixed};
use futae_trace::BlockRequest;
use futae_units::{Size, SizeError};
use serde::Serialize;

/// The selected methods.
#[derive(Clone, Copy, Debug)]
pub struct Methods {
    /// The exact curve, in addition to sampled ones. Without sampled ones it is always computed.
    pub exact: bool,
    /// SHARDS: the fraction of blocks in the sample.
    pub shards: Option<f64>,
    /// SHARDS: the largest number of blocks in the sample.
    pub shards_blocks: Option<usize>,
    /// AET: the fraction of blocks whose reuse times are taken.
    pub aet: Option<f64>,
    /// Kosmo: the fraction of blocks in the sample.
    pub kosmo: Option<f64>,
    /// Kosmo: the largest number of blocks in the sample.
    pub kosmo_blocks: Option<usize>,
    /// Miniature simulation: the fraction of blocks whose requests the small caches get.
    pub mini: Option<f64>,
    /// The number of independent samples per method. Their mean is the curve, and their differences
    /// give its uncertainty. At least 1, which gives none.
    pub repeats: u32,
    /// The number of the first requests that the curves are of; `None`: all. The others count for the distinct blocks only.
    pub requests: Option<u64>,
    /// Seed for samples.
    pub seed: u64,
}

impl Default for Methods {
    fn default() -> Self {
        Self {
            exact: false,
            shards: None,
            shards_blocks: None,
            aet: None,
            kosmo: None,
            kosmo_blocks: None,
            mini: None,
            repeats: 1,
            requests: None,
            seed: 0,
        }
    }
}

/// Why curves cannot be made by the selected methods.
#[derive(Debug, thiserror::Error)]
pub enum MethodsError {
    /// A rate is wrong.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// Kosmo does not know the policy.
    #[error(transparent)]
    Kosmo(#[from] KosmoError),
    /// A policy that reads ahead, under miniature simulation.
    #[error(
        "{policy} reads ahead, and in a sample of the blocks (mini) these have no neighbours; its exact curve takes no sample"
    )]
    ReadsAhead {
        /// The policy.
        policy: String,
    },
}

/// Blocks in the sample by which all distinct blocks are counted, beyond the requests that curves are of. The count is off by about
/// 1/256.
const COUNTED_BLOCKS: usize = 1 << 16;

/// The state of all methods during the pass.
pub struct Makings {
    exact: Option<ExactLru>,
    /// The number of each block for [`ExactLru`], in the order of appearance, where blocks come as a sample needs
    /// them: by keys of any size.
    numbers: Option<ByHash<u32>>,
    /// Whether the exact curve is to be simulated.
    is_simulated: bool,
    /// Requests that curves are of, and requests so far.
    limit: u64,
    taken: u64,
    /// All distinct blocks, if curves are not of all requests.
    all: Option<Shards>,
    /// One per repeat.
    shards: Vec<Shards>,
    aet: Vec<Aet>,
    kosmo: Vec<Kosmo>,
    small: Vec<MiniTrace>,
}

/// A curve.
#[derive(Clone, Debug, Serialize)]
pub struct Made {
    /// Its method.
    pub method: String,
    /// The mean absolute error against the exact curve, from 0 to 1; `None` for that curve itself, or without it.
    pub mean_absolute_error: Option<f64>,
    /// At each size, half the width of the 95 % confidence interval of the mean over samples; empty
    /// for a single sample, and for exact curves.
    pub half_widths: Vec<f64>,
    /// The curve at the requested sizes; the mean of several samples.
    #[serde(flatten)]
    pub curve: Curve,
}

impl Made {
    fn one(method: String, curve: Curve) -> Self {
        Self {
            method,
            curve,
            mean_absolute_error: None,
            half_widths: Vec::new(),
        }
    }

    /// The mean of at least one curve, at these sizes.
    fn mean(method: String, mut curves: Vec<Curve>, sizes: &[u64]) -> Option<Self> {
        if curves.len() < 2 {
            return curves.pop().map(|curve| Self::one(method, curve));
        }
        let at = |&size: &u64| {
            let figures: Vec<f64> = curves
                .iter()
                .map(|curve| curve.miss_ratio_at(size))
                .collect();
            let mean = figures.iter().sum::<f64>() / figures.len() as f64;
            let half = Estimate::half_width_of_mean(&figures);
            let point = Point {
                blocks: size,
                miss_ratio: mean,
            };
            (point, half)
        };
        let (points, half_widths) = sizes.iter().map(at).unzip();
        Some(Self {
            method: format!("{method}, mean of {}", curves.len()),
            curve: Curve::samples(points),
            mean_absolute_error: None,
            half_widths,
        })
    }
}

impl Methods {
    /// Whether the exact curve is computed.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.exact || !self.is_sampled()
    }

    /// Whether some curve is computed from a sample.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.is_by_distance() || self.is_kosmo() || self.mini.is_some()
    }

    /// Whether some curve is computed from reuse distances, which apply to LRU only.
    #[must_use]
    pub fn is_by_distance(&self) -> bool {
        self.shards.is_some() || self.shards_blocks.is_some() || self.aet.is_some()
    }

    fn is_kosmo(&self) -> bool {
        self.kosmo.is_some() || self.kosmo_blocks.is_some()
    }

    /// The initial state for the curves of `policy`. An error if a rate is invalid, or if a method
    /// does not know the policy.
    pub fn makings(&self, policy: &PolicySpec) -> Result<Makings, MethodsError> {
        if self.mini.is_some() && policy.reads_ahead() {
            let policy = policy.to_string();
            return Err(MethodsError::ReadsAhead { policy });
        }
        let is_lru = *policy == PolicySpec::of(Kind::lru);
        let seeds =
            || (0..u64::from(self.repeats.max(1))).map(|repeat| derived_seed(self.seed, repeat));
        let shards = |seed| match (self.shards_blocks, self.shards) {
            (Some(blocks), rate) => Some(Shards::fixed_size(blocks, rate.unwrap_or(1.0), seed)),
            (None, rate) => rate.map(|rate| Shards::fixed_rate(rate, seed)),
        };
        let aet = |seed| self.aet.map(|rate| Aet::new(rate, seed));
        let kosmo = |seed| {
            self.is_kosmo()
                .then(|| Kosmo::new(policy, self.kosmo.unwrap_or(1.0), self.kosmo_blocks, seed))
        };
        let mini = |seed| self.mini.map(|rate| MiniTrace::new(rate, seed));
        Ok(Makings {
            exact: (self.is_exact() && is_lru).then(ExactLru::default),
            numbers: (self.exact && self.is_sampled() && is_lru).then(ByHash::default),
            is_simulated: self.is_exact() && !is_lru,
            limit: self.requests.unwrap_or(u64::MAX),
            taken: 0,
            all: self
                .requests
                .map(|_| Shards::fixed_size(COUNTED_BLOCKS, 1.0, self.seed))
                .transpose()?,
            shards: seeds().filter_map(shards).collect::<Result<_, _>>()?,
            aet: seeds().filter_map(aet).collect::<Result<_, _>>()?,
            kosmo: seeds().filter_map(kosmo).collect::<Result<_, _>>()?,
            small: seeds().filter_map(mini).collect::<Result<_, _>>()?,
        })
    }
}

impl Makings {
    /// Adds all requests of a source, if a curve is made of them one by one.
    pub fn take_all(&mut self, source: &Source, progress: &dyn Fn(f64)) -> Result<(), SourceError> {
        if self.exact.is_none() && self.in_samples().next().is_none() {
            return Ok(());
        }
        source.each(|request| self.take(request), progress)
    }

    /// Adds the next request.
    #[inline]
    pub fn take(&mut self, request: BlockRequest) {
        let block = request.block();
        if let Some(all) = &mut self.all {
            all.access(block);
        }
        let number = match &mut self.numbers {
            None => block as u32,
            Some(numbers) => {
                let next = numbers.len() as u32;
                *numbers.entry(mixed(block)).or_insert(next)
            }
        };
        if self.taken == self.limit {
            return;
        }
        self.taken += 1;
        if let Some(exact) = &mut self.exact
            && u64::from(number) < ExactLru::BLOCKS_MAX
        {
            exact.access(number);
        }
        for shards in &mut self.shards {
            shards.access(block);
        }
        for aet in &mut self.aet {
            aet.access(block);
        }
        for kosmo in &mut self.kosmo {
            kosmo.access(block);
        }
        for mini in &mut self.small {
            mini.access(block, request.is_write());
        }
    }

    /// Whether the exact curve is simulated, for which [`curves`](Self::curves) needs the source.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.is_simulated
    }

    /// The number of requests taken that curves are of.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.taken
    }

    /// Whether this is more blocks than an exact curve supports.
    #[must_use]
    pub fn has_too_many(&self, blocks: u64) -> bool {
        self.exact.is_some() && blocks > ExactLru::BLOCKS_MAX
    }

    /// The number of distinct blocks of all requests, and whether it is an estimate from a sample; 0 without a sample.
    #[must_use]
    pub fn distinct(&self) -> (u64, bool) {
        match (&self.numbers, &self.all) {
            (Some(numbers), _) => (numbers.len() as u64, false),
            (None, Some(all)) => (all.distinct(), true),
            (None, None) => (self.in_samples().next().unwrap_or(0), true),
        }
    }

    /// Whether there is a sample without a block, of which no curve can be made.
    #[must_use]
    pub fn has_empty_sample(&self) -> bool {
        self.in_samples().any(|blocks| blocks == 0)
    }

    /// The number of distinct blocks by each sample.
    fn in_samples(&self) -> impl Iterator<Item = u64> {
        let shards = self.shards.iter().map(Shards::distinct);
        let aet = self.aet.iter().map(Aet::distinct);
        let kosmo = self.kosmo.iter().map(Kosmo::distinct);
        let small = self.small.iter().map(MiniTrace::distinct);
        shards.chain(aet).chain(kosmo).chain(small)
    }

    /// Every curve with its method, the exact one first, at these sizes, in blocks. `source` is needed if the exact one [is
    /// simulated](Self::is_simulated). Simulations use as many threads as there are processors, and pass the fraction done to
    /// `progress`.
    pub fn curves(
        &self,
        policy: &PolicySpec,
        sizes: &[u64],
        (source, seed): (Option<&Source>, u64),
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<Vec<Made>, SimulationError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let simulate = |trace: &MiniTrace| {
            let curve = simulate_sizes(trace, policy, sizes, seed, threads, progress);
            curve.map(|curve| curve.at(sizes))
        };
        let mut found = Vec::new();
        if let Some(exact) = &self.exact {
            found.push(Made::one("exact".to_owned(), exact.curve().at(sizes)));
        }
        if let Some(source) = source.filter(|_| self.is_simulated) {
            let curve = source.simulate_sizes(policy, sizes, seed, threads, progress)?;
            found.push(Made::one("exact".to_owned(), curve.at(sizes)));
        }
        let truth = found.first().map(|exact| exact.curve.clone());
        if let Some(first) = self.shards.first() {
            let sampled = grouped(first.sampled_blocks());
            let name = format!("shards {:.3} % ({sampled} blocks)", 100.0 * first.rate());
            let curves = self.shards.iter().map(|it| it.curve().at(sizes)).collect();
            found.extend(Made::mean(name, curves, sizes));
        }
        if let Some(first) = self.aet.first() {
            let name = format!("aet {}", first.rate());
            let curves = self.aet.iter().map(|it| it.curve().at(sizes)).collect();
            found.extend(Made::mean(name, curves, sizes));
        }
        if let Some(first) = self.kosmo.first() {
            let sampled = grouped(first.sampled_blocks());
            let name = format!("kosmo {:.3} % ({sampled} blocks)", 100.0 * first.rate());
            let curves = self.kosmo.iter().map(|it| it.curve().at(sizes)).collect();
            found.extend(Made::mean(name, curves, sizes));
        }
        if let Some(first) = self.small.first() {
            let name = format!("mini {}", first.rate());
            let curves = self.small.iter().map(simulate).collect::<Result<_, _>>()?;
            found.extend(Made::mean(name, curves, sizes));
        }
        if let Some(truth) = truth {
            for other in &mut found[1..] {
                let error = truth.mean_absolute_error(&other.curve, sizes);
                other.mean_absolute_error = Some(error);
            }
        }
        Ok(found)
    }
}

/// A number with commas between thousands, as in the command line's tables.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let of_digit = |(at, digit): (usize, char)| {
        let left = digits.len() - at;
        let is_comma = at > 0 && left.is_multiple_of(3);
        is_comma.then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(of_digit).collect()
}

/// Why sizes of caches are invalid.
#[derive(Debug, thiserror::Error)]
pub enum CacheSizesError {
    /// A size is written wrong, or too large.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// A size is below one block.
    #[error("a cache of --sizes has at least one block")]
    NoBlock,
    /// A size is far beyond all blocks, and its tables need memory nevertheless.
    #[error(
        "{text:?} are {blocks} blocks; a cache of --sizes larger than all that is asked for may have {} at most, and 100% hits as often",
        LevelSpecError::IDLE_BLOCKS_MAX
    )]
    Idle {
        /// What was written.
        text: String,
        /// The blocks it would have.
        blocks: u64,
    },
}

/// Sizes of caches in blocks, sorted and distinct. A share is a fraction of `blocks`.
pub fn cache_sizes<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    block_bytes: u64,
    blocks: u64,
) -> Result<Vec<u64>, CacheSizesError> {
    let one = |text: &str| match text.parse::<Size>()?.blocks_of(block_bytes, blocks)? {
        0 => Err(CacheSizesError::NoBlock),
        size if size > blocks.max(LevelSpecError::IDLE_BLOCKS_MAX) => Err(CacheSizesError::Idle {
            text: text.to_owned(),
            blocks: size,
        }),
        size => Ok(size),
    };
    let mut sizes = texts.into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::{Methods, cache_sizes, grouped};

    #[test]
    fn sizes_are_in_order_and_each_once() {
        let sizes = |texts: &[&str]| cache_sizes(texts.iter().copied(), 4096, 1000);
        let found = sizes(&["10%", "5blocks", "100blocks", "8KiB"]).expect("valid");
        assert_eq!(found, [2, 5, 100]);
        let error = sizes(&["0blocks"]).map_err(|error| error.to_string());
        assert!(error.expect_err("no block").contains("block"));
        let error = sizes(&["1%", "16TiB"]).map_err(|error| error.to_string());
        let error = error.expect_err("tables of that length");
        assert!(
            error.contains("4294967296 blocks") && error.contains("268435456"),
            "{error}"
        );
        assert!(sizes(&["lots"]).is_err() && sizes(&[""]).is_err());
    }

    #[test]
    fn the_exact_curve_is_made_where_nothing_is_sampled() {
        let none = Methods::default();
        let sampled = Methods {
            mini: Some(0.5),
            ..none
        };
        let both = Methods {
            exact: true,
            ..sampled
        };
        assert_eq!(
            [none, sampled, both].map(|methods| methods.is_exact()),
            [true, false, true]
        );
    }

    #[test]
    fn thousands_are_grouped() {
        let texts = [7, 100, 1_000, 1_234_567].map(grouped);
        assert_eq!(texts, ["7", "100", "1,000", "1,234,567"]);
    }
}
