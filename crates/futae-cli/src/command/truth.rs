//! `futae truth`: what futae counts, beside what another simulator was recorded to count.

mod published;

use crate::save::print;
use anyhow::{Context, anyhow};
use futae_sim::{LevelSpec, SimulationSpec, WriteMode, simulate_all};
use futae_terminal::failure::Failure;
use futae_terminal::progress::Progress;
use futae_terminal::table::{Table, count};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Recorded by `lab/truth/record.py`.
const RECORDED: &str = include_str!("truth/libcachesim-0.3.5.csv");
const BLOCK_BYTES: u64 = 4096;

/// The heading of a policy's card under which it says why counts differ. Without it a policy must come to the recorded
/// counts exactly.
const HEADING: &str = "libCacheSim";

/// Why counts differ, by the policy's name.
fn reasons() -> impl Iterator<Item = (&'static str, String)> {
    let reason = |card: futae_policy::Card| {
        let text = card.section(HEADING)?.replace('\n', " ");
        Some((card.name, text))
    };
    futae_policy::cards().into_iter().filter_map(reason)
}

/// Compare counts with those of libCacheSim 0.3.5
///
/// Simulates the workloads that libCacheSim was recorded on and prints misses by policy, workload and size, with the
/// reason of each difference. The exit status is 1 if counts differ without a known reason.
#[derive(clap::Args)]
pub struct Args {
    /// Only these policies, by name, with all parameters that were recorded, separated by commas
    /// [default: all that were recorded]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    policy: Vec<String>,
    /// Compare hit ratios with those that a paper publishes for these traces, plain or compressed:
    /// OLTP.lis, P3.lis, P6.lis of the ARC paper (FAST 2003), conversation_trace.jsonl and
    /// synthetic_trace.jsonl of the Mooncake paper (FAST 2025). The exit status is 1 if one is
    /// further away than the table explains
    #[arg(long, value_name = "TRACE", num_args = 1.., conflicts_with = "policy")]
    published: Vec<PathBuf>,
    /// Threads [default: one for each processor]
    #[arg(long)]
    threads: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The name in a policy with its parameters, under which its card is found.
fn name_of(policy: &str) -> &str {
    policy.split('(').next().unwrap_or(policy)
}

/// A recorded count, and the one found.
#[derive(Serialize)]
struct Row<'a> {
    policy: &'a str,
    workload: &'a str,
    requests: u64,
    capacity_blocks: u64,
    futae_misses: u64,
    libcachesim_misses: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Row<'_> {
    fn is_unexplained(&self) -> bool {
        self.futae_misses != self.libcachesim_misses && self.reason.is_none()
    }
}

/// Simulates, prints, and fails if a difference has no reason.
pub fn run(args: &Args) -> Result<(), Failure> {
    let usual = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or_else(usual);
    if !args.published.is_empty() {
        return published::run(&args.published, threads, args.json);
    }
    let mut rows = recorded()?;
    let known: BTreeSet<&str> = rows.iter().map(|row| name_of(row.policy)).collect();
    if let Some(other) = args
        .policy
        .iter()
        .find(|policy| !known.contains(policy.as_str()))
    {
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!(
            "{other} was not recorded; there are {known}"
        )));
    }
    rows.retain(|row| {
        args.policy.is_empty()
            || args
                .policy
                .iter()
                .any(|policy| policy == name_of(row.policy))
    });
    let progress = Progress::new("simulating", args.json);
    let all = rows.len() as f64;
    let mut done = 0;
    let reasons: Vec<_> = reasons().collect();
    for group in rows.chunk_by_mut(|a, b| a.workload == b.workload) {
        let specs = group
            .iter()
            .map(spec)
            .collect::<Result<Vec<_>, Failure>>()?;
        let (begin, share) = (done as f64, specs.len() as f64);
        let report = simulate_all(&specs, threads, &|part| {
            progress.set((begin + part * share) / all);
        })?;
        for (row, run) in group.iter_mut().zip(&report.runs) {
            row.futae_misses = run.levels.iter().map(|level| level.counters.misses).sum();
            // With parameters that make it libCacheSim's policy it must come to the same counts.
            let reason = reasons.iter().find(|reason| reason.0 == row.policy);
            let differs = row.futae_misses != row.libcachesim_misses;
            row.reason = reason.filter(|_| differs).map(|reason| reason.1.clone());
        }
        done += group.len();
    }
    drop(progress);
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&rows)?),
        false => render(&rows),
    };
    print(&text)?;
    match rows.iter().filter(|row| row.is_unexplained()).count() {
        0 => Ok(()),
        unexplained => Err(anyhow!(
            "{unexplained} counts differ from libCacheSim's without a known reason"
        )
        .into()),
    }
}

fn recorded() -> Result<Vec<Row<'static>>, Failure> {
    let row = |line: &'static str| {
        // A workload may have commas in it, but none of those recorded has; the parameters of a policy have.
        let (workload, rest) = line.split_once(',')?;
        let (requests, rest) = rest.split_once(',')?;
        let (rest, misses) = rest.rsplit_once(',')?;
        let (policy, blocks) = rest.rsplit_once(',')?;
        Some(Row {
            policy,
            workload,
            requests: requests.parse().ok()?,
            capacity_blocks: blocks.parse().ok()?,
            futae_misses: 0,
            libcachesim_misses: misses.parse().ok()?,
            reason: None,
        })
    };
    let rows: Option<Vec<_>> = RECORDED.lines().skip(1).map(row).collect();
    Ok(rows.context("the recorded counts cannot be read")?)
}

fn spec(row: &Row<'_>) -> Result<SimulationSpec, Failure> {
    let level = format!("{}:{}blocks", row.policy, row.capacity_blocks);
    Ok(SimulationSpec {
        levels: vec![level.parse::<LevelSpec>()?],
        links: Vec::new(),
        write_mode: WriteMode::default(),
        guests: 1,
        workload: row.workload.parse()?,
        block_bytes: BLOCK_BYTES,
        seed: 1,
        warmup_requests: Some(0),
        requests: Some(row.requests),
    })
}

fn render(rows: &[Row<'_>]) -> String {
    let mut table = Table::new([
        "policy",
        "workload",
        "blocks",
        "futae",
        "libCacheSim",
        "difference",
        "points",
    ]);
    for row in rows {
        let difference = row.futae_misses.cast_signed() - row.libcachesim_misses.cast_signed();
        let points = 100.0 * difference as f64 / row.requests.max(1) as f64;
        table.row([
            row.policy.to_owned(),
            row.workload.to_owned(),
            row.capacity_blocks.to_string(),
            count(row.futae_misses),
            count(row.libcachesim_misses),
            if difference == 0 {
                "same".to_owned()
            } else {
                format!("{difference:+}")
            },
            if difference == 0 {
                String::new()
            } else {
                format!("{points:+.2}")
            },
        ]);
    }
    let same = rows
        .iter()
        .filter(|row| row.futae_misses == row.libcachesim_misses)
        .count();
    let mut text = format!(
        "Misses of futae and of libCacheSim 0.3.5\n\n{}\n",
        table.render()
    );
    let unexplained = rows.iter().filter(|row| row.is_unexplained()).count();
    let explained = rows.len() - same - unexplained;
    text += &format!(
        "{same} of {} counts are the same, {explained} differ for a known reason, and {unexplained} without one.\n",
        rows.len()
    );
    for (policy, reason) in reasons() {
        if rows
            .iter()
            .any(|row| row.policy == policy && row.reason.is_some())
        {
            text += &format!("{policy}: {reason}.\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_covers_the_policies_that_both_have() {
        let rows = recorded()
            .map_err(|failure| failure.to_string())
            .expect("rows");
        let policies: BTreeSet<&str> = rows.iter().map(|row| row.policy).collect();
        assert_eq!(rows.len(), policies.len() * 4 * 3);
        assert!(policies.len() >= 12 && reasons().count() > 0);
        assert!(reasons().all(|reason| policies.contains(reason.0)));
    }
}
