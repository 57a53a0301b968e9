//! What it plays on: `futae serve` with a disk image for each guest, and the guests.

use super::{BLOCK_BYTES, GUESTS, GuestsPlan, MEMORY_MIB, ORDER_READS};
use crate::live::guests::{self, PORT, look_for_qemu, memory, order, start_agent};
use crate::live::process::{Background, futae};
use anyhow::{Context, anyhow, bail};
use futae_control::{EngineReport, ask};
use futae_engine::EngineStatus;
use futae_machine::{Disk, Guest};
use futae_terminal::failure::Failure;
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A guest's whole life, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(900);
/// How long agents may take to make themselves heard.
const AGENT_PATIENCE: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Who needs guests, in messages.
const WHO: &str = "--guests";

/// The server and the guests, running.
pub struct Stage {
    /// Dropped in this order: the guests before what is below them.
    guests: Vec<Guest>,
    _serve: Background,
    control: PathBuf,
    place: TempDir,
}

/// What was counted up to one moment.
pub struct Counted {
    /// The lower cache.
    pub lower: EngineStatus,
    /// When.
    pub at: Instant,
}

impl Stage {
    /// Starts the server, then the guests.
    pub fn set(
        plan: &GuestsPlan,
        stopped: &AtomicBool,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Self, Failure> {
        look_for_qemu(WHO)?;
        let place = tempfile::Builder::new().prefix("futae-demo-").tempdir()?;
        let control = place.path().join("control.sock");
        let (serve, ready) = serve(place.path(), &control, plan)?;
        let mut stage = Self {
            guests: Vec::new(),
            _serve: serve,
            control,
            place,
        };
        for number in 0..GUESTS as usize {
            if stopped.load(Ordering::Relaxed) {
                return Err(anyhow!("interrupted").into());
            }
            let uri = ready["exports"][number]["uris"][0].as_str();
            let uri = uri.context("the server does not tell its address")?;
            let feed = stage.place.path().join(format!("vm{number}.agent.sock"));
            let mut guest = boot(uri, &feed)?;
            // What the kernel reads ahead was asked for by nobody, and could not be simulated. It forgets
            // what it holds of a device that nobody has open.
            let hold = "echo 0 >/sys/block/vda/queue/read_ahead_kb; sleep 100000 </dev/vda >/dev/null 2>&1 &";
            order(&mut guest, hold)?;
            stage.guests.push(guest);
            progress((number + 1) as f64 / f64::from(GUESTS));
        }
        Ok(stage)
    }

    /// The guests' kernel.
    pub fn kernel(&self) -> String {
        let first = self.guests.first();
        first.map_or_else(String::new, |guest| guest.release().to_owned())
    }

    /// Has every guest read so many pages at random, all guests at the same time.
    pub fn read(
        &mut self,
        reads: u64,
        seed: u64,
        stopped: &AtomicBool,
        tell: &(dyn Fn(u64) + Sync),
    ) -> anyhow::Result<()> {
        let read = |guest: &mut Guest, mut seed: u64| {
            let mut left = reads;
            while left > 0 {
                if stopped.load(Ordering::Relaxed) {
                    bail!("interrupted");
                }
                let now = left.min(ORDER_READS);
                let load = format!("futae load /dev/vda --operations {now} --seed {seed}");
                order(guest, &format!("{load} >/dev/null"))?;
                (left, seed) = (left - now, seed.wrapping_add(u64::from(GUESTS)));
                tell(now);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let guests = self.guests.iter_mut().zip(0..);
            let readers: Vec<_> = guests
                .map(|(guest, number)| scope.spawn(move || read(guest, seed.wrapping_add(number))))
                .collect();
            let panicked = |_| Err(anyhow!("a reader panicked"));
            let mut ends = readers.into_iter();
            ends.try_for_each(|reader| reader.join().unwrap_or_else(panicked))
        })
    }

    /// Starts an agent in every guest, and waits until the server hears them.
    pub fn start_agents(&mut self, stopped: &AtomicBool) -> anyhow::Result<()> {
        for guest in &mut self.guests {
            start_agent(guest, "--notices")?;
        }
        let deadline = Instant::now() + AGENT_PATIENCE;
        while self.is_blind()? {
            if stopped.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            if Instant::now() > deadline {
                let logs = self.guests.iter_mut().map(|guest| {
                    let said = order(guest, "cat /tmp/agent.log").unwrap_or_default();
                    said.trim().to_owned()
                });
                let logs = logs.collect::<Vec<_>>().join("; ");
                bail!("no word of evictions from the agents in the guests; they say: {logs}");
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    fn status(&self) -> anyhow::Result<Value> {
        Ok(ask(&self.control, &json!({ "command": "status" }))?)
    }

    fn is_blind(&self) -> anyhow::Result<bool> {
        let status = self.status()?;
        let exports = status["exports"].as_array();
        let exports = exports.context("the server does not tell of its exports")?;
        Ok(exports.iter().any(|export| export["is_blind"] != false))
    }

    /// What the lower cache has counted.
    pub fn count(&self) -> anyhow::Result<Counted> {
        let engines = self.status()?["engines"].take();
        let engines: Vec<EngineReport> = serde_json::from_value(engines)?;
        let first = engines.into_iter().next();
        Ok(Counted {
            lower: first.context("the server has no cache")?.engine,
            at: Instant::now(),
        })
    }

    /// Blocks that a guest's page cache holds of its disk, on average.
    pub fn page_cache_blocks(&mut self) -> anyhow::Result<u32> {
        let mut bytes = 0;
        for guest in &mut self.guests {
            let said = order(guest, "cat /proc/meminfo")?;
            let held = memory(&said, "Buffers");
            bytes += held.context("a guest does not tell the size of its page cache")?;
        }
        let blocks = bytes / BLOCK_BYTES / u64::from(GUESTS);
        Ok(u32::try_from(blocks.max(1))?)
    }
}

/// `futae serve` with an empty image for each guest: what they hold is never looked at.
fn serve(place: &Path, control: &Path, plan: &GuestsPlan) -> anyhow::Result<(Background, Value)> {
    let mut serve = futae([
        "serve",
        "--json",
        "--policy",
        "exclusive",
        "--feed",
        "agent",
    ])?;
    serve.args(["--cache", &format!("{}blocks", plan.lower_blocks)]);
    let listen = place.join("futae.sock");
    serve
        .arg("--listen")
        .arg(format!("unix:{}", listen.display()));
    serve
        .arg("--control")
        .arg(format!("unix:{}", control.display()));
    for number in 0..GUESTS {
        let image = place.join(format!("vm{number}.img"));
        let made =
            File::create(&image).and_then(|file| file.set_len(plan.image_blocks * BLOCK_BYTES));
        made.with_context(|| {
            let image = image.display();
            format!("{image}: cannot make the disk image (TMPDIR chooses where)")
        })?;
        serve
            .arg("--export")
            .arg(format!("vm{number}={}", image.display()));
    }
    Background::start("futae serve", serve)
}

/// Boots a guest with a disk and a way to tell of its evictions.
fn boot(uri: &str, feed: &Path) -> anyhow::Result<Guest> {
    guests::boot(WHO, |plan| {
        let disk = Disk::Nbd {
            uri: uri.to_owned(),
        };
        plan.memory_mib(MEMORY_MIB)
            .limit(LIMIT)
            .disk(disk)
            .port(PORT, feed)
    })
}
