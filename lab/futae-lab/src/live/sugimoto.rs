//! Sugimoto and Yamaguchi 2015, live at a sixteenth of its sizes, U = 3 and L = 3: below an unmodified
//! guest, an LRU, and an exclusive cache that an agent tells what the guest's page cache evicts. Beside them
//! an exclusive cache that is handed the evicted data, by `futae mount` on this machine. All are asked
//! for the same reads.

use super::experiment::Experiment;
use super::guests::{PORT, boot, bound_page_cache, look_for_qemu, order, start_agent};
use super::process::{Background, futae, run_json, status};
use anyhow::{Context, anyhow, bail};
use futae_engine::EngineStatus;
use futae_machine::{Disk, Guest};
use futae_papers::{Check, Grid, Options, Progress, Reproduction, Source};
use futae_terminal::failure::Failure;
use futae_terminal::table::{count, percent};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The live experiments of this paper.
pub const EXPERIMENTS: &[Experiment] = &[Experiment {
    paper: "sugimoto-2015",
    figure: "live-notices",
    title: "below an unmodified guest: an LRU, and an exclusive cache told by an agent; beside demotion",
    run,
}];

const BLOCK: u64 = 4096;
/// Blocks of the disk, of the page cache and of the lower cache.
const DISK_BLOCKS: u64 = 640 << 8;
const UPPER_BLOCKS: u64 = 192 << 8;
const LOWER_BLOCKS: u64 = 192 << 8;
/// Reads before counting begins, and reads that are counted, in halves of the disk's blocks.
const WARMUP_HALVES: u64 = 3;
const COUNTED_HALVES: u64 = 1;
/// Enough for the page cache.
const MEMORY_MIB: u32 = 448;
/// A guest's whole life, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(1800);
/// Reads that are asked for at once. Between them it can be interrupted.
const ORDER_READS: u64 = 16_384;
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// How a lower cache learns what is evicted above it.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Not at all; it is an LRU.
    Lru,
    /// An agent tells.
    Notices,
    /// It is handed the data.
    Demotion,
}

/// What was counted.
struct Outcome {
    reads: u64,
    requests: u64,
    hits: u64,
    store_reads: u64,
    notice_reads: u64,
    /// Blocks that the page cache held in the end, or that the mount's cache has.
    upper_blocks: u64,
    seconds: f64,
}

impl Outcome {
    fn lower_hit(&self) -> f64 {
        self.hits as f64 / self.requests as f64
    }

    fn new(reads: u64, before: &EngineStatus, after: &EngineStatus, seconds: f64) -> Self {
        let lower = after.counters.since(&before.counters);
        Self {
            reads,
            requests: lower.requests,
            hits: lower.hits,
            store_reads: after.store_read_blocks - before.store_read_blocks,
            notice_reads: after.notice_reads - before.notice_reads,
            upper_blocks: 0,
            seconds,
        }
    }
}

fn run(options: &Options, progress: &Progress<'_>) -> Result<Reproduction, Failure> {
    look_for_qemu("live-notices")?;
    let place = tempfile::Builder::new().prefix("futae-paper-").tempdir()?;
    let image = place.path().join("disk.img");
    // What it holds is never looked at.
    File::create(&image)
        .and_then(|file| file.set_len(DISK_BLOCKS * BLOCK))
        .with_context(|| image.display().to_string())?;
    let halves = options.passes.unwrap_or(COUNTED_HALVES);
    let warmup = DISK_BLOCKS / 2 * (halves.saturating_mul(WARMUP_HALVES));
    let counted = DISK_BLOCKS / 2 * halves;
    let mut release = String::new();
    let mut below_guest = |way: Way, part: &dyn Fn(f64)| -> Result<Outcome, Failure> {
        let server = Server::start(place.path(), &image, way)?;
        let mut guest = guest(&server)?;
        guest.release().clone_into(&mut release);
        if way == Way::Notices {
            start_agent(&mut guest, "--notices")?;
            server.wait_for_agent(options)?;
        }
        let load = |guest: &mut Guest, reads: u64, seed: u64| {
            let enter = "echo $$ >/sys/fs/cgroup/load/cgroup.procs";
            let script = format!(
                "{enter}; futae load /dev/vda --operations {reads} --seed {seed} >/dev/null"
            );
            order(guest, &script).map(drop)
        };
        let mut outcome =
            server.measure([warmup, counted], options, part, &mut |reads, seed| {
                load(&mut guest, reads, seed)
            })?;
        let said = order(&mut guest, "grep '^file ' /sys/fs/cgroup/load/memory.stat")?;
        let bytes = said.split_whitespace().nth(1);
        let bytes: u64 = bytes.and_then(|word| word.parse().ok()).unwrap_or(0);
        outcome.upper_blocks = bytes / BLOCK;
        Ok(outcome)
    };
    let fixed = below_guest(Way::Lru, &|part| progress(part * 0.47))?;
    let told = below_guest(Way::Notices, &|part| progress(0.47 + part * 0.47))?;
    // The upper cache is then as large as the page cache was.
    let upper = told.upper_blocks.max(1);
    let handed = below_mount(
        place.path(),
        &image,
        upper,
        [warmup, counted],
        options,
        &|part| {
            progress(0.94 + part * 0.06);
        },
    )?;
    Ok(report(&release, warmup, counted, [&fixed, &told, &handed]))
}

fn report(release: &str, warmup: u64, counted: u64, all: [&Outcome; 3]) -> Reproduction {
    let [fixed, told, handed] = all;
    let mut result = Grid::new([
        "lower cache",
        "upper MiB",
        "upper hits",
        "lower hits",
        "store reads in total",
        "that are waited for",
        "for notices",
        "reads a second",
    ]);
    let names = [
        "lru",
        "exclusive, told by the agent",
        "exclusive, handed the data",
    ];
    for (name, one) in names.into_iter().zip(all) {
        let ratio = |hits: u64, of: u64| percent((of > 0).then(|| hits as f64 / of as f64));
        result.row([
            name.to_owned(),
            (one.upper_blocks >> 8).to_string(),
            ratio(one.reads.saturating_sub(one.requests), one.reads),
            ratio(one.hits, one.requests),
            count(one.store_reads),
            count(one.store_reads.saturating_sub(one.notice_reads)),
            count(one.notice_reads),
            format!("{:.0}", one.reads as f64 / one.seconds),
        ]);
    }
    let mib = |blocks: u64| format!("{} MiB", blocks >> 8);
    Reproduction {
        parameters: vec![
            (
                "reads",
                format!(
                    "uniform by 4 KiB from a disk of {}, {} counted after {} of warm-up, the same in each row",
                    mib(DISK_BLOCKS),
                    count(counted),
                    count(warmup)
                ),
            ),
            (
                "upper cache",
                format!(
                    "the page cache of Linux {release}, bounded to {} by a memory cgroup, nothing read ahead; \
                     in the last row futae mount with policy linux, as large as the page cache was",
                    mib(UPPER_BLOCKS)
                ),
            ),
            ("lower cache", format!("futae serve, {}", mib(LOWER_BLOCKS))),
        ],
        result,
        published: vec!["the proposed method hits most often in all cases, and LRU least often"],
        checks: vec![
            Check::within(
                Source::Model,
                "lower hit ratio, told to handed the data",
                told.lower_hit() / handed.lower_hit(),
                0.9,
                None,
            ),
            Check::within(
                Source::Model,
                "lower hit ratio, told to lru",
                told.lower_hit() / fixed.lower_hit(),
                2.0,
                None,
            ),
        ],
        ..Reproduction::default()
    }
}

/// `futae serve` over the image.
struct Server {
    /// Ended when this is dropped.
    _running: Background,
    uri: String,
    control: PathBuf,
    feed: PathBuf,
}

impl Server {
    fn start(place: &Path, image: &Path, way: Way) -> Result<Self, Failure> {
        let control = place.join("control.sock");
        let mut serve = futae(["serve", "--json", "--cache"])?;
        serve.arg(format!("{LOWER_BLOCKS}blocks"));
        let policy = if way == Way::Lru { "lru" } else { "exclusive" };
        serve.args(["--policy", policy]);
        if way == Way::Notices {
            serve.args(["--feed", "agent"]);
        }
        let unix = |path: &Path| format!("unix:{}", path.display());
        serve.args(["--listen", &unix(&place.join("nbd.sock"))]);
        serve.args(["--control", &unix(&control)]);
        serve.args(["--export", &format!("disk={}", image.display())]);
        let (running, ready) = Background::start("futae serve", serve)?;
        let uri = ready["exports"][0]["uris"][0].as_str();
        let uri = uri.context("the server does not tell its address")?;
        Ok(Self {
            _running: running,
            uri: uri.to_owned(),
            control,
            feed: place.join("disk.agent.sock"),
        })
    }

    fn wait_for_agent(&self, options: &Options) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status: Value = futae_control::ask(&self.control, &json!({ "command": "status" }))?;
            if status["exports"][0]["is_blind"] == false {
                return Ok(());
            }
            check_stopped(options)?;
            if Instant::now() > deadline {
                bail!("no word of evictions from the agent in the guest");
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Warms up and counts. `load` reads this many blocks, with such a seed.
    fn measure(
        &self,
        [warmup, counted]: [u64; 2],
        options: &Options,
        progress: &dyn Fn(f64),
        load: &mut dyn FnMut(u64, u64) -> anyhow::Result<()>,
    ) -> Result<Outcome, Failure> {
        let mut seed = options.seed.wrapping_mul(1_000_003);
        let mut done = 0;
        let mut read = |reads: u64| -> Result<(), Failure> {
            let mut left = reads;
            while left > 0 {
                check_stopped(options)?;
                let now = left.min(ORDER_READS);
                load(now, seed)?;
                seed = seed.wrapping_add(1);
                left -= now;
                done += now;
                progress(done as f64 / (warmup + counted) as f64);
            }
            Ok(())
        };
        read(warmup)?;
        let (before, begin) = (status(&self.control)?, Instant::now());
        read(counted)?;
        let seconds = begin.elapsed().as_secs_f64();
        let after = status(&self.control)?;
        Ok(Outcome::new(counted, &before, &after, seconds))
    }
}

fn check_stopped(options: &Options) -> anyhow::Result<()> {
    if options.stopped.load(Ordering::Relaxed) {
        return Err(anyhow!("interrupted; everything was taken down"));
    }
    Ok(())
}

/// A guest with the server's export as its disk, and a bounded page cache.
fn guest(server: &Server) -> Result<Guest, Failure> {
    let mut guest = boot("live-notices", |plan| {
        let disk = Disk::Nbd {
            uri: server.uri.clone(),
        };
        plan.memory_mib(MEMORY_MIB)
            .limit(LIMIT)
            .disk(disk)
            .port(PORT, &server.feed)
    })?;
    bound_page_cache(&mut guest, UPPER_BLOCKS * BLOCK)?;
    // It forgets what it holds of a device that nobody has open.
    let hold =
        "echo 0 >/sys/block/vda/queue/read_ahead_kb; sleep 100000 </dev/vda >/dev/null 2>&1 &";
    order(&mut guest, hold)?;
    Ok(guest)
}

fn below_mount(
    place: &Path,
    image: &Path,
    upper: u64,
    counts: [u64; 2],
    options: &Options,
    progress: &dyn Fn(f64),
) -> Result<Outcome, Failure> {
    let server = Server::start(place, image, Way::Demotion)?;
    let mountpoint = place.join("mnt");
    fs::create_dir(&mountpoint).with_context(|| mountpoint.display().to_string())?;
    let mut mount = futae([
        "mount",
        "--json",
        "--read-only",
        "--policy",
        "linux",
        &server.uri,
    ])?;
    mount.arg(&mountpoint);
    mount.args(["--join-reads", "0", "--cache", &format!("{upper}blocks")]);
    let (mount, ready) = Background::start("futae mount", mount)?;
    let file = ready["path"].as_str();
    let file = file.context("the mount does not tell its file")?.to_owned();
    let mut outcome = server.measure(counts, options, progress, &mut |reads, seed| {
        let mut load = futae(["load", "--json", "--direct", &file])?;
        load.args(["--operations", &reads.to_string()]);
        load.args(["--seed", &seed.to_string()]);
        run_json("futae load", load)
            .map(drop)
            .map_err(|failure| anyhow!("{failure}"))
    })?;
    drop(mount);
    outcome.upper_blocks = upper;
    Ok(outcome)
}
