//! How long requests take: from the counts, or where they wait for each other from runs once more.

use super::Args;
use super::ask::{Source, failure, threads};
use crate::failure::Failure;
use crate::progress::Progress;
use futae_sim::queueing::LatencyModel;
use futae_sim::run::{Arrivals, TraceSimulation, in_parallel};
use futae_sim::{Report, Run};

/// More requests than these with the same time, on average, say that the times are coarse.
const TOGETHER_MAX: f64 = 8.0;

/// Whether the requests have to be kept for it, and their times.
pub fn needs(args: &Args) -> (bool, bool) {
    // A closed loop tells the latencies itself.
    if args.think.is_some() {
        return (false, false);
    }
    let is_queued = args.latency.is_some_and(|model| is_queued(args, &model));
    (is_queued, is_queued && args.clients.is_none())
}

fn is_queued(args: &Args, model: &LatencyModel) -> bool {
    args.clients.is_some() || model.fixed().is_none()
}

/// Adds the times to each run, whose simulations are those of `specs` in the same order.
pub fn add(args: &Args, report: &mut Report, source: Option<&Source>) -> Result<(), Failure> {
    if args.think.is_some() {
        return Ok(());
    }
    let Some(model) = args.latency else {
        return match args.clients {
            Some(_) => Err(Failure::usage(
                "--clients is for --latency, such as --latency store=100us*8",
            )),
            None => Ok(()),
        };
    };
    let Some(latency) = model.fixed().filter(|_| args.clients.is_none()) else {
        let Some(source) = source else {
            return Err(Failure::usage("the requests were not kept for --latency"));
        };
        return queued(args, &model, source, report);
    };
    report
        .runs
        .iter_mut()
        .for_each(|run| run.set_latency(&latency));
    Ok(())
}

fn queued(
    args: &Args,
    model: &LatencyModel,
    source: &Source,
    report: &mut Report,
) -> Result<(), Failure> {
    let requests = source.requests();
    let arrivals = args.clients.map_or(Arrivals::Recorded, Arrivals::Clients);
    if args.clients.is_none()
        && let Some(together) = requests.requests_together()
        && together > TOGETHER_MAX
    {
        eprintln!(
            "futae: warning: the trace's times are coarse: {together:.0} requests on average have the same, and wait for each other \
             as if they had come at once; --clients N has N under way at a time instead"
        );
    }
    let hierarchies = super::ask::hierarchies(args)?;
    let block_bytes = args.trace.block_bytes()?;
    let progress = Progress::new("queueing", args.json);
    let seed = report.seed;
    let one = |run: &Run, levels: &Vec<_>| TraceSimulation {
        levels: levels.clone(),
        links: run.links.clone(),
        write_mode: run.write_mode,
        seed,
        warmup_requests: run.warmup_requests,
        requests: Some(run.requests),
    };
    let all: Vec<_> = report
        .runs
        .iter()
        .zip(&hierarchies)
        .map(|(run, levels)| one(run, levels))
        .collect();
    let counted: Vec<_> = report
        .runs
        .iter()
        .map(|run| (run.warmup_requests, run.requests))
        .collect();
    let set = |fraction| progress.set(fraction);
    let found = in_parallel(all.len(), threads(args), &set, |at, progress| {
        requests.queued(
            &all[at],
            block_bytes,
            counted[at],
            (model, arrivals),
            progress,
        )
    });
    for (run, latencies) in report.runs.iter_mut().zip(found) {
        run.set_latencies(latencies.map_err(failure)?);
    }
    Ok(())
}
