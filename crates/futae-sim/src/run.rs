//! A whole simulation, from spec to results.

use crate::hierarchy::{HierarchyShape, derived_seed};
use crate::index::BackedIndex;
use crate::link::Link;
use crate::machine;
use crate::spec::{LevelSpec, LevelSpecError};
use futae_policy::{Counters, SpecError};
use futae_trace::{BlockStream, WorkloadError, WorkloadSpec};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

mod digest;
mod drive;
mod interleave;
mod results;

use digest::Digest;
use drive::Drive;
pub use interleave::Interleave;
pub use results::{LevelResult, Report, Run};

/// Passes over the blocks, as many requests as there are blocks, that warm the caches and that
/// are measured, where nothing else is asked for.
pub const PASSES_DEFAULT: u64 = 5;

/// One simulation of one hierarchy under a synthetic workload.
#[derive(Clone, Debug)]
pub struct SimulationSpec {
    /// Top down, at least one.
    pub levels: Vec<LevelSpec>,
    /// Between the levels, top down: see [`links`](crate::spec::links).
    pub links: Vec<Link>,
    /// Guests, at least 1. They take turns, request by request, each with its own copy of the
    /// workload and a seed of its own.
    pub guests: u32,
    /// What each guest asks for.
    pub workload: WorkloadSpec,
    /// Size of a block.
    pub block_bytes: u64,
    /// All randomness comes from here.
    pub seed: u64,
    /// Requests, of all guests together, before counting begins. Where none is given, five times
    /// the blocks of the workload, or none for one that is complete after one pass (`scan`).
    pub warmup_requests: Option<u64>,
    /// Requests, of all guests together, that are counted. Where none is given, five times the
    /// blocks of the workload, or one pass for one that is then complete.
    pub requests: Option<u64>,
}

/// Why a simulation cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// A level cannot be built.
    #[error(transparent)]
    Level(#[from] LevelSpecError),
    /// A policy cannot be built at the size of its level.
    #[error(transparent)]
    Policy(#[from] SpecError),
    /// The workload does not fit the block size.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Nothing to simulate.
    #[error("a simulation needs at least one level and one guest")]
    Empty,
    /// Levels and links do not match.
    #[error("{levels} levels need {} links, not {links}", .levels - 1)]
    Links {
        /// Levels.
        levels: usize,
        /// Links given.
        links: usize,
    },
    /// More blocks than can be simulated.
    #[error(
        "{guests} guests with {blocks} blocks each are more than the 2^32 - 1 blocks of a simulation"
    )]
    TooManyBlocks {
        /// Guests.
        guests: u32,
        /// Blocks of each.
        blocks: u64,
    },
    /// A stream asked for a block beyond those that it promised.
    #[error("request {request} is for block {block}, but there are only {blocks} blocks")]
    BlockRange {
        /// The request, counted from 0.
        request: u64,
        /// The block it asked for.
        block: u64,
        /// How many there are.
        blocks: u64,
    },
    /// Simulations that were to be compared got different requests.
    #[error("the simulations of one report have different requests (digests {0} and {1})")]
    Different(String, String),
}

/// Simulates one hierarchy. `progress` is given the fraction done, from 0 to 1, now and then.
pub fn simulate(
    spec: &SimulationSpec,
    progress: &mut dyn FnMut(f64),
) -> Result<Report, SimulationError> {
    if spec.levels.is_empty() || spec.guests == 0 {
        return Err(SimulationError::Empty);
    }
    let blocks = spec.workload.blocks(spec.block_bytes)?;
    let natural = spec.workload.natural_requests(spec.block_bytes)?;
    let all = footprint(spec.guests, blocks)?;
    let usual = |natural: Option<u64>| {
        natural.map_or(all.saturating_mul(PASSES_DEFAULT), |n| {
            n * u64::from(spec.guests)
        })
    };
    let plan = Plan {
        levels: &spec.levels,
        links: &spec.links,
        guests: spec.guests,
        blocks,
        block_bytes: spec.block_bytes,
        seed: spec.seed,
        warmup_requests: spec
            .warmup_requests
            .unwrap_or_else(|| usual(natural.map(|_| 0))),
        requests: spec.requests.unwrap_or_else(|| usual(natural)),
    };
    let streams = (0..spec.guests).map(|guest| {
        let seed = derived_seed(spec.seed, u64::from(guest));
        spec.workload.generator(spec.block_bytes, seed)
    });
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    let (run, trace_digest) = plan.run(&mut Interleave::new(streams, blocks), progress)?;
    Ok(report(vec![run], spec.seed, trace_digest))
}

fn report(runs: Vec<Run>, seed: u64, trace_digest: String) -> Report {
    Report {
        runs,
        seed,
        trace_digest,
        version: env!("CARGO_PKG_VERSION"),
    }
}

/// Simulates several hierarchies under the same requests, on as many threads as `threads` says
/// (at least one). The runs are in the order of the specs, whatever the threads did.
pub fn simulate_all(
    specs: &[SimulationSpec],
    threads: usize,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Report, SimulationError> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![0.0; specs.len()]);
    let results: Mutex<Vec<Option<_>>> = Mutex::new(specs.iter().map(|_| None).collect());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(spec) = specs.get(at) else { return };
            let result = simulate(spec, &mut |fraction| {
                let mut done = done.lock().unwrap_or_else(|poison| poison.into_inner());
                done[at] = fraction;
                progress(done.iter().sum::<f64>() / specs.len() as f64);
            });
            let mut results = results.lock().unwrap_or_else(|poison| poison.into_inner());
            results[at] = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.clamp(1, specs.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    let results = results
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    let mut reports = results.into_iter().flatten();
    let mut all = reports.next().ok_or(SimulationError::Empty)??;
    for one in reports {
        let one = one?;
        if one.trace_digest != all.trace_digest {
            return Err(SimulationError::Different(
                all.trace_digest,
                one.trace_digest,
            ));
        }
        all.runs.extend(one.runs);
    }
    Ok(all)
}

fn footprint(guests: u32, blocks: u64) -> Result<u64, SimulationError> {
    let all = blocks
        .checked_mul(u64::from(guests))
        .filter(|&all| all <= BackedIndex::BLOCKS_MAX);
    all.ok_or(SimulationError::TooManyBlocks { guests, blocks })
}

/// A simulation with every number settled, for any stream of requests: a workload's, or a
/// trace's whose blocks were numbered densely.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// Top down, at least one.
    pub levels: &'a [LevelSpec],
    /// Between the levels, top down.
    pub links: &'a [Link],
    /// Guests, at least 1.
    pub guests: u32,
    /// Blocks of each guest. The stream numbers the blocks of guest *g* from `g * blocks`.
    pub blocks: u64,
    /// Size of a block.
    pub block_bytes: u64,
    /// For policies that draw lots.
    pub seed: u64,
    /// Requests before counting begins.
    pub warmup_requests: u64,
    /// Requests that are counted; fewer if the stream ends.
    pub requests: u64,
}

impl Plan<'_> {
    /// Runs it. Returns the results and the digest of the requests.
    pub fn run(
        &self,
        stream: &mut dyn BlockStream,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(Run, String), SimulationError> {
        let begin = Instant::now();
        let shape = self.shape()?;
        let mut machine = machine::build(&shape)?;
        let total = self.warmup_requests.saturating_add(self.requests);
        let mut drive = Drive {
            stream,
            machine: machine.as_mut(),
            blocks: footprint(self.guests, self.blocks)?,
            digest: Digest::default(),
            sent: 0,
            total,
            progress,
        };
        drive.send(self.warmup_requests)?;
        let warmup_requests = drive.sent;
        let (counters, store) = (drive.machine.counters(), drive.machine.store());
        let served = drive.send(self.requests)?;
        let requests = drive.sent - warmup_requests;
        let (digest, now) = (drive.digest, drive.machine.counters());
        let store = drive.machine.store().since(&store);
        let counters: Vec<_> = now
            .iter()
            .zip(&counters)
            .map(|(n, then)| n.since(then))
            .collect();
        let run = Run {
            levels: self.level_results(&shape, &counters),
            links: self.links.to_vec(),
            combined_hit_ratio: (requests > 0).then(|| served as f64 / requests as f64),
            store_reads: store.reads,
            store_writes: store.writes,
            notice_reads: store.notice_reads,
            requests,
            warmup_requests,
            block_bytes: self.block_bytes,
            guests: self.guests,
            footprint_blocks: footprint(self.guests, self.blocks)?,
            seconds: begin.elapsed().as_secs_f64(),
        };
        Ok((run, digest.hex()))
    }

    fn shape(&self) -> Result<HierarchyShape, SimulationError> {
        if self.levels.is_empty() || self.guests == 0 {
            return Err(SimulationError::Empty);
        }
        let (levels, links) = (self.levels.len(), self.links.len());
        if links + 1 != levels {
            return Err(SimulationError::Links { levels, links });
        }
        let all = footprint(self.guests, self.blocks)?;
        let shape = |(at, level): (usize, &LevelSpec)| {
            let reach = if at + 1 == levels { all } else { self.blocks };
            level.shape(self.block_bytes, reach)
        };
        Ok(HierarchyShape {
            levels: self
                .levels
                .iter()
                .enumerate()
                .map(shape)
                .collect::<Result<_, _>>()?,
            links: self.links.to_vec(),
            guests: self.guests,
            blocks: self.blocks,
            seed: self.seed,
        })
    }

    fn level_results(&self, shape: &HierarchyShape, counters: &[Counters]) -> Vec<LevelResult> {
        let last = shape.levels.len() - 1;
        let all = shape.levels.iter().zip(counters).enumerate();
        all.map(|(at, (level, counters))| LevelResult {
            policy: level.policy.to_string(),
            capacity_blocks: u64::from(level.slots),
            copies: if at == last { 1 } else { self.guests },
            counters: *counters,
            hit_ratio: counters.hit_ratio(),
        })
        .collect()
    }
}
