//! The demonstration with guests: two Debian kernels in QEMU read their disks at random through their
//! page caches, above one exclusive lower cache, which first runs blind and is then told by an agent
//! in each guest what the page caches evict.

mod args;
mod outcome;
mod stage;

pub use args::{Args, run};

use anyhow::anyhow;
use futae_terminal::failure::Failure;
use futae_terminal::progress::Progress;
use outcome::{Figures, GuestsReport, GuestsRun};
use stage::Stage;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Guests, each with a disk of its own.
pub const GUESTS: u32 = 2;
/// What the guests read, in bytes: a page, which is a block of the lower cache.
pub const BLOCK_BYTES: u64 = 4096;
/// Memory of each guest. Its page cache gets what the kernel and the programs leave.
pub const MEMORY_MIB: u32 = 192;
/// Reads that a guest is told of at once. Between them it can be interrupted.
const ORDER_READS: u64 = 4096;

/// How large everything is, and how much is read.
pub struct GuestsPlan {
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

/// Runs blind, then with the agents. `stopped` ends it early, with everything taken down.
fn play(plan: &GuestsPlan, stopped: &AtomicBool, quiet: bool) -> Result<GuestsReport, Failure> {
    let said = measure(plan, stopped, quiet);
    // A signal from a terminal reaches the guests and the server, too, and their end is no news then.
    if stopped.load(Ordering::Relaxed) {
        return Err(anyhow!("interrupted; everything was taken down").into());
    }
    said
}

fn measure(plan: &GuestsPlan, stopped: &AtomicBool, quiet: bool) -> Result<GuestsReport, Failure> {
    let mut stage = {
        let progress = Progress::new("booting two guests", quiet);
        Stage::set(plan, stopped, &mut |fraction| progress.set(fraction))?
    };
    let mut runs = Vec::new();
    for (number, feed) in ["none", "agent"].into_iter().enumerate() {
        let is_told = feed == "agent";
        if is_told {
            stage.start_agents(stopped)?;
        }
        let how = if is_told { "told by agents" } else { "blind" };
        let progress = Progress::new(&format!("reading over a cache that is {how}"), quiet);
        let (total, done) = (plan.warmup.saturating_add(plan.reads), AtomicU64::new(0));
        let tell = |reads: u64| {
            let done = done.fetch_add(reads, Ordering::Relaxed) + reads;
            progress.set(done as f64 / total as f64 / f64::from(GUESTS));
        };
        let first = (number as u64 * 4).saturating_mul(total.div_ceil(ORDER_READS));
        let seed = plan.seed.wrapping_mul(1_000_003).wrapping_add(first);
        stage.read(plan.warmup, seed, stopped, &tell)?;
        let before = stage.count()?;
        stage.read(plan.reads, seed ^ 1 << 40, stopped, &tell)?;
        let after = stage.count()?;
        let page_cache_blocks = stage.page_cache_blocks()?;
        let predicted = Figures::simulate(plan, is_told, page_cache_blocks)?;
        let measured = (before, after);
        let run = GuestsRun::new(plan, feed, &measured, page_cache_blocks, predicted);
        runs.push(run);
    }
    Ok(GuestsReport::new(plan, stage.kernel(), runs))
}
