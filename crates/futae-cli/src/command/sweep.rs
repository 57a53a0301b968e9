//! `futae sweep`: a plan of many simulations, each of them a cell that is done once.

use super::trace_args::{say_doubts, say_skipped};
use crate::save::print;
use anyhow::{Context, anyhow};
use futae_sim::run::TraceFacts;
use futae_sweep::{Failed, Folder, Part, Plan, Rows, SweepError, work};
use futae_terminal::failure::Failure;
use futae_terminal::progress::Progress;
use futae_terminal::text_file::read_text;
use std::path::{Path, PathBuf};

/// Simulate policies × sizes × traces × seeds of a plan, and continue after a kill
///
/// Each combination is a cell. The folder keeps completed cells, so the same command continues
/// after an interruption, and ends with the same table. Several processes or machines that share
/// the folder each take a part of the cells with --part; the command without --part then simulates
/// the remaining cells and writes the table.
#[derive(clap::Args)]
pub struct Args {
    /// What to simulate, as TOML: traces, workloads, policies, sizes, levels, seeds
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,
    /// The folder of the cells and of the table, results.csv
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Do only part I of N, counted from 1, and write no table
    #[arg(long, value_name = "I/N")]
    part: Option<Part>,
    /// Threads [default: one for each processor]
    #[arg(long)]
    threads: Option<usize>,
}

/// Does the cells that are not done, and writes the table unless a part was asked for.
pub fn run(args: &Args) -> Result<(), Failure> {
    futae_plugin::enable();
    let plan = plan(&args.plan)?;
    let folder = Folder::open(&args.out, &plan).map_err(failure)?;
    if let Some(warning) = plan.warning() {
        eprintln!("futae: warning: {warning}");
    }
    let usual = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or_else(usual);
    let range = args
        .part
        .map_or(0..plan.cells.len(), |part| part.of(plan.cells.len()));
    let mut todo = Vec::new();
    for cell in range.clone() {
        if !folder.is_done(cell).map_err(failure)? {
            todo.push(cell);
        }
    }
    let before = range.len() - todo.len();
    let progress = Progress::new("sweeping", false);
    let keep = |cell, rows: &Rows| folder.keep(cell, rows).map_err(|why| why.to_string());
    let read = |facts: &TraceFacts| {
        say_skipped(facts.records_skipped);
        say_doubts(&facts.doubts);
    };
    let tell = |done| progress.set(done);
    let failures = work(&plan, &todo, threads, &tell, &keep, &read);
    drop(progress);
    name_failed(&plan, &failures);
    let done = todo.len() - failures.len();
    let mut told = format!("{done} cells done, {before} were done before");
    if args.part.is_none() {
        let columns = folder.table().map_err(failure)?;
        let table = folder.write_csv(&columns).map_err(failure)?;
        #[cfg(feature = "parquet")]
        folder
            .write("results.parquet", &crate::save::parquet(&columns)?)
            .map_err(failure)?;
        told += &format!(", {} failed; {}", failures.len(), table.display());
    }
    print(&format!("{told}\n"))?;
    match failures.len() {
        0 => Ok(()),
        failed => Err(anyhow!(
            "{failed} of {} cells failed; mend what is named above and give the same command again",
            range.len()
        )
        .into()),
    }
}

/// The plan in a file. Names of traces are relative to its folder.
fn plan(path: &Path) -> Result<Plan, Failure> {
    let shown = path.display();
    let text = read_text(path).with_context(|| format!("cannot read the plan {shown}"))?;
    let plan = Plan::of_toml(&text, path.parent().unwrap_or(Path::new("")));
    plan.map_err(|why| match why {
        SweepError::Plan(why) => Failure::usage(format!("{shown}: {why}")),
        other => failure(other),
    })
}

/// Names the cells that failed; those of one source that failed for the same reason, one after the other, in one line.
fn name_failed(plan: &Plan, failures: &[Failed]) {
    let together = |a: &Failed, b: &Failed| {
        let is_same = plan.cells[a.0].source == plan.cells[b.0].source;
        is_same && a.0 + 1 == b.0 && a.1 == b.1
    };
    for group in failures.chunk_by(together) {
        let ((first, why), (last, _)) = (&group[0], &group[group.len() - 1]);
        if first == last {
            eprintln!("futae: cell {first}, {}: {why}", plan.cells[*first]);
        } else {
            let source = &plan.cells[*first].source_name;
            eprintln!("futae: cells {first} to {last}, of {source}: {why}");
        }
    }
}

fn failure(why: SweepError) -> Failure {
    match why {
        SweepError::Plan(why) => Failure::Usage(why),
        SweepError::Files(_) => Failure::Failed(why.into()),
    }
}
