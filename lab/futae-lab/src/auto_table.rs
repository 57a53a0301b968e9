//! `futae-lab auto-table`: `auto` beside each of its candidates, on traces and synthetic workloads.

use anyhow::anyhow;
use clap::builder::ValueParser;
use futae_policy::replace::auto::candidates;
use futae_policy::{Kind, PolicySpec, Shape};
use futae_sim::run::{TraceSimulation, Traces, ViewChoice, in_parallel};
use futae_sim::{LevelSpec, SimulationError, SimulationSpec, WriteMode, links, simulate};
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_trace::{TraceOptions, WorkloadSpec};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Compare the policy auto with each of its candidates
///
/// Each line is a cell: a source of requests, the level above, the size of the level that is compared, and hit ratios
/// in percent of all requests that some level served. The last lines sum up the gaps, in points.
#[derive(clap::Args)]
pub struct Args {
    /// Directory of traces; files that are no traces are reported and skipped
    #[arg(long, value_name = "DIRECTORY")]
    traces: Option<PathBuf>,
    /// Blocks that a request of a trace accesses: start (one, whatever its length) or blocks (all
    /// that it touches)
    #[arg(long, value_name = "VIEW", default_value = "start", value_parser = ValueParser::new(str::parse::<ViewChoice>))]
    view: ViewChoice,
    /// Synthetic workloads
    #[arg(long = "workload", value_name = "WORKLOAD", num_args = 1.., default_values = WORKLOADS, value_parser = ValueParser::new(str::parse::<WorkloadSpec>))]
    workloads: Vec<WorkloadSpec>,
    /// Sizes, percent of the blocks
    #[arg(
        long,
        value_name = "PERCENT,...",
        value_delimiter = ',',
        default_value = "1,5,20,50",
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    sizes: Vec<u32>,
    /// Levels above, as policies; none is a single level
    #[arg(
        long,
        value_name = "POLICY,...",
        value_delimiter = ',',
        default_value = "none,lru,linux,mglru"
    )]
    above: Vec<String>,
    /// Limit on the requests of each source
    #[arg(long, value_name = "REQUESTS", default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const WORKLOADS: [&str; 8] = [
    "uniform:64MiB",
    "zipf(0.8):64MiB",
    "zipf(1.1):64MiB",
    "loop:64MiB",
    "normal(0.25):64MiB",
    "mix(0.7*zipf(1.0):64MiB, 0.3*scan:64MiB)",
    "phase(50000*zipf(0.8):64MiB, 50000*loop:64MiB)",
    "shift(zipf(1.0):64MiB, every=50000)",
];

const BLOCK_BYTES: u64 = 4096;

/// What is said where there is no level above.
const NONE: &str = "none";

/// What is compared with its candidates.
const AUTO: &str = Kind::auto.name();

enum Source {
    Trace(Box<Traces>),
    Workload(WorkloadSpec),
}

/// The gaps of one cell, in points.
struct Gap {
    to_best: f64,
    to_lru: f64,
}

/// Prints the table.
pub fn run(args: &Args) -> Result<(), Failure> {
    check_above(args)?;
    let mut out = output();
    let sources = sources(args)?;
    let names: Vec<String> = candidates().iter().map(ToString::to_string).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    writeln!(out, "source above size {} {AUTO} best gap", names.join(" "))?;
    let mut gaps = Vec::new();
    for (name, source) in &sources {
        for above in &args.above {
            for size in &args.sizes {
                let all = [&names[..], &[AUTO]].concat();
                let cell = |at: usize, _: &mut (dyn FnMut(f64) + Send)| {
                    ratio(source, above, all[at], *size, args)
                };
                let ratios = in_parallel(all.len(), 2, &|_| {}, cell);
                let ratios: Vec<f64> = ratios
                    .into_iter()
                    .collect::<Result<_, SimulationError>>()
                    // It says what its sources say, too.
                    .map_err(|error| anyhow!("{name} below {above}, {size}%: {error}"))?;
                let (chosen, fixed) = (ratios[names.len()], &ratios[..names.len()]);
                let (at, best) = fixed.iter().enumerate().fold((0, 0.0), |most, (at, &it)| {
                    if it > most.1 { (at, it) } else { most }
                });
                let lru = names
                    .iter()
                    .position(|it| *it == Kind::lru.name())
                    .map_or(0.0, |it| fixed[it]);
                let shown: Vec<String> = ratios.iter().map(|it| format!("{it:.2}")).collect();
                writeln!(
                    out,
                    "{name} {above} {size}% {} {} {:.2}",
                    shown.join(" "),
                    names[at],
                    best - chosen
                )?;
                gaps.push(Gap {
                    to_best: best - chosen,
                    to_lru: lru - chosen,
                });
            }
        }
    }
    summary(&mut out, &gaps)?;
    Ok(())
}

/// Refuses levels above that cannot be built, before anything is read.
fn check_above(args: &Args) -> Result<(), Failure> {
    for above in args.above.iter().filter(|above| *above != NONE) {
        let policy = above.parse::<PolicySpec>();
        // Enough for every policy that can be built at all.
        let shape = Shape {
            slots: 1 << 16,
            seed: args.seed,
        };
        let built = policy.and_then(|policy| futae_policy::build(&policy, &shape).map(drop));
        built.map_err(|why| Failure::usage(format!("--above {above}: {why}")))?;
    }
    Ok(())
}

fn summary(out: &mut dyn Write, gaps: &[Gap]) -> std::io::Result<()> {
    let share = |is: &dyn Fn(&Gap) -> bool| {
        100.0 * gaps.iter().filter(|gap| is(gap)).count() as f64 / gaps.len().max(1) as f64
    };
    let worst = |of: &dyn Fn(&Gap) -> f64| gaps.iter().map(of).fold(0.0, f64::max);
    writeln!(
        out,
        "{} cells: {:.1} % within 1 point of the best, worst {:.2} below it; {:.1} % more than 0.2 below lru, worst {:.2}",
        gaps.len(),
        share(&|gap| gap.to_best <= 1.0),
        worst(&|gap| gap.to_best),
        share(&|gap| gap.to_lru > 0.2),
        worst(&|gap| gap.to_lru),
    )
}

fn sources(args: &Args) -> Result<Vec<(String, Source)>, Failure> {
    let mut sources = Vec::new();
    if let Some(directory) = &args.traces {
        let entries = std::fs::read_dir(directory).map_err(|error| named(directory, error))?;
        let mut paths: Vec<PathBuf> = entries.filter_map(|it| Some(it.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .replace(' ', "_");
            let options = TraceOptions::default();
            match Traces::read(&[path], &options, args.view, &mut |_| {}) {
                Ok(traces) => sources.push((name, Source::Trace(Box::new(traces)))),
                Err(error) => eprintln!("left out: {name}: {error}"),
            }
        }
    }
    let synthetic = args.workloads.iter().cloned();
    sources.extend(synthetic.map(|it| (it.to_string().replace(' ', ""), Source::Workload(it))));
    Ok(sources)
}

fn named(path: &Path, error: std::io::Error) -> anyhow::Error {
    anyhow::Error::new(error).context(path.display().to_string())
}

/// Requests that some level served, percent.
fn ratio(
    source: &Source,
    above: &str,
    policy: &str,
    size: u32,
    args: &Args,
) -> Result<f64, SimulationError> {
    let level = |policy: &str| -> Result<LevelSpec, SimulationError> {
        let mut spec: PolicySpec = policy.parse()?;
        // Alone, what lives on demotions must keep what it serves.
        if above == NONE {
            spec.keep_served();
        }
        Ok(format!("{spec}:{size}%").parse()?)
    };
    let levels = match above {
        NONE => vec![level(policy)?],
        above => vec![level(above)?, level(policy)?],
    };
    let links = links(&levels, None);
    let report = match source {
        Source::Trace(traces) => {
            let simulation = TraceSimulation {
                levels,
                links,
                write_mode: WriteMode::default(),
                seed: args.seed,
                warmup_requests: 0,
                requests: Some(args.requests.min(traces.facts().accesses)),
            };
            traces.simulate(&[simulation], BLOCK_BYTES, 1, &|_| {})?
        }
        Source::Workload(workload) => {
            let simulation = SimulationSpec {
                levels,
                links,
                write_mode: WriteMode::default(),
                guests: 1,
                workload: workload.clone(),
                block_bytes: BLOCK_BYTES,
                seed: args.seed,
                warmup_requests: Some(0),
                requests: Some(args.requests),
            };
            simulate(&simulation, &mut |_| {})?
        }
    };
    Ok(100.0 * report.runs[0].combined_hit_ratio.unwrap_or(0.0))
}
