//! `futae sim`: what a hierarchy of caches would do with a workload.

use crate::failure::Failure;
use crate::progress::Progress;
use crate::table::{Table, count, percent};
use futae_sim::{LevelSpec, Link, Report, Run, SimulationSpec, links, simulate_all};
use futae_trace::{
    BLOCK_BYTES_MAX, SIMULATED_BLOCK_BYTES_MIN, Size, WorkloadSpec, parse_block_bytes,
};

use std::io::Write;
use std::path::Path;

/// Simulate a hierarchy of caches under a workload
///
/// Levels are given top down, once each: `--level lru:3GiB --level exclusive:4GiB` is a guest's
/// LRU cache over a host's exclusive one. Instead of levels, `--policy` and `--sizes` (both may
/// name several, separated by commas) give one run per policy and size of a single level.
#[derive(clap::Args)]
pub struct Args {
    /// What is asked for, such as uniform:10GiB, zipf(1.0):10GiB, loop:6GiB, normal(0.25):2GiB
    workload: String,
    /// A level, top down, as POLICY:SIZE
    #[arg(long = "level", value_name = "POLICY:SIZE")]
    levels: Vec<String>,
    /// How levels are joined: inclusive, demote or notice [default: demote above an exclusive
    /// level, inclusive elsewhere]
    #[arg(long)]
    link: Option<Link>,
    /// Guests: each has its own copy of all levels but the last, which they share
    #[arg(long, default_value_t = 1)]
    guests: u32,
    /// Bytes of a block: a power of two from 512 to 256MiB
    #[arg(long, default_value = "4KiB")]
    block: String,
    /// All randomness comes from this number
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Requests before counting begins [default: 5 times the blocks of the workload]
    #[arg(long, value_name = "REQUESTS")]
    warmup: Option<u64>,
    /// Requests that are counted [default: 5 times the blocks of the workload]
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
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Simulates and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let specs = simulations(args)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let report = {
        let progress = Progress::new("simulating", args.json);
        simulate_all(&specs, threads, &|fraction| progress.set(fraction)).map_err(Failure::usage)?
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write!(out, "{}", render(&report, &args.workload))?;
    }
    Ok(())
}

fn simulations(args: &Args) -> Result<Vec<SimulationSpec>, Failure> {
    if Path::new(&args.workload).exists() {
        let message = format!(
            "{} is a file; this version simulates workloads such as uniform:10GiB",
            args.workload
        );
        return Err(Failure::usage(message));
    }
    let workload: WorkloadSpec = args.workload.parse().map_err(Failure::usage)?;
    let block_bytes = parse_block_bytes(&args.block, SIMULATED_BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
        .map_err(Failure::usage)?;
    let one = |levels: Vec<LevelSpec>| SimulationSpec {
        links: links(&levels, args.link),
        levels,
        guests: args.guests,
        workload: workload.clone(),
        block_bytes,
        seed: args.seed,
        warmup_requests: args.warmup,
        requests: args.requests,
    };
    Ok(hierarchies(args)?.into_iter().map(one).collect())
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

fn render(report: &Report, workload: &str) -> String {
    let mut table = Table::new([
        "level",
        "blocks",
        "requests",
        "hits",
        "misses",
        "hit ratio",
        "demoted in",
    ]);
    for run in &report.runs {
        add_run(&mut table, run, report.runs.len() > 1);
    }
    let Some(first) = report.runs.first() else {
        return table.render();
    };
    format!(
        "{workload}: {} blocks of {} bytes, seed {}, {} requests after {} of warm-up, digest {}\n\n{}",
        count(first.footprint_blocks),
        first.block_bytes,
        report.seed,
        count(first.requests),
        count(first.warmup_requests),
        report.trace_digest,
        table.render()
    )
}

fn add_run(table: &mut Table, run: &Run, several: bool) {
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
            count(level.counters.demotions_in),
        ]);
    }
    if several && run.levels.len() == 1 {
        return;
    }
    table.row([
        "all together".to_owned(),
        String::new(),
        count(run.requests),
        String::new(),
        count(run.store_reads),
        percent(run.combined_hit_ratio),
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
