//! `futae sim`: what a hierarchy of caches would do with a workload or a trace.

use super::trace_args::{TraceArgs, ViewArgs, say_skipped};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::table::{Table, count, percent};
use futae_sim::run::{Latency, TraceSimulation, Traces, simulate_guests};
use futae_sim::{
    LevelSpec, Link, Report, Run, SimulationError, SimulationSpec, WriteMode, links, simulate_all,
};
use futae_trace::{Size, TraceErrorKind, WorkloadSpec};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Simulate a hierarchy of caches under a workload or a trace
///
/// Levels are given top down, once each: `--level lru:3GiB --level exclusive:4GiB` is a guest's
/// LRU cache over a host's exclusive one. Instead of levels, `--policy` and `--sizes` (both may
/// name several, separated by commas) give one run per policy and size of a single level. A trace
/// is read once for all runs, and counted from its first request to its last. Several workloads,
/// or several traces, are one for each guest.
#[derive(clap::Args)]
pub struct Args {
    /// What is asked for: a trace file, or e.g. uniform:10GiB, zipf(1.0):10GiB, loop:6GiB
    #[arg(value_name = "TRACE|WORKLOAD", required = true)]
    sources: Vec<String>,
    /// A level, top down, as POLICY:SIZE
    #[arg(long = "level", value_name = "POLICY:SIZE")]
    levels: Vec<String>,
    /// How levels are joined: inclusive, demote or notice [default: demote above an exclusive
    /// level, inclusive elsewhere]
    #[arg(long)]
    link: Option<Link>,
    /// When written data goes to the store: write-through (at once) or write-back (when the block
    /// is evicted)
    #[arg(long, value_name = "MODE", default_value_t)]
    write_mode: WriteMode,
    /// Guests: each has its own copy of all levels but the last, which they share [default: as
    /// many as there are traces or workloads]
    #[arg(long)]
    guests: Option<u32>,
    /// All randomness comes from this number
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Requests before counting begins [default: 5 times the blocks of the workload; none of a
    /// trace]
    #[arg(long, value_name = "REQUESTS")]
    warmup: Option<u64>,
    /// Requests that are counted [default: 5 times the blocks of the workload; all of a trace]
    #[arg(long)]
    requests: Option<u64>,
    /// Policies of a single level
    #[arg(long = "policy", value_name = "POLICY,...", conflicts_with = "levels")]
    policies: Option<String>,
    /// Sizes of a single level, such as 1%,10%,1GiB
    #[arg(
        long,
        value_name = "SIZE,...",
        requires = "policies",
        conflicts_with = "levels"
    )]
    sizes: Option<String>,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    view: ViewArgs,
    /// Tell how long requests take, such as upper=1us,lower=10us,store=100us,link=5us
    #[arg(long, value_name = "PLACE=TIME,...")]
    latency: Option<Latency>,
    /// Threads [default: one for each processor]
    #[arg(long)]
    threads: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// Simulates and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let is_file = |source: &&String| Path::new(source).exists();
    let mut report = match args.sources.iter().filter(is_file).count() {
        0 => of_workloads(args)?,
        files if files == args.sources.len() => of_traces(args)?,
        _ => {
            return Err(Failure::usage(
                "either all guests have traces, or all have workloads",
            ));
        }
    };
    if let Some(latency) = &args.latency {
        report
            .runs
            .iter_mut()
            .for_each(|run| run.set_latency(latency));
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else if args.csv {
        write!(out, "{}", report.csv())?;
    } else {
        write!(out, "{}", render(&report, &args.sources.join(", ")))?;
    }
    Ok(())
}

fn threads(args: &Args) -> usize {
    let usual = || std::thread::available_parallelism().map_or(1, usize::from);
    args.threads.unwrap_or_else(usual)
}

fn of_workloads(args: &Args) -> Result<Report, Failure> {
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
    let one = |levels: Vec<LevelSpec>| SimulationSpec {
        links: links(&levels, args.link),
        levels,
        write_mode: args.write_mode,
        guests,
        workload: workloads[0].clone(),
        block_bytes,
        seed: args.seed,
        warmup_requests: args.warmup,
        requests: args.requests,
    };
    let specs: Vec<_> = hierarchies(args)?.into_iter().map(one).collect();
    let progress = Progress::new("simulating", args.json);
    let set = |fraction| progress.set(fraction);
    let report = match several {
        true => simulate_guests(&specs, &workloads, threads(args), &set),
        false => simulate_all(&specs, threads(args), &set),
    };
    report.map_err(Failure::usage)
}

fn of_traces(args: &Args) -> Result<Report, Failure> {
    let guests = args.sources.len();
    if args.guests.is_some_and(|asked| asked as usize != guests) {
        return Err(Failure::usage(
            "each guest has a trace of its own: name one for each",
        ));
    }
    let view = args.view.choice()?;
    let options = args.trace.options()?;
    let one = |levels: Vec<LevelSpec>| TraceSimulation {
        links: links(&levels, args.link),
        levels,
        write_mode: args.write_mode,
        seed: args.seed,
        warmup_requests: args.warmup.unwrap_or(0),
        requests: args.requests,
    };
    let hierarchies: Vec<_> = hierarchies(args)?.into_iter().map(one).collect();
    let paths: Vec<PathBuf> = args.sources.iter().map(PathBuf::from).collect();
    let progress = Progress::new("reading", args.json);
    let traces = Traces::read(&paths, &options, view, &mut |done| progress.set(done));
    let traces = traces.map_err(failure)?;
    drop(progress);
    say_skipped(traces.facts().records_skipped);
    let progress = Progress::new("simulating", args.json);
    let set = |fraction| progress.set(fraction);
    traces
        .simulate(&hierarchies, options.unit_bytes, threads(args), &set)
        .map_err(failure)
}

/// A trace that cannot be read is no mistake in the arguments, unless its format is.
fn failure(error: SimulationError) -> Failure {
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
fn hierarchies(args: &Args) -> Result<Vec<Vec<LevelSpec>>, Failure> {
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
    let levels = args
        .levels
        .iter()
        .map(|level| level.parse().map_err(Failure::usage));
    Ok(vec![levels.collect::<Result<_, _>>()?])
}

/// Splits at commas outside of parentheses.
fn split_policies(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let outside = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    };
    text.split(outside).collect()
}

fn render(report: &Report, source: &str) -> String {
    let mut table = Table::new([
        "level",
        "blocks",
        "requests",
        "hits",
        "misses",
        "hit ratio",
        "byte misses",
        "demoted in",
    ]);
    for run in &report.runs {
        add_run(&mut table, run, report.runs.len() > 1);
    }
    let Some(first) = report.runs.first() else {
        return table.render();
    };
    let blocks = match &report.trace {
        Some(trace) if trace.view == "start" => "blocks, one a request".to_owned(),
        _ => format!("blocks of {} bytes", first.block_bytes),
    };
    let mut text = format!(
        "{source}: {} {blocks}, seed {}, {} requests ({} writes) after {} of warm-up, digest {}\n\n{}",
        count(first.footprint_blocks),
        report.seed,
        count(first.requests),
        count(first.writes),
        count(first.warmup_requests),
        report.trace_digest,
        table.render()
    );
    if first.write_mode == WriteMode::WriteBack {
        text.push('\n');
        text.push_str(&writes(report));
    }
    if let Some(times) = times(report) {
        text.push('\n');
        text.push_str(&times);
    }
    text
}

/// Where written data went.
fn writes(report: &Report) -> String {
    let mut table = Table::new([
        "written back",
        "writes taken",
        "overwritten",
        "dirty evicted",
        "dirty left",
        "to the store",
    ]);
    for run in &report.runs {
        let levels = run.levels.iter().zip(&run.writes_taken);
        for (level, &taken) in levels {
            table.row([
                format!("{} of {}", level.policy, count(level.capacity_blocks)),
                count(taken),
                count(level.overwrites),
                count(level.dirty_evictions),
                count(level.dirty_blocks),
                String::new(),
            ]);
        }
        table.row([
            "all together".to_owned(),
            count(run.writes),
            count(run.levels.iter().map(|level| level.overwrites).sum()),
            count(run.dirty_evictions),
            count(run.dirty_blocks),
            count(run.store_writes),
        ]);
    }
    table.render()
}

/// How long requests take, if that was asked for.
fn times(report: &Report) -> Option<String> {
    let mut table = Table::new(["access time, us", "mean", "p50", "p90", "p99"]);
    for run in &report.runs {
        let times = run.access_times?;
        let us = |seconds: Option<f64>| {
            seconds.map_or_else(|| "–".to_owned(), |seconds| format!("{:.2}", seconds * 1e6))
        };
        let name = |level: &futae_sim::LevelResult| {
            format!("{} of {}", level.policy, count(level.capacity_blocks))
        };
        let names: Vec<String> = run.levels.iter().map(name).collect();
        table.row([
            names.join(", "),
            us(times.mean_access_seconds),
            us(times.p50_access_seconds),
            us(times.p90_access_seconds),
            us(times.p99_access_seconds),
        ]);
    }
    Some(table.render())
}

fn add_run(table: &mut Table, run: &Run, several: bool) {
    let single = several && run.levels.len() == 1;
    for level in &run.levels {
        let copies = if level.copies > 1 {
            format!(" × {}", level.copies)
        } else {
            String::new()
        };
        table.row([
            format!("{}{copies}", level.policy),
            count(level.capacity_blocks),
            count(level.counters.requests),
            count(level.counters.hits),
            count(level.counters.misses),
            percent(level.hit_ratio),
            if single {
                percent(run.byte_miss_ratio)
            } else {
                String::new()
            },
            count(level.counters.demotions_in),
        ]);
    }
    if single {
        return;
    }
    table.row([
        "all together".to_owned(),
        String::new(),
        count(run.requests),
        String::new(),
        count(run.served.last().map_or(0, |at| at.reads + at.writes)),
        percent(run.combined_hit_ratio),
        percent(run.byte_miss_ratio),
        String::new(),
    ]);
}

#[cfg(test)]
mod tests {
    use super::split_policies;

    #[test]
    fn commas_inside_parentheses_do_not_separate_policies() {
        assert_eq!(
            split_policies("lru,2q(a=1,b=2),fifo"),
            ["lru", "2q(a=1,b=2)", "fifo"]
        );
    }
}
