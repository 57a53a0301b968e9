//! What a report shows beside the results: the LRU curve and the locality of the same requests.

use futae_sim::curve::{Curve, ExactLru, Shards};
use futae_sim::locality::{Intervals, Tap};
use futae_sim::run::{Requests, TraceSimulation};
use futae_sim::{LevelSpec, Report, Run, WriteMode};
use futae_terminal::failure::Failure;

/// With more requests than these a curve is sampled.
pub const EXACT_REQUESTS_MAX: u64 = 30_000_000;
/// Blocks in the sample; its sizes are off by about 1/256.
const SAMPLED_BLOCKS: usize = 1 << 16;
/// At this many sizes of one policy it is looked at what comes below.
const SIZES_BELOW: usize = 4;

/// What was found.
pub struct Study {
    /// The miss ratios of an LRU cache.
    pub curve: Curve,
    /// How the curve was found.
    pub method: String,
    /// Re-access intervals, and where.
    pub places: Vec<(String, Intervals)>,
    /// Why no more places are shown.
    pub note: Option<&'static str>,
}

/// An LRU curve in the making.
enum Lru {
    Exact(Box<ExactLru>),
    Sampled(Box<Shards>),
}

impl Lru {
    fn access(&mut self, block: u64) {
        match self {
            Self::Exact(exact) => exact.access(block as u32),
            Self::Sampled(shards) => shards.access(block),
        }
    }

    fn restart(&mut self) {
        match self {
            Self::Exact(exact) => exact.restart(),
            Self::Sampled(shards) => shards.restart(),
        }
    }

    fn found(&self) -> (Curve, String) {
        match self {
            Self::Exact(exact) => (exact.curve(), "exact, by stack distances".to_owned()),
            Self::Sampled(shards) => {
                let (blocks, rate) = (shards.sampled_blocks(), 100.0 * shards.rate());
                let method = format!(
                    "approximate, by SHARDS of fixed size: {blocks} blocks, {rate:.3} % of all"
                );
                (shards.curve(), method)
            }
        }
    }
}

impl Study {
    /// Goes through the requests of `report` once more, and through each run that it looks at from below. The curve is exact up to
    /// `exact_max` of them.
    pub fn new(
        report: &Report,
        requests: Requests<'_>,
        exact_max: u64,
        progress: &dyn Fn(f64),
    ) -> Result<Self, Failure> {
        let Some(first) = report.runs.first() else {
            return Err(Failure::usage("there is nothing to report"));
        };
        let (warmup, counted) = (first.warmup_requests, first.requests);
        let all = warmup.saturating_add(counted);
        let blocks = requests.blocks()?;
        let numbers = blocks.saturating_mul(u64::from(first.guests));
        let mut lru = if all <= exact_max && numbers <= ExactLru::BLOCKS_MAX {
            Lru::Exact(Box::default())
        } else {
            let shards = Shards::fixed_size(SAMPLED_BLOCKS, 1.0, report.seed)?;
            Lru::Sampled(Box::new(shards))
        };
        let (looked_at, note) = tapped(&report.runs);
        let mut simulations = looked_at
            .iter()
            .map(|run| simulation(run, report.seed))
            .collect::<Result<Vec<_>, Failure>>()?;
        if simulations.is_empty() {
            simulations.push(TraceSimulation {
                levels: Vec::new(),
                links: Vec::new(),
                ..simulation(first, report.seed)?
            });
        }
        let passes = simulations.len() as f64 + 1.0;
        let mut number = 0u64;
        requests.each(all, |request| {
            if number == warmup {
                lru.restart();
            }
            number += 1;
            lru.access(request.block());
            if number.is_multiple_of(1 << 16) {
                progress(number as f64 / all as f64 / passes);
            }
        })?;
        let mut taps = Vec::new();
        for (simulation, pass) in simulations.iter().zip(1..) {
            let mut progress = |done: f64| progress((f64::from(pass) + done) / passes);
            let bytes = first.block_bytes;
            taps.push(requests.tapped(simulation, bytes, (warmup, counted), &mut progress)?);
        }
        let (curve, method) = lru.found();
        Ok(Self {
            curve,
            method,
            places: places(report, &looked_at, &taps),
            note,
        })
    }
}

/// A run once more, so that all that is requested below a level gets there.
fn simulation(run: &Run, seed: u64) -> Result<TraceSimulation, Failure> {
    let levels = run.levels.iter();
    let levels = levels.map(|at| format!("{}:{}blocks", at.policy, at.capacity_blocks));
    let levels = levels.map(|level| level.parse::<LevelSpec>());
    Ok(TraceSimulation {
        levels: levels.collect::<Result<Vec<_>, _>>()?,
        links: run.links.clone(),
        write_mode: WriteMode::WriteThrough,
        seed,
        warmup_requests: run.warmup_requests,
        requests: Some(run.requests),
    })
}

/// Which runs are looked at from below, and why not all.
fn tapped(runs: &[Run]) -> (Vec<&Run>, Option<&'static str>) {
    let knows_future = |run: &&Run| {
        let levels = run.levels.iter();
        let specs = levels.map(|at| format!("{}:1blocks", at.policy).parse::<LevelSpec>());
        specs.flatten().any(|level| level.needs_future())
    };
    let Some(first) = runs.iter().find(|run| !knows_future(run)) else {
        let why = "Below a policy that must know the future nothing is shown.";
        return (Vec::new(), Some(why));
    };
    if first.levels.len() > 1 {
        let note = "Only one of the hierarchies is looked at from below.";
        return (vec![first], (runs.len() > 1).then_some(note));
    }
    let policy = &first.levels[0].policy;
    let mut same: Vec<&Run> = runs
        .iter()
        .filter(|run| run.levels.len() == 1 && run.levels[0].policy == *policy)
        .collect();
    same.sort_by_key(|run| run.levels[0].capacity_blocks);
    same.dedup_by_key(|run| run.levels[0].capacity_blocks);
    let some = same.len().min(SIZES_BELOW);
    let last = same.len() - 1;
    let picked = (0..some).map(|at| same[at * last / (some - 1).max(1)]);
    let picked: Vec<&Run> = picked.collect();
    let note = (picked.len() < runs.len())
        .then_some("Of the runs only some of the first policy are looked at from below.");
    (picked, note)
}

/// The application once, and below each level of each run.
fn places(report: &Report, runs: &[&Run], tapped: &[Vec<Tap>]) -> Vec<(String, Intervals)> {
    let mut places = Vec::new();
    if let Some(application) = tapped.first().and_then(|taps| taps.first()) {
        places.push(("application".to_owned(), application.intervals.clone()));
    }
    for (run, taps) in runs.iter().zip(tapped) {
        for (level, tap) in run.levels.iter().zip(&taps[1..]) {
            let name = format!("below {}", super::sizes::level_name(report, run, level));
            places.push((name, tap.intervals.clone()));
        }
    }
    places
}
