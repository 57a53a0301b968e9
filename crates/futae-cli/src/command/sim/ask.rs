//! From arguments to results.

use super::Args;
use super::warmup::Warmup;
use super::windows::Windows;
use crate::command::trace_args::{say_doubts, say_skipped};
use crate::failure::Failure;
use crate::progress::Progress;
use futae_policy::split_policies;
use futae_sim::run::{
    ClosedLoop, Reading, Requests, TraceFacts, TraceSimulation, Traces, simulate_guests,
    simulate_one_pass,
};
use futae_sim::{LevelSpec, Report, SimulationError, SimulationSpec, links, simulate_all};
use futae_sweep::product;
use futae_trace::{TraceErrorKind, TraceOptions, TraceReader, WorkloadSpec, is_trace};
use futae_units::Size;
use std::path::{Path, PathBuf};

/// What was simulated, to be gone through again.
pub enum Source {
    /// Trace files.
    Traces(Box<Traces>),
    /// Workloads, one for each guest, with the size of a block and the seed.
    Workloads(Vec<WorkloadSpec>, u64, u64),
}

impl Source {
    /// The requests of the simulation.
    pub fn requests(&self) -> Requests<'_> {
        match self {
            Self::Traces(traces) => Requests::Traces(traces),
            Self::Workloads(workloads, block_bytes, seed) => Requests::Workloads {
                workloads,
                block_bytes: *block_bytes,
                seed: *seed,
            },
        }
    }
}

/// Simulates what is asked for. There is no source of a trace that was not kept, since nobody wants it
/// again.
pub fn simulate(args: &Args) -> Result<(Report, Option<Source>), Failure> {
    let is_file = |source: &&String| is_trace(source);
    warn_of_lone_exclusive(&hierarchies(args)?);
    match args.sources.iter().filter(is_file).count() {
        0 => of_workloads(args),
        files if files == args.sources.len() => of_traces(args),
        _ => Err(Failure::usage(
            "either all guests have traces, or all have workloads",
        )),
    }
}

/// An exclusive cache at the top is asked, but nobody demotes to it.
fn warn_of_lone_exclusive(hierarchies: &[Vec<LevelSpec>]) {
    let tops = hierarchies.iter().filter_map(|levels| levels.first());
    if let Some(top) = tops.into_iter().find(|top| top.policy.lives_on_demotions()) {
        eprintln!(
            "futae: warning: {top} keeps only what the level above demotes to it, and there is none, so it hits \
             nothing; name the upper level first, such as --level lru:1GiB --level {top}"
        );
    }
}

pub fn threads(args: &Args) -> usize {
    let usual = || std::thread::available_parallelism().map_or(1, usize::from);
    args.threads.unwrap_or_else(usual)
}

fn of_workloads(args: &Args) -> Result<(Report, Option<Source>), Failure> {
    let parsed = args.sources.iter().map(|source| {
        let parsed = source.parse::<WorkloadSpec>();
        parsed.map_err(|error| match source.contains(':') {
            true => Failure::usage(error),
            false => Failure::usage(format!("{source} is no file, and no workload: {error}")),
        })
    });
    let workloads = parsed.collect::<Result<Vec<_>, _>>()?;
    args.trace.refuse()?;
    args.view.refuse()?;
    let several = workloads.len() > 1;
    let guests = match args.guests {
        Some(guests) if several && guests as usize != workloads.len() => {
            let message = format!(
                "--guests {guests} does not fit {} workloads",
                workloads.len()
            );
            return Err(Failure::usage(message));
        }
        guests => guests.unwrap_or(workloads.len() as u32),
    };
    let block_bytes = args.trace.block_bytes()?;
    let warmup = args.warmup.map(Warmup::of_workload).transpose()?;
    if args.bounds {
        return Err(Failure::usage("--bounds is for traces"));
    }
    if args.think.is_some() {
        return Err(Failure::usage(
            "--think is for traces; futae trace convert writes a workload to a trace",
        ));
    }
    if args.order.is_some() {
        return Err(Failure::usage(
            "--order is for traces; workloads take turns",
        ));
    }
    let one = |levels: Vec<LevelSpec>| SimulationSpec {
        links: links(&levels, args.link),
        levels,
        write_mode: args.write_mode,
        guests,
        workload: workloads[0].clone(),
        block_bytes,
        seed: args.seed,
        warmup_requests: warmup,
        requests: args.requests,
    };
    let specs: Vec<_> = hierarchies(args)?.into_iter().map(one).collect();
    let progress = Progress::new("simulating", args.json);
    let set = |fraction| progress.set(fraction);
    let report = match several {
        true => simulate_guests(&specs, &workloads, threads(args), &set),
        false => simulate_all(&specs, threads(args), &set),
    };
    let report = report.map_err(Failure::usage)?;
    let workloads = match several {
        true => workloads,
        false => vec![workloads[0].clone(); guests as usize],
    };
    let source = Source::Workloads(workloads, block_bytes, args.seed);
    let mut report = report;
    if let Some(windows) = args.windows {
        windows.of_workloads(&source.requests(), &specs, &mut report)?;
    }
    Ok((report, Some(source)))
}

fn of_traces(args: &Args) -> Result<(Report, Option<Source>), Failure> {
    let guests = args.sources.len();
    if args.guests.is_some_and(|asked| asked as usize != guests) {
        return Err(Failure::usage(
            "each guest has a trace of its own: name one for each",
        ));
    }
    let view = args.view.choice()?;
    let options = args.trace.options_of(guests)?;
    let block_bytes = args.trace.block_bytes()?;
    if args.think.is_some() && args.warmup.is_some_and(Warmup::needs_times) {
        return Err(Failure::usage(
            "with --think the latencies decide when requests come; give --warmup in requests or as a share",
        ));
    }
    let keeps_times = args.warmup.is_some_and(Warmup::needs_times)
        || args.windows.is_some_and(Windows::needs_times)
        || super::queued::needs(args).1;
    let all = hierarchies(args)?;
    let with = |warmup_requests: u64| -> Vec<TraceSimulation> {
        let one = |levels: &Vec<LevelSpec>| TraceSimulation {
            links: links(levels, args.link),
            levels: levels.clone(),
            write_mode: args.write_mode,
            seed: args.seed,
            warmup_requests,
            requests: args.requests,
        };
        all.iter().map(one).collect()
    };
    let paths: Vec<PathBuf> = args.sources.iter().map(PathBuf::from).collect();
    let needs_all = args.report.is_some()
        || args.windows.is_some()
        || args.bounds
        || args.think.is_some()
        || super::queued::needs(args).0;
    let in_requests = match args.warmup {
        None => Some(0),
        Some(Warmup::Requests(requests)) => Some(requests),
        Some(_) => None,
    };
    if let ([path], [options], Some(warmup), false) =
        (&paths[..], &options[..], in_requests, needs_all)
        && let [only] = &with(warmup)[..]
        && only.is_one_pass(view)
        && !has_sizes(path, options)
    {
        let progress = Progress::new("simulating", args.json);
        let set = &mut |done| progress.set(done);
        let report = simulate_one_pass(path, options, view, only, set).map_err(failure)?;
        drop(progress);
        report.trace.iter().for_each(say_facts);
        return Ok((report, None));
    }
    let reading = Reading {
        options,
        view,
        order: args.order.unwrap_or_default(),
        keep_times: keeps_times,
        closed: closed(args),
    };
    let progress = Progress::new("reading", args.json);
    let traces = Traces::read_guests(&paths, &reading, &mut |done| progress.set(done));
    let traces = traces.map_err(failure)?;
    drop(progress);
    say_facts(traces.facts());
    let warmup = args
        .warmup
        .map(|warmup| warmup.of_traces(&traces))
        .transpose()?;
    let progress = Progress::new("simulating", args.json);
    let set = |fraction| progress.set(fraction);
    let simulations = with(warmup.unwrap_or(0));
    let report = traces.simulate(&simulations, block_bytes, threads(args), &set);
    let mut report = report.map_err(failure)?;
    if let Some(windows) = args.windows {
        windows.of_traces(&traces, &simulations, block_bytes, &mut report)?;
    }
    if args.bounds {
        for (simulation, run) in simulations.iter().zip(&mut report.runs) {
            run.bounds = Some(traces.bounds(simulation, block_bytes).map_err(failure)?);
        }
    }
    Ok((report, Some(Source::Traces(Box::new(traces)))))
}

/// When guests ask, if that depends on the answers.
fn closed(args: &Args) -> Option<ClosedLoop> {
    let (think, model) = args.think.zip(args.latency)?;
    Some(ClosedLoop { think, model })
}

/// Whether a trace's objects have sizes, which one pass does not keep. What is neither a file nor behind a URL can be read only
/// once.
fn has_sizes(path: &Path, options: &TraceOptions) -> bool {
    let reads_again = match path.metadata() {
        Ok(metadata) => metadata.is_file(),
        Err(_) => is_trace(path),
    };
    reads_again && TraceReader::open(path, options).is_ok_and(|reader| reader.has_sizes())
}

/// Says what of the traces was left out, and why they may not be read as they were meant.
pub fn say_facts(facts: &TraceFacts) {
    say_skipped(facts.records_skipped);
    say_doubts(&facts.doubts);
}

/// A trace that cannot be read is no mistake in the arguments, unless its format is.
pub fn failure(error: SimulationError) -> Failure {
    match error {
        SimulationError::Trace(error)
            if error.at.is_some() || matches!(error.kind, TraceErrorKind::Io(_)) =>
        {
            Failure::from(error)
        }
        error => Failure::usage(error),
    }
}

/// The levels of each run.
pub fn hierarchies(args: &Args) -> Result<Vec<Vec<LevelSpec>>, Failure> {
    if let Some(policies) = &args.policies {
        let Some(sizes) = &args.sizes else {
            return Err(Failure::usage(
                "--policy needs --sizes, such as --sizes 1%,10%",
            ));
        };
        let mut runs = Vec::new();
        for policy in split_policies(policies) {
            for size in sizes.split(',') {
                size.parse::<Size>().map_err(Failure::usage)?;
                runs.push(vec![
                    format!("{policy}:{size}").parse().map_err(Failure::usage)?,
                ]);
            }
        }
        return Ok(runs);
    }
    if args.levels.is_empty() {
        return Err(Failure::usage(
            "say what to simulate: --level POLICY:SIZE once per level, top down \
             (e.g. --level lru:3GiB --level exclusive:4GiB)",
        ));
    }
    product(&args.levels).map_err(Failure::usage)
}
