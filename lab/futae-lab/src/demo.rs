//! The demonstration with guests: two Debian kernels in QEMU read their disks through their page
//! caches, above the same bytes of the host's memory, used in several ways.

mod args;
mod images;
mod lower;
mod outcome;
pub mod pages;
mod render;
mod stage;
mod store;
mod way;

pub use args::{Args, run};

use crate::interrupt;
use crate::live::guests::look_for_qemu;
use anyhow::Context;
use futae_machine::Kernel;
use futae_terminal::failure::Failure;
use futae_terminal::progress::Progress;
use futae_trace::WorkloadSpec;
use images::Images;
use outcome::{Guests, GuestsReport, GuestsRun, Prediction};
use stage::Stage;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use way::{Transport, Way};

/// Guests, each with a disk of its own.
pub const GUESTS: u32 = 2;
/// What the guests read, in bytes: a page, which is a block of the lower cache.
pub const BLOCK_BYTES: u64 = 4096;
/// Memory of each guest. Its page cache gets what the kernel and the programs leave.
pub const MEMORY_MIB: u32 = 192;
/// Operations of one order to a guest. Between them it can be interrupted.
const ORDER_READS: u64 = 4096;

/// How large everything is, and how much is read.
#[derive(Clone)]
pub struct GuestsPlan {
    /// The ways to run, in this order.
    pub ways: Vec<Way>,
    /// The guests' kernel; none: the first that Debian has.
    pub kernel: Option<Kernel>,
    /// How the guests reach the disks of a server.
    pub transport: Transport,
    /// How the next block is chosen, as `futae load` and `futae sim` name it.
    pub choice: String,
    /// Blocks of each guest's disk.
    pub image_blocks: u64,
    /// Slots of the lower cache, which the guests share.
    pub lower_blocks: u32,
    /// All randomness comes from here.
    pub seed: u64,
    /// Operations of each guest before counting begins, each time.
    pub warmup: u64,
    /// Operations of each guest that are counted, each time.
    pub reads: u64,
    /// The share of writes among them.
    pub writes: f64,
    /// The guests read and write a file of ext4, not the device.
    pub files: bool,
    /// What each operation of the store takes longer.
    pub store_latency: Duration,
}

impl GuestsPlan {
    /// The load of one guest, as the simulator has it.
    pub fn workload(&self) -> String {
        let (choice, bytes) = (self.choice.trim(), self.image_blocks * BLOCK_BYTES);
        match (self.writes, choice.strip_suffix(')')) {
            (0.0, _) => format!("{choice}:{bytes}"),
            (writes, Some(begin)) => format!("{begin}, writes={writes}):{bytes}"),
            (writes, None) => format!("{choice}(writes={writes}):{bytes}"),
        }
    }

    /// The ways to run, without those for which it makes no difference how disks are reached if `is_first` is not set.
    fn ways(&self, is_first: bool) -> impl Iterator<Item = Way> {
        let ways = self.ways.iter().copied();
        ways.filter(move |way| is_first || way.served_policy().is_some())
    }

    /// Whether guests can do that.
    fn check(&self) -> Result<(), Failure> {
        if !(0.0..=1.0).contains(&self.writes) {
            let message = format!("--writes {} is not a share from 0 to 1", self.writes);
            return Err(Failure::usage(message));
        }
        match self.workload().parse::<WorkloadSpec>() {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::usage(format!("--choice {}: {error}", self.choice))),
        }
    }

    /// Bytes of the lower cache.
    pub fn lower_bytes(&self) -> u64 {
        u64::from(self.lower_blocks) * BLOCK_BYTES
    }
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
