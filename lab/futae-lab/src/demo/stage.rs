//! What it plays on: the lower cache, and guests that read their disks above it.

use super::images::{FILE, Images};
use super::lower::Lower;
use super::plan::{BLOCK_BYTES, GUESTS, GuestsPlan, ORDER_READS};
use super::way::Way;
use crate::live::guests::{self, PORT, memory, order, start_agent};
use crate::live::process::read_bytes;
use anyhow::{Context, anyhow, bail};
use futae_engine::EngineStatus;
use futae_machine::Guest;
use futae_sim::run::guest_seed;
use futae_terminal::failure::Failure;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A guest's whole life, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(1800);
/// How long agents may take to report.
const AGENT_PATIENCE: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes of a sector in the kernel's statistics.
const SECTOR_BYTES: u64 = 512;
/// Who needs guests, in messages.
pub const WHO: &str = "--guests";

/// Where a guest has the file system of its disk.
const MOUNT: &str = "/mnt/disk";

/// The lower cache and the guests, running.
pub struct Stage {
    /// Dropped in this order: the guests before what is below them.
    guests: Vec<Guest>,
    /// Bytes of their page caches that are not of what is read, by guest.
    others: Vec<u64>,
    lower: Lower,
    _place: TempDir,
}

/// What was counted up to one moment.
pub struct Counted {
    /// The server, if there is one.
    pub engine: Option<EngineStatus>,
    /// Blocks that the guests' kernels have read from their disks.
    pub disk_reads: u64,
    /// Blocks that QEMU, or a store that delays, has read from the images.
    pub image_reads: u64,
    /// When.
    pub at: Instant,
}

impl Stage {
    /// Starts the lower cache, then the guests.
    pub fn set(
        plan: &GuestsPlan,
        way: Way,
        images: &Images,
        stopped: &AtomicBool,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Self, Failure> {
        let place = tempfile::Builder::new().prefix("futae-demo-").tempdir()?;
        let lower = Lower::start(plan, way, place.path(), images)?;
        let (mut guests, mut others) = (Vec::new(), Vec::new());
        for number in 0..GUESTS as usize {
            if stopped.load(Ordering::Relaxed) {
                return Err(anyhow!("interrupted").into());
            }
            let mut guest = boot(plan, way, &lower, number, images, place.path())?;
            lower.add_guest(guest.id())?;
            // The simulation has no read-ahead. The kernel drops what it holds of a device that
            // nobody has open.
            let hold = match plan.files {
                true => format!("mkdir -p {MOUNT} && mount -t ext4 -o noatime /dev/vda {MOUNT}"),
                false => "sleep 100000 </dev/vda >/dev/null 2>&1 &".to_owned(),
            };
            let alone = "echo 0 >/sys/block/vda/queue/read_ahead_kb";
            order(&mut guest, &format!("{alone}; {hold}"))?;
            // A guest that runs from its memory has much there that is called cached.
            others.push(match plan.files {
                true => page_cache(&mut guest, "Cached")?,
                false => 0,
            });
            guests.push(guest);
            progress((number + 1) as f64 / f64::from(GUESTS));
        }
        Ok(Self {
            guests,
            others,
            lower,
            _place: place,
        })
    }

    /// The guests' kernel.
    pub fn kernel(&self) -> String {
        let first = self.guests.first();
        first.map_or_else(String::new, |guest| guest.release().to_owned())
    }

    /// Has every guest do the operations of its sequence in a range, all guests at the same time.
    pub fn read(
        &mut self,
        plan: &GuestsPlan,
        operations: Range<u64>,
        stopped: &AtomicBool,
        tell: &(dyn Fn(u64) + Sync),
    ) -> anyhow::Result<()> {
        let read = |guest: &mut Guest, seed: u64| {
            let mut at = operations.start;
            while at < operations.end {
                if stopped.load(Ordering::Relaxed) {
                    bail!("interrupted");
                }
                let now = (operations.end - at).min(ORDER_READS);
                let (target, choice, writes) = (target(plan), &plan.choice, plan.writes);
                order(
                    guest,
                    &format!(
                        "futae load {target} --choice '{choice}' --writes {writes} --seed {seed} \
                         --skip {at} --operations {now} >/dev/null"
                    ),
                )?;
                at += now;
                tell(now);
            }
            Ok(())
        };
        // All ways, and their simulations, read the same blocks in the same order.
        let seed = |guest| guest_seed(plan.seed, guest);
        self.in_every_guest(&|guest, number| read(guest, seed(number)))
    }

    /// Has every guest read all that it works on, from end to end.
    pub fn read_through(&mut self, plan: &GuestsPlan) -> anyhow::Result<()> {
        let ahead = "echo 128 >/sys/block/vda/queue/read_ahead_kb";
        let script = format!("{ahead}; cat {} >/dev/null", target(plan));
        self.in_every_guest(&|guest, _| order(guest, &script).map(drop))
    }

    /// Does something in every guest at the same time.
    fn in_every_guest(
        &mut self,
        act: &(dyn Fn(&mut Guest, u64) -> anyhow::Result<()> + Sync),
    ) -> anyhow::Result<()> {
        std::thread::scope(|scope| {
            let guests = self.guests.iter_mut().zip(0..);
            let readers: Vec<_> = guests
                .map(|(guest, number)| scope.spawn(move || act(guest, number)))
                .collect();
            let panicked = |_| Err(anyhow!("a reader panicked"));
            let mut ends = readers.into_iter();
            ends.try_for_each(|reader| reader.join().unwrap_or_else(panicked))
        })
    }

    /// Starts an agent in every guest, and waits until the server hears them.
    pub fn start_agents(&mut self, stopped: &AtomicBool) -> anyhow::Result<()> {
        for guest in &mut self.guests {
            // Without hardware virtualisation a copy takes many times what it takes with it.
            start_agent(guest, "--evictions --evictions-cpu 100")?;
        }
        let deadline = Instant::now() + AGENT_PATIENCE;
        while self.lower.is_blind()? {
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

    /// What has been counted so far.
    pub fn count(&mut self) -> anyhow::Result<Counted> {
        let (mut disk_reads, mut image_reads) = (0, 0);
        for guest in &mut self.guests {
            let said = order(guest, "cat /sys/block/vda/stat")?;
            let sectors = said.split_whitespace().nth(2);
            let sectors: Option<u64> = sectors.and_then(|word| word.parse().ok());
            let sectors = sectors.context("a guest does not count what it reads")?;
            disk_reads += sectors * SECTOR_BYTES / BLOCK_BYTES;
            image_reads += read_bytes(guest.id())? as u64 / BLOCK_BYTES;
        }
        Ok(Counted {
            engine: self.lower.engine()?,
            disk_reads,
            image_reads: self.lower.delayed_reads()?.unwrap_or(image_reads),
            at: Instant::now(),
        })
    }

    /// Blocks that a guest's page cache holds of its disk, on average.
    pub fn page_cache_blocks(&mut self, plan: &GuestsPlan) -> anyhow::Result<u32> {
        let mut bytes = 0;
        for (guest, others) in self.guests.iter_mut().zip(&self.others) {
            // Pages of devices, and those of files.
            let name = if plan.files { "Cached" } else { "Buffers" };
            bytes += page_cache(guest, name)?.saturating_sub(*others);
        }
        let blocks = bytes / BLOCK_BYTES / u64::from(GUESTS);
        Ok(u32::try_from(blocks.max(1))?)
    }
}

/// What a guest reads.
fn target(plan: &GuestsPlan) -> String {
    match plan.files {
        true => format!("{MOUNT}/{FILE}"),
        false => "/dev/vda".to_owned(),
    }
}

/// Bytes of a part of a guest's page cache.
fn page_cache(guest: &mut Guest, name: &str) -> anyhow::Result<u64> {
    let said = order(guest, "cat /proc/meminfo")?;
    memory(&said, name).context("a guest does not tell the size of its page cache")
}

/// Boots a guest with its disk, and a port for its agent.
fn boot(
    plan: &GuestsPlan,
    way: Way,
    lower: &Lower,
    number: usize,
    images: &Images,
    place: &Path,
) -> anyhow::Result<Guest> {
    let port = place.join(format!("vm{number}.agent.sock"));
    guests::boot_kernel(WHO, plan.kernel, |guest| {
        let guest = guest
            .memory_mib(plan.memory_mib(way))
            .limit(LIMIT)
            .disk(lower.disk(number, images));
        match way {
            // What the host's page cache may take is bounded with all else that QEMU takes later.
            Way::Writeback => guest.preallocated(),
            Way::Exclusive => {
                let channel = lower.channel(number).into_iter();
                channel
                    .fold(guest, |guest, disk| guest.disk(disk))
                    .port(PORT, &port)
            }
            Way::Direct | Way::Memory | Way::Lru => guest,
        }
    })
}
