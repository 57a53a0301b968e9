//! A complete study of locality: from a source of requests to intervals at every place.

use super::{Bin, Bins, GAP_THRESHOLD, Intervals, Tap};
use crate::Link;
use crate::curve::Source;
use crate::run::{SimulationError, TraceSimulation};
use crate::spec::{LevelSpec, links};
use crate::theory::shortest_gap;
use crate::write_back::WriteMode;
use futae_policy::{Kind, PolicySpec};
use serde::Serialize;

/// The quantile of the intervals up to which linear bins reach.
const SHOWN: f64 = 0.995;

/// A source's requests sent through a hierarchy, with the intervals at the application and below
/// each level.
pub struct Study {
    source: Source,
    levels: Vec<LevelSpec>,
    warmup: u64,
    seed: u64,
    taps: Vec<Tap>,
}

/// Why a study failed.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The hierarchy cannot be simulated.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// All requests are warm-up.
    #[error("a warm-up of {warmup} requests leaves none of {requests} to count")]
    Warmup {
        /// Requests before counting begins.
        warmup: u64,
        /// All requests.
        requests: u64,
    },
}

/// The results of a study, as `futae locality --json` prints them.
#[derive(Debug, Serialize)]
pub struct Summary<'a> {
    source: &'a str,
    levels: &'a [LevelSpec],
    block_bytes: u64,
    blocks: u64,
    requests: u64,
    warmup_requests: u64,
    seed: u64,
    version: &'static str,
    gap_threshold: f64,
    taps: Vec<Place<'a>>,
}

/// The results at one place.
#[derive(Debug, Serialize)]
struct Place<'a> {
    place: &'a str,
    reaccesses: u64,
    median_bytes: Option<f64>,
    gap_bytes: Option<f64>,
    theory_gap_bytes: Option<f64>,
    bins: Vec<Bin>,
}

impl Study {
    /// Sends the requests of `source`, read for these levels, through them. Counting begins after `warmup` requests, by default after
    /// a fifth of all. `progress` gets the fraction done.
    ///
    /// # Errors
    ///
    /// The levels cannot be simulated, or nothing is counted.
    pub fn of(
        source: Source,
        (levels, link): (Vec<LevelSpec>, Option<Link>),
        warmup: Option<u64>,
        seed: u64,
        progress: &dyn Fn(f64),
    ) -> Result<Self, StudyError> {
        let requests = source.requests();
        let warmup = warmup.unwrap_or(requests / 5);
        if warmup >= requests {
            return Err(StudyError::Warmup { warmup, requests });
        }
        let spec = TraceSimulation {
            links: links(&levels, link),
            levels,
            write_mode: WriteMode::WriteThrough,
            seed,
            warmup_requests: warmup,
            requests: Some(requests - warmup),
        };
        let counted = (warmup, requests - warmup);
        let block_bytes = source.block_bytes();
        let taps = source
            .as_requests()
            .tapped(&spec, block_bytes, counted, &mut |done| {
                progress(done);
            })?;
        Ok(Self {
            source,
            levels: spec.levels,
            warmup,
            seed,
            taps,
        })
    }

    /// The source of the requests.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Requests before counting began.
    #[must_use]
    pub fn warmup(&self) -> u64 {
        self.warmup
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.source.block_bytes()
    }

    /// The places, top down.
    #[must_use]
    pub fn taps(&self) -> &[Tap] {
        &self.taps
    }

    /// The theoretical gap at one place ([`theory`](crate::theory)), in bytes, if a formula exists:
    /// below one LRU cache under uniform reads.
    #[must_use]
    pub fn theory_bytes(&self, place: usize) -> Option<f64> {
        let Source::Workload { spec, .. } = &self.source else {
            return None;
        };
        let level = self.levels.first().filter(|_| place == 1)?;
        if level.policy != PolicySpec::of(Kind::lru) || !spec.to_string().starts_with("uniform:") {
            return None;
        }
        let blocks = self.source.blocks();
        let slots = level.slots(self.block_bytes(), blocks).ok()?;
        let gap = shortest_gap(f64::from(slots), blocks as f64);
        gap.is_finite().then_some(gap * self.block_bytes() as f64)
    }

    /// The results, with the intervals of all places in the same bins. `name` is the name of the
    /// source.
    #[must_use]
    pub fn summary<'a>(&'a self, name: &'a str, bins: usize, kind: Bins) -> Summary<'a> {
        let (taps, block_bytes) = (&self.taps, self.block_bytes());
        let end = end_bytes(taps.iter().map(|tap| &tap.intervals), kind, block_bytes);
        let place = |(at, tap): (usize, &'a Tap)| Place {
            place: &tap.place,
            reaccesses: tap.intervals.reaccesses(),
            median_bytes: tap.intervals.quantile_bytes(0.5),
            gap_bytes: tap.intervals.gap_bytes(),
            theory_gap_bytes: self.theory_bytes(at),
            bins: tap.intervals.density(bins, kind, Some(end)),
        };
        Summary {
            source: name,
            levels: &self.levels,
            block_bytes,
            blocks: self.source.blocks(),
            requests: self.source.requests() - self.warmup,
            warmup_requests: self.warmup,
            seed: self.seed,
            version: env!("CARGO_PKG_VERSION"),
            gap_threshold: GAP_THRESHOLD,
            taps: taps.iter().enumerate().map(place).collect(),
        }
    }
}

/// The end of bins that several places share, in bytes: the longest interval, or for linear bins
/// the quantile that includes nearly all.
pub fn end_bytes<'a>(
    places: impl Iterator<Item = &'a Intervals>,
    kind: Bins,
    block_bytes: u64,
) -> f64 {
    let share = match kind {
        Bins::Log => 1.0,
        Bins::Linear => SHOWN,
    };
    let ends = places.filter_map(|intervals| intervals.quantile_bytes(share));
    ends.fold(block_bytes as f64, f64::max)
}
