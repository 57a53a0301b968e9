//! The demonstration with guests: two Debian kernels in QEMU read their disks through their page
//! caches, above the same bytes of the host's memory, used in four ways.

mod args;
mod images;
mod lower;
mod outcome;
mod render;
mod stage;
mod way;

pub use args::{Args, run};

use crate::live::guests::look_for_qemu;
use anyhow::anyhow;
use futae_machine::Kernel;
use futae_terminal::failure::Failure;
use futae_terminal::progress::Progress;
use images::Images;
use outcome::{GuestsReport, GuestsRun, Prediction};
use stage::Stage;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// Reads of each guest before counting begins, each time.
    pub warmup: u64,
    /// Reads of each guest that are counted, each time.
    pub reads: u64,
}

impl GuestsPlan {
    /// The load of one guest, as the simulator has it.
    pub fn workload(&self) -> String {
        format!("{}:{}", self.choice, self.image_blocks * BLOCK_BYTES)
    }

    /// Bytes of the lower cache.
    pub fn lower_bytes(&self) -> u64 {
        u64::from(self.lower_blocks) * BLOCK_BYTES
    }
}

/// Runs one way after the other. `stopped` ends it early, with everything taken down.
fn play(plan: &GuestsPlan, stopped: &AtomicBool, quiet: bool) -> Result<GuestsReport, Failure> {
    let said = measure(plan, stopped, quiet);
    // A signal from a terminal reaches the guests and the server, too, and their end is no news then.
    if stopped.load(Ordering::Relaxed) {
        return Err(anyhow!("interrupted; everything was taken down").into());
    }
    said
}

fn measure(plan: &GuestsPlan, stopped: &AtomicBool, quiet: bool) -> Result<GuestsReport, Failure> {
    look_for_qemu(stage::WHO)?;
    let place = tempfile::Builder::new().prefix("futae-demo-").tempdir()?;
    let images = Images::make(place.path(), plan)?;
    let (mut runs, mut kernel) = (Vec::new(), String::new());
    for &way in &plan.ways {
        let mut stage = {
            let progress = Progress::new(&format!("{}: booting two guests", way.name()), quiet);
            Stage::set(plan, way, &images, stopped, &mut |fraction| {
                progress.set(fraction);
            })?
        };
        if way == Way::Exclusive {
            stage.start_agents(stopped)?;
        }
        kernel = stage.kernel();
        runs.push(measure_way(plan, way, &mut stage, stopped, quiet)?);
    }
    Ok(GuestsReport::new(plan, kernel, runs))
}

fn measure_way(
    plan: &GuestsPlan,
    way: Way,
    stage: &mut Stage,
    stopped: &AtomicBool,
    quiet: bool,
) -> Result<GuestsRun, Failure> {
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
    let page_cache_blocks = stage.page_cache_blocks()?;
    let predicted = Prediction::simulate(plan, way, page_cache_blocks)?;
    let measured = (before, after);
    Ok(GuestsRun::new(
        plan,
        way,
        &measured,
        page_cache_blocks,
        predicted,
    ))
}
