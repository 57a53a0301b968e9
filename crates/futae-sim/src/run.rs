//! A complete simulation, from spec to results.

use futae_trace::{Generator, WorkloadError, WorkloadSpec};

mod amount;
mod arrivals;
mod bounds;
mod closed;
mod columns;
mod counts;
mod drive;
mod error;
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
mod planned;
mod queued;
mod reading;
mod requests;
mod results;
mod shared;
mod simulation;
mod traces;
mod view;
mod windows;

pub use amount::{Amount, PASSES_DEFAULT};
pub use arrivals::Arrivals;
pub use closed::{ClosedLoop, Think, ThinkError};
pub use columns::{Column, Values};
pub use counts::Window;
pub(crate) use drive::Drive;
pub use error::SimulationError;
pub use facts::TraceFacts;
pub use interleave::Interleave;
pub use latency::{AccessTimes, Latency, LatencyError};
pub use one_pass::simulate_one_pass;
pub use order::{Order, OrderError, Ordered};
pub use parallel::in_parallel;
use parallel::leaves_threads;
pub use plan::Plan;
use plan::footprint;
pub use reading::{Neighbours, Reading};
use requests::interleaved;
pub use requests::{Requests, guest_seed};
pub use results::{Bounds, GuestPace, GuestResult, LevelResult, Report, Run, WindowResult};
pub use simulation::{SimulationSpec, TraceSimulation};
pub use traces::Traces;
pub use view::{ViewChoice, ViewError};

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
        ..Report::of(vec![run], spec.seed, trace_digest)
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
