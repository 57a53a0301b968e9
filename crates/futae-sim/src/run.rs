//! A complete simulation, from spec to results.

use crate::index::BackedIndex;
use crate::link::Link;
use crate::spec::{LevelSpec, LevelSpecError};
use crate::write_back::WriteMode;
use futae_policy::SpecError;
use futae_trace::{Generator, TraceError, WorkloadError, WorkloadSpec};

mod amount;
mod bounds;
mod closed;
mod columns;
mod drive;
mod facts;
mod found;
mod guest_columns;
mod interleave;
mod latency;
mod noting;
mod numbered;
mod one_pass;
mod order;
mod parallel;
mod plan;
mod queued;
mod reading;
mod requests;
mod results;
mod shared;
mod traces;
mod view;
mod windows;

pub use amount::Amount;
pub use bounds::Bounds;
pub use closed::{ClosedLoop, GuestPace, Think, ThinkError};
pub use columns::{Column, Values};
pub(crate) use drive::Drive;
use drive::Known;
pub use facts::TraceFacts;
pub use interleave::Interleave;
pub(crate) use latency::seconds;
pub use latency::{AccessTimes, Latency, LatencyError};
pub use one_pass::simulate_one_pass;
pub use order::{Order, OrderError, Ordered};
pub use parallel::in_parallel;
use parallel::leaves_threads;
pub use plan::Plan;
pub use queued::Arrivals;
pub use reading::{Neighbours, Reading};
use requests::interleaved;
pub use requests::{Requests, guest_seed};
pub use results::{GuestResult, LevelResult, Report, Run, WindowResult};
pub use traces::{TraceSimulation, Traces};
pub use view::{ViewChoice, ViewError};
pub use windows::Window;

/// Default number of passes over the blocks (requests per block) for the warm-up, and for the
/// measurement.
pub const PASSES_DEFAULT: u64 = 5;

/// One simulation of one hierarchy under a synthetic workload.
#[derive(Clone, Debug)]
pub struct SimulationSpec {
    /// Top down, at least one.
    pub levels: Vec<LevelSpec>,
    /// The links between the levels, top down: see [`links`](crate::spec::links).
    pub links: Vec<Link>,
    /// When written data goes to the store.
    pub write_mode: WriteMode,
    /// Number of guests, at least 1. They take turns, request by request, each with its own copy of
    /// the workload and its own seed.
    pub guests: u32,
    /// The workload of each guest.
    pub workload: WorkloadSpec,
    /// Size of a block.
    pub block_bytes: u64,
    /// The seed of all randomness.
    pub seed: u64,
    /// Requests of all guests together before counting begins. `None`: five times the blocks of the
    /// workload, or none for a workload that is complete after one pass (`scan`).
    pub warmup_requests: Option<u64>,
    /// Counted requests of all guests together. `None`: five times the blocks of the workload, or
    /// one pass for a workload that is then complete.
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
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A policy needs a future that is unknown.
    #[error(
        "level {0:?} must know what will be asked of it, which is known for the first level only"
    )]
    Future(String),
    /// Several guests above a level that a policy directs.
    #[error(
        "level {0:?} directs the level below it, which takes directions from one guest only; simulate one guest"
    )]
    DirectedByGuests(String),
    /// A level that a policy directs, under write-back.
    #[error(
        "level {0:?} directs the level below it, which is not told of writes that stay above; simulate write-through"
    )]
    DirectedWriteBack(String),
    /// A level that reads ahead, over a trace whose blocks are not numbered by their places.
    #[error(
        "level {0:?} reads ahead, and the trace was read without the places of its blocks; leave out readahead"
    )]
    Neighbours(String),
    /// A level that reads ahead, with a view in which blocks have no neighbours.
    #[error(
        "a level reads ahead, and with --view start blocks have no neighbours; use --view blocks, or leave out readahead"
    )]
    NoNeighbours,
    /// Runs that read ahead beside others, over a trace that they do not view alike.
    #[error(
        "trace {0} names objects that have sizes: runs with a level that reads ahead cut them into blocks, and the others take each as one \
         block; say --view blocks for all of them, or simulate them apart"
    )]
    MixedViews(String),
    /// A trace without times, for an order that needs them.
    #[error(
        "trace {0} has no times, so its requests cannot be put in the order of time; use --order turns"
    )]
    NoTimes(String),
    /// Times that are too far apart to be counted in nanoseconds.
    #[error(
        "the times of {0} are more than 292 years apart, so latencies cannot be simulated; if their unit is not what the trace's format \
         or its columns say, give it, such as --columns time=0:ns,offset=1,length=2"
    )]
    Span(String),
    /// Latencies and think times that together are more than can be counted in nanoseconds.
    #[error(
        "latencies and think times add up to more than the 584 years that are counted; shorten the times of --latency and --think"
    )]
    Ages,
    /// Recorded think times of a trace without times.
    #[error(
        "trace {0} has no times, so think times are not known; give one, such as --think 1ms or --think 0"
    )]
    NoThink(String),
    /// A closed loop in turns.
    #[error(
        "with think times the answers decide the order, so guests cannot take turns; leave out --order turns"
    )]
    ClosedTurns,
    /// The future of a closed loop.
    #[error(
        "with think times the answers decide the order, so no policy and no bound can know it in advance; leave out opt and --bounds, or --think"
    )]
    ClosedFuture,
    /// Recorded arrivals without times.
    #[error(
        "when requests came is not known: the trace has no times, or it is a workload; say with --clients how many are \
         under way at a time"
    )]
    NoArrivals,
    /// The sizes per guest do not match the guests or the level.
    #[error(
        "level {level} has {sizes} sizes, and {guests} guests; a level above the last has one size for all guests or one for \
         each, and the last, which they share, has one"
    )]
    SizesByGuest {
        /// The level.
        level: String,
        /// Its sizes.
        sizes: usize,
        /// Guests.
        guests: u32,
    },
    /// Bounds were requested for a part of a trace.
    #[error("bounds hold for a whole trace from empty caches; leave out --warmup and --requests")]
    PartialBounds,
    /// Too many requests to be numbered.
    #[error("a policy that must know the future takes at most 2^32 - 2 requests")]
    TooLong,
    /// The warm-up leaves nothing of a trace to count.
    #[error(
        "a warm-up of {warmup} requests leaves nothing to count: the trace has {accesses}; shorten --warmup"
    )]
    Warmup {
        /// Requests of the warm-up.
        warmup: u64,
        /// Accesses of the trace.
        accesses: u64,
    },
    /// Too few requests to count.
    #[error(
        "{requests} requests are too few to count, and {least} are the least; raise --requests"
    )]
    Few {
        /// Requested number of requests.
        requests: u64,
        /// The smallest number.
        least: u64,
    },
    /// A stream ended early.
    #[error("the requests end after {got}, and {wanted} were to be sent")]
    Ended {
        /// Requests sent.
        got: u64,
        /// Requests promised.
        wanted: u64,
    },
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
    /// A stream has a block beyond its declared number of blocks.
    #[error("request {request} is for block {block}, but there are only {blocks} blocks")]
    BlockRange {
        /// The request, counted from 0.
        request: u64,
        /// The block.
        block: u64,
        /// The declared number of blocks.
        blocks: u64,
    },
    /// Simulations to be compared had different requests.
    #[error("the simulations of one report have different requests (digests {0} and {1})")]
    Different(String, String),
}

/// Simulates one hierarchy. `progress` occasionally gets the fraction done, from 0 to 1.
pub fn simulate(
    spec: &SimulationSpec,
    progress: &mut dyn FnMut(f64),
) -> Result<Report, SimulationError> {
    simulate_on(spec, false, progress)
}

/// As [`simulate`], on several threads if it is to be spread.
fn simulate_on(
    spec: &SimulationSpec,
    is_spread: bool,
    progress: &mut dyn FnMut(f64),
) -> Result<Report, SimulationError> {
    footprint(spec.guests, spec.workload.blocks(spec.block_bytes)?)?;
    let workloads = vec![&spec.workload; spec.guests as usize];
    simulate_one(spec, &workloads, is_spread, progress)
}

/// Simulates one hierarchy, with a workload for each guest.
fn simulate_one(
    spec: &SimulationSpec,
    workloads: &[&WorkloadSpec],
    is_spread: bool,
    progress: &mut dyn FnMut(f64),
) -> Result<Report, SimulationError> {
    if spec.levels.is_empty() || workloads.is_empty() {
        return Err(SimulationError::Empty);
    }
    let plan = Plan {
        is_spread,
        ..plan(spec, workloads)?
    };
    let mut stream = stream(&plan, workloads)?;
    let (mut run, trace_digest) = plan.run(&mut stream, progress)?;
    for (guest, workload) in run.by_guest.iter_mut().zip(workloads) {
        guest.source = workload.to_string();
    }
    let mut sources: Vec<String> = workloads.iter().map(ToString::to_string).collect();
    sources.dedup();
    Ok(Report {
        sources,
        ..report(vec![run], spec.seed, trace_digest)
    })
}

/// The plan of a simulation with a workload for each guest, at least one.
fn plan<'a>(
    spec: &'a SimulationSpec,
    workloads: &[&WorkloadSpec],
) -> Result<Plan<'a>, SimulationError> {
    let guests = workloads.len() as u32;
    let of_each = |workload: &&WorkloadSpec| {
        let blocks = workload.blocks(spec.block_bytes)?;
        Ok((blocks, workload.natural_requests(spec.block_bytes)?))
    };
    let each: Vec<(u64, Option<u64>)> = workloads
        .iter()
        .map(of_each)
        .collect::<Result<_, WorkloadError>>()?;
    let blocks = each.iter().map(|guest| guest.0).max().unwrap_or(0);
    footprint(guests, blocks)?;
    let all: u64 = each.iter().map(|guest| guest.0).sum();
    let natural: Option<u64> = each.iter().map(|guest| guest.1).sum();
    let rates: Vec<f64> = workloads.iter().map(|workload| workload.rate()).collect();
    let usual = Amount::usual(all, natural, &rates);
    Ok(Plan {
        levels: &spec.levels,
        links: &spec.links,
        write_mode: spec.write_mode,
        guests,
        blocks,
        volumes: Vec::new(),
        distinct: blocks,
        footprint: all,
        block_bytes: spec.block_bytes,
        seed: spec.seed,
        warmup_requests: spec.warmup_requests.unwrap_or(usual.warmup),
        requests: spec.requests.unwrap_or(usual.requests),
        is_spread: false,
    })
}

fn stream(
    plan: &Plan<'_>,
    workloads: &[&WorkloadSpec],
) -> Result<Interleave<Generator>, WorkloadError> {
    interleaved(workloads, plan.blocks, plan.block_bytes, plan.seed)
}

fn report(runs: Vec<Run>, seed: u64, trace_digest: String) -> Report {
    Report {
        runs,
        sources: Vec::new(),
        seed,
        trace_digest,
        trace: None,
        version: env!("CARGO_PKG_VERSION"),
    }
}

/// Simulates several hierarchies under the same requests, on `threads` threads (at least one). The
/// runs are in the order of the specs. If several of them have the same upper LRU cache, and it is
/// only read, that cache is simulated once. Its misses are kept meanwhile: 4 bytes each, at most
/// 256 MiB per cache.
pub fn simulate_all(
    specs: &[SimulationSpec],
    threads: usize,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Report, SimulationError> {
    let groups = shared::groups(specs);
    let works = (groups.len() + specs.len()) as f64;
    let part = |begin: usize, count: usize| {
        move |part: f64| progress((begin as f64 + part * count as f64) / works)
    };
    let uppers = in_parallel(
        groups.len(),
        threads,
        &part(0, groups.len()),
        |at, progress| {
            let spec = &specs[groups[at][0]];
            let plan = plan(spec, &[&spec.workload])?;
            let mut stream = stream(&plan, &[&spec.workload])?;
            shared::Upper::simulate(&plan, &mut stream, progress)
        },
    );
    let uppers = uppers.into_iter().collect::<Result<Vec<_>, _>>()?;
    let upper_of = |at: usize| {
        let group = groups.iter().position(|group| group.contains(&at))?;
        uppers[group].as_ref()
    };
    let is_spread = leaves_threads(threads, specs.len());
    combine(in_parallel(
        specs.len(),
        threads,
        &part(groups.len(), specs.len()),
        |at, progress| match upper_of(at) {
            Some(upper) => {
                let plan = plan(&specs[at], &[&specs[at].workload])?;
                Ok(Report {
                    sources: vec![specs[at].workload.to_string()],
                    ..upper.below(&plan, progress)?
                })
            }
            None => simulate_on(&specs[at], is_spread, progress),
        },
    ))
}

/// As [`simulate_all`], with a workload for each guest instead of the specs' own.
pub fn simulate_guests(
    specs: &[SimulationSpec],
    workloads: &[WorkloadSpec],
    threads: usize,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Report, SimulationError> {
    let workloads: Vec<_> = workloads.iter().collect();
    let is_spread = leaves_threads(threads, specs.len());
    combine(in_parallel(
        specs.len(),
        threads,
        progress,
        |at, progress| simulate_one(&specs[at], &workloads, is_spread, progress),
    ))
}

fn combine(reports: Vec<Result<Report, SimulationError>>) -> Result<Report, SimulationError> {
    let mut reports = reports.into_iter();
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
