//! The demonstration with guests: two Debian kernels in QEMU read their disks through their page
//! caches, above the same bytes of the host's memory, used in several ways.

mod args;
mod images;
mod lower;
mod outcome;
pub mod pages;
mod plan;
mod render;
mod stage;
mod store;
mod way;

pub use args::Args;

use crate::interrupt;
use crate::live::guests::look_for_qemu;
use anyhow::Context;
use args::plans;
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_terminal::progress::Progress;
use images::Images;
use outcome::{Guests, GuestsReport, GuestsRun, Prediction};
use plan::{GUESTS, GuestsPlan};
use stage::Stage;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use way::Way;

/// Runs and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let plans = plans(args)?;
    let stopped = interrupt::watch()?;
    let report = play(&plans, &stopped, args.json)?;
    let mut out = output();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        out.write_all(report.render().as_bytes())?;
    }
    Ok(())
}

/// Runs one plan after the other, and each way of it. `stopped` ends it early, with everything taken down.
fn play(plans: &[GuestsPlan], stopped: &AtomicBool, quiet: bool) -> Result<GuestsReport, Failure> {
    interrupt::unless_stopped(stopped, measure(plans, stopped, quiet))
}

fn measure(
    plans: &[GuestsPlan],
    stopped: &AtomicBool,
    quiet: bool,
) -> Result<GuestsReport, Failure> {
    look_for_qemu(stage::WHO)?;
    let first = plans.first().context("there is nothing to run")?;
    let place = tempfile::Builder::new().prefix("futae-demo-").tempdir()?;
    // They differ in what the guests do with their disks, not in what is on these.
    let images = Images::make(place.path(), first)?;
    let mut runs = Vec::new();
    for plan in plans {
        for way in plan.ways(plan.transport == first.transport) {
            let run = measure_way(plan, way, &images, stopped, quiet)?;
            if !quiet {
                eprintln!("{}", run.line());
            }
            runs.push(run);
        }
    }
    Ok(GuestsReport::new(first, runs))
}

fn measure_way(
    plan: &GuestsPlan,
    way: Way,
    images: &Images,
    stopped: &AtomicBool,
    quiet: bool,
) -> Result<GuestsRun, Failure> {
    let mut stage = {
        let progress = Progress::new(&format!("{}: booting two guests", way.name()), quiet);
        Stage::set(plan, way, images, stopped, &mut |fraction| {
            progress.set(fraction);
        })?
    };
    if way == Way::Exclusive {
        stage.start_agents(stopped)?;
    }
    let progress = Progress::new(&format!("{}: reading", way.name()), quiet);
    let (total, done) = (plan.warmup.saturating_add(plan.reads), AtomicU64::new(0));
    let tell = |reads: u64| {
        let done = done.fetch_add(reads, Ordering::Relaxed) + reads;
        progress.set(done as f64 / total as f64 / f64::from(GUESTS));
    };
    stage.read(plan, 0..plan.warmup, stopped, &tell)?;
    let before = stage.count()?;
    stage.read(plan, plan.warmup..total, stopped, &tell)?;
    let after = stage.count()?;
    let page_cache_blocks = stage.page_cache_blocks(plan)?;
    let predicted = Prediction::simulate(plan, way, page_cache_blocks)?;
    let guests = Guests {
        kernel: stage.kernel(),
        page_cache_blocks,
    };
    Ok(GuestsRun::new(
        plan,
        way,
        &(before, after),
        guests,
        predicted,
    ))
}
