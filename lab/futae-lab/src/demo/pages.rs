//! Every page that enters the cache from a guest, held against the store, until there were this many.

use super::args::{blocks, kernel};
use super::images::Images;
use super::plan::{GuestsPlan, ORDER_READS};
use super::stage::{Counted, Stage};
use super::way::{Transport, Way};
use crate::interrupt;
use crate::live::guests::look_for_qemu;
use anyhow::{Context, anyhow};
use futae_machine::Kernel;
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_terminal::table::{count, percent};
use serde::Serialize;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the same guests are used. Then there are new ones, with other operations.
const TURN: Duration = Duration::from_secs(1200);

/// Compare many pages that guests evict with the store
///
/// Two guests read their disks from end to end and write to them at random, repeatedly. Each page
/// that enters the cache with its data is compared with the store. Exits with 1 if one was wrong.
#[derive(clap::Args)]
pub struct Args {
    /// Pages to compare
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Linux in the guests: 6.1 or 6.12 [default: 6.1, or 6.12 where Debian has no other]
    #[arg(long, value_name = "VERSION", value_parser = kernel)]
    kernel: Option<Kernel>,
    /// How the guests reach their disks, and with that how pages come: by a channel disk, or read in the guests' memory
    #[arg(long, value_name = "HOW", default_value_t = Transport::VhostUser)]
    disk: Transport,
    /// The share of writes among the random operations, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.3)]
    writes: f64,
    /// The guests read and write a file on ext4 instead of the device
    #[arg(long)]
    files: bool,
    /// Size of each guest's disk image
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    image: String,
    /// Size of the lower cache
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    lower: String,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Pages {
    /// Pages that entered and were compared with the store.
    compared: u64,
    /// Those of them that were not what the store has.
    wrong: u64,
    /// Pages that came with their data.
    came: u64,
    /// Those of them that were refused: their hash was unknown or another, or they were just being written.
    refused: u64,
    /// Evicted pages that were told of without their data.
    notices: u64,
    /// Blocks that the guests wrote.
    written: u64,
    /// The guests' kernel.
    kernel: String,
    /// How they reached their disks.
    disk: Option<Transport>,
    /// How long it took.
    seconds: f64,
}

impl Pages {
    /// Adds what was counted since `from`, in a server's life.
    fn add(&mut self, from: &Counted, to: &Counted) -> anyhow::Result<()> {
        let both = from.engine.as_ref().zip(to.engine.as_ref());
        let (from, to) = both.context("there is no server to ask")?;
        let notices = to.counters.since(&from.counters).notices_in;
        let block_bytes = to.block_bytes.max(1);
        self.written += (to.bytes_written - from.bytes_written) / block_bytes;
        let (from, to) = (&from.demotions, &to.demotions);
        let refused = |of: &futae_engine::DemotionStatus| {
            of.demotions_unknown + of.demotions_different + of.demotions_busy
        };
        let came = |of: &futae_engine::DemotionStatus| {
            of.demotions_verified + of.demotions_resident + refused(of)
        };
        self.compared += to.demotions_compared - from.demotions_compared;
        self.wrong += to.demotions_wrong - from.demotions_wrong;
        self.came += came(to) - came(from);
        let now_refused = refused(to) - refused(from);
        self.refused += now_refused;
        // What is refused is taken for a notice.
        self.notices += notices.saturating_sub(now_refused);
        Ok(())
    }

    /// Whether as many were compared as were wanted, and none was wrong.
    fn verdict(&self, wanted: u64) -> Result<(), Failure> {
        let message = match (self.wrong, self.compared) {
            (0, compared) if compared >= wanted => return Ok(()),
            (0, compared) => format!("interrupted: {compared} of {wanted} pages were compared"),
            (wrong, _) => {
                format!("{wrong} pages entered the cache and were not what the store has")
            }
        };
        Err(anyhow!(message).into())
    }

    fn render(&self) -> String {
        let all = (self.came + self.notices).max(1);
        format!(
            "Linux {}: {} pages were compared with the store, {} of them wrong; {} of those evicted came with their data, \
             {} were refused; the guests wrote {} blocks; {:.0} s\n",
            self.kernel,
            count(self.compared),
            count(self.wrong),
            percent(Some(self.came as f64 / all as f64)),
            count(self.refused),
            count(self.written),
            self.seconds,
        )
    }
}

/// Runs and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut plan = GuestsPlan {
        ways: vec![Way::Exclusive],
        kernel: args.kernel,
        transport: args.disk,
        choice: "uniform".to_owned(),
        image_blocks: blocks("image", &args.image)?,
        lower_blocks: blocks("lower", &args.lower)? as u32,
        seed: args.seed,
        warmup: 0,
        reads: ORDER_READS,
        writes: args.writes,
        files: args.files,
        store_latency: Duration::ZERO,
    };
    plan.check()?;
    look_for_qemu("pages")?;
    let stopped = interrupt::watch()?;
    let (begin, mut pages) = (Instant::now(), Pages::default());
    pages.disk = Some(plan.transport);
    while pages.compared < args.count && pages.wrong == 0 && !stopped.load(Ordering::Relaxed) {
        let done = turn(&plan, args.count, &mut pages, &stopped);
        // What ends the guests with this program is no news.
        if !stopped.load(Ordering::Relaxed) {
            done?;
        }
        plan.seed = plan.seed.wrapping_add(1);
    }
    pages.seconds = begin.elapsed().as_secs_f64();
    let mut out = output();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&pages)?)?;
    } else {
        out.write_all(pages.render().as_bytes())?;
    }
    pages.verdict(args.count)
}

/// Uses two guests for a while.
fn turn(
    plan: &GuestsPlan,
    wanted: u64,
    pages: &mut Pages,
    stopped: &AtomicBool,
) -> Result<(), Failure> {
    let place = tempfile::Builder::new().prefix("futae-pages-").tempdir()?;
    let images = Images::make(place.path(), plan)?;
    let mut stage = Stage::set(plan, Way::Exclusive, &images, stopped, &mut |_| {})?;
    stage.start_agents(stopped)?;
    pages.kernel = stage.kernel();
    let (begin, mut at) = (Instant::now(), 0);
    let mut before = stage.count()?;
    while pages.compared < wanted && pages.wrong == 0 && begin.elapsed() < TURN {
        stage.read_through(plan)?;
        stage.read(plan, at..at + ORDER_READS, stopped, &|_| {})?;
        at += ORDER_READS;
        let after = stage.count()?;
        pages.add(&before, &after)?;
        before = after;
        eprint!("{}", pages.render());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_ended_early_has_not_passed() {
        let verdict = |compared, wrong| {
            let pages = Pages {
                compared,
                wrong,
                ..Pages::default()
            };
            pages.verdict(100).map_err(|why| why.to_string())
        };
        assert_eq!(verdict(100, 0), Ok(()));
        assert_eq!(verdict(130, 0), Ok(()));
        let early = verdict(40, 0).expect_err("60 are missing");
        assert_eq!(early, "interrupted: 40 of 100 pages were compared");
        let wrong = verdict(130, 2).expect_err("two are wrong");
        assert!(wrong.starts_with("2 pages entered"), "{wrong}");
    }
}
