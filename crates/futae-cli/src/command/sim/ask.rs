//! From arguments to results.

use super::args::Args;
use crate::command::source_args::SourceName;
use crate::command::trace_args::{say_doubts, say_skipped};
use futae_policy::split_policies;
use futae_sim::run::{Requests, TraceFacts, Traces};
use futae_sim::study::{Listener, Stage, Study, StudyError};
use futae_sim::{LevelSpec, Report, SimulationError};
use futae_sweep::product;
use futae_terminal::failure::Failure;
use futae_terminal::progress::Progress;
use futae_trace::{TraceErrorKind, WorkloadSpec};
use futae_units::Size;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

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

/// Shows how far a study is, and prints what it warns of.
pub struct Shown {
    quiet: bool,
    bar: Mutex<Option<(Stage, Progress)>>,
}

impl Shown {
    pub fn new(quiet: bool) -> Self {
        let bar = Mutex::new(None);
        Self { quiet, bar }
    }

    fn bar(&self) -> std::sync::MutexGuard<'_, Option<(Stage, Progress)>> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Shown {
    fn progress(&self, stage: Stage, fraction: f64) {
        let mut bar = self.bar();
        if bar.as_ref().is_none_or(|(shown, _)| *shown != stage) {
            // The bar before is gone before the next is there.
            *bar = None;
            *bar = Some((stage, Progress::new(stage.name(), self.quiet)));
        }
        if let Some((_, bar)) = &*bar {
            bar.set(fraction);
        }
    }

    fn warn(&self, warning: &str) {
        *self.bar() = None;
        eprintln!("futae: warning: {warning}");
    }

    fn read(&self, facts: &TraceFacts) {
        *self.bar() = None;
        say_facts(facts);
    }
}

/// Simulates what is asked for. There is no source of a trace that was not kept, since nobody wants it
/// again.
pub fn simulate(args: &Args) -> Result<(Report, Option<Source>), Failure> {
    let is_file = |source: &&SourceName| source.is_trace();
    let study = Study {
        hierarchies: hierarchies(args)?,
        link: args.link,
        write_mode: args.write_mode,
        seed: args.seed,
        warmup: args.warmup,
        requests: args.requests,
        windows: args.windows,
        bounds: args.bounds,
        order: args.order,
        latency: args.latency,
        clients: args.clients,
        think: args.think,
        block_bytes: args.trace.block_bytes()?,
        threads: threads(args),
        keeps_requests: args.report.is_some(),
    };
    warn_of_lone_exclusive(&study.hierarchies);
    match args.sources.iter().filter(is_file).count() {
        0 => of_workloads(args, &study),
        files if files == args.sources.len() => of_traces(args, &study),
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

fn of_workloads(args: &Args, study: &Study) -> Result<(Report, Option<Source>), Failure> {
    let parsed = args.sources.iter().map(|source| {
        let parsed = source.text().parse::<WorkloadSpec>();
        parsed.map_err(|error| match source.text().contains(':') {
            true => Failure::usage(error),
            false => Failure::usage(format!("{source} is no file, and no workload: {error}")),
        })
    });
    let workloads = parsed.collect::<Result<Vec<_>, _>>()?;
    args.trace.refuse()?;
    args.view.refuse()?;
    let found = study.of_workloads(&workloads, args.guests, &Shown::new(args.json));
    let (report, workloads) = found.map_err(refused)?;
    let source = Source::Workloads(workloads, study.block_bytes, args.seed);
    Ok((report, Some(source)))
}

fn of_traces(args: &Args, study: &Study) -> Result<(Report, Option<Source>), Failure> {
    let guests = args.sources.len();
    if args.guests.is_some_and(|asked| asked as usize != guests) {
        return Err(refused(StudyError::Guests));
    }
    let view = args.view.choice()?;
    let options = args.trace.options_of(guests)?;
    let paths: Vec<PathBuf> = args.sources.iter().map(|it| it.path().into()).collect();
    let found = study.of_files(&paths, options, view, &Shown::new(args.json));
    let (report, traces) = found.map_err(refused)?;
    Ok((
        report,
        traces.map(|traces| Source::Traces(Box::new(traces))),
    ))
}

/// Says what of the traces was left out, and why they may not be read as they were meant.
fn say_facts(facts: &TraceFacts) {
    say_skipped(facts.records_skipped);
    say_doubts(&facts.doubts);
}

/// Why a study cannot be made.
pub fn refused(error: StudyError) -> Failure {
    match error {
        StudyError::Simulation(error) => failure(error),
        error => Failure::usage(error),
    }
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
