//! What one client, agent or store can do to another client of the same server: attacks in turn,
//! and beside each how long an honest client waits for its hits, and what memory the server takes.

mod attacks;
mod endless;
mod ground;
mod victim;

pub use attacks::{Attack, attack};

use crate::process::{Nursery, Running};
use anyhow::Context;
use ground::{Ground, HOSTILE_BYTES};
use serde::Serialize;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use victim::{Seen, Victim};

/// Milliseconds that 99 of 100 hits may take at most.
pub const P99_MS_MAX: f64 = 10.0;
/// What is left of the honest client's rate at least, where the attackers take no processor time to speak of.
pub const RATE_KEPT_MIN: f64 = 0.8;
/// Milliseconds that no hit may exceed.
pub const WORST_MS_MAX: f64 = 100.0;
/// Bytes of the honest client's volume, all of which it reads again and again.
const HONEST_BYTES: u64 = 16 << 20;
/// How often the server's memory is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// A server that takes so much more than it may is killed: this machine has other uses.
const OVERSHOOT_BYTES_MAX: u64 = 1 << 30;

/// How to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program `futae`.
    pub futae: PathBuf,
    /// The cache of the server, in bytes.
    pub cache_bytes: u64,
    /// Memory for all buffers of the server, in bytes; passed on if it has the option.
    pub buffer_bytes: u64,
    /// How long each attack lasts, and the quiet time before it.
    pub duration: Duration,
}

/// What came of one attack.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The attack.
    pub attack: &'static str,
    /// The honest client's latency at the 99th percentile, in milliseconds.
    pub p99_ms: f64,
    /// Its longest, in milliseconds.
    pub worst_ms: f64,
    /// The same before the attack.
    pub quiet_p99_ms: f64,
    /// Its replies a second as a part of those before the attack.
    pub rate_kept: f64,
    /// Clients that came during the attack and were served, and those that came.
    pub newcomers_served: u64,
    /// See `newcomers_served`.
    pub newcomers: u64,
    /// The server's memory at its peak, in bytes.
    pub peak_bytes: u64,
    /// What it may be: the cache, a tenth of it, and the buffers.
    pub peak_bytes_max: u64,
    /// Whether the server was killed for its memory.
    pub killed: bool,
    /// What is beyond the limits, in words; empty if nothing is.
    pub beyond: Vec<String>,
}

/// Attackers in a process of their own, until this is dropped.
struct Attackers(Child);

impl Attackers {
    fn start(attack: Attack, directory: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["--attack", attack.name(), "--attack-in"])
            .arg(directory);
        let child = command.stdin(Stdio::piped()).spawn();
        child.map(Self).context("starting the attackers")
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        // They end with their input; those that do not are ended.
        drop(self.0.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(3);
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(LOOK_INTERVAL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Settings {
    fn peak_bytes_max(&self) -> u64 {
        self.cache_bytes + self.cache_bytes / 10 + self.buffer_bytes
    }

    /// Whether the program has the option for the memory of its buffers.
    fn has_buffer_option(&self) -> bool {
        let help = Command::new(&self.futae).args(["serve", "--help"]).output();
        help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("--buffer-memory"))
    }

    fn command(&self, ground: &Ground, directory: &Path, attack: Attack) -> Command {
        let mut command = Command::new(&self.futae);
        command.args(["serve", "--policy", "lru", "--cache"]);
        command.arg(self.cache_bytes.to_string());
        if self.has_buffer_option() {
            command
                .arg("--buffer-memory")
                .arg(self.buffer_bytes.to_string());
        }
        for name in ["honest", "hostile"] {
            let image = directory.join(name);
            command
                .arg("--export")
                .arg(format!("{name}={}", image.display()));
        }
        if attack == Attack::Crowd {
            let most = (attacks::CROWD + 48).to_string();
            command.args(["--connections-max", &most]);
        }
        if attack.is_by_store() {
            let uri = format!(
                "endless=nbd+unix:///endless?socket={}",
                ground.store.display()
            );
            command.arg("--export").arg(uri);
        }
        if attack == Attack::HostileAgent {
            let feed = format!("hostile=unix:{}", ground.feed.display());
            command.arg("--feed").arg(feed);
        }
        command
            .arg("--listen")
            .arg(format!("unix:{}", ground.socket.display()));
        command
    }
}

/// Runs one attack against a server of its own in `directory`.
pub fn run(
    settings: &Settings,
    nursery: &Nursery,
    directory: &Path,
    attack: Attack,
) -> anyhow::Result<Row> {
    for (name, bytes) in [("honest", HONEST_BYTES), ("hostile", HOSTILE_BYTES)] {
        let image = File::create(directory.join(name)).context("making an image")?;
        image.set_len(bytes).context("making an image")?;
    }
    let ground = Ground::of(attack.name(), directory);
    let log = directory.join(format!("{}.log", attack.name()));
    if attack.is_by_store() {
        endless::serve(&ground.store).context("starting the endless store")?;
    }
    let mut command = settings.command(&ground, directory, attack);
    let server = nursery.start(&mut command, &ground.socket, &log)?;
    // The attackers' blocks fill the cache, but for the honest client's, which come last.
    attacks::fill(
        &ground.socket,
        settings.cache_bytes.saturating_sub(2 * HONEST_BYTES),
    )?;
    let mut victim = Victim::enter(&ground.socket, HONEST_BYTES)?;
    victim.read_all()?;
    let quiet = victim.watch(settings.duration);
    let watcher = Watcher::default();
    let attackers = Attackers::start(attack, directory)?;
    let (seen, newcomers) = thread::scope(|scope| {
        scope.spawn(|| watcher.watch(&server, settings.peak_bytes_max() + OVERSHOOT_BYTES_MAX));
        let newcomers = scope.spawn(|| victim::newcomers(&ground.socket, &watcher.is_over));
        // Until the attack has got going.
        thread::sleep(settings.duration / 10);
        let seen = victim.watch(settings.duration);
        watcher.is_over.store(true, Relaxed);
        let newcomers = newcomers.join();
        (
            seen,
            newcomers.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    drop(attackers);
    let peak_bytes = watcher
        .peak
        .load(Relaxed)
        .max(memory(&server, "VmHWM:").unwrap_or(0));
    let mut row = Row {
        attack: attack.name(),
        p99_ms: seen.p99_ms(),
        worst_ms: seen.worst_ms,
        quiet_p99_ms: quiet.p99_ms(),
        rate_kept: seen.per_second() / quiet.per_second().max(1.0),
        newcomers_served: newcomers.served,
        newcomers: newcomers.came,
        peak_bytes,
        peak_bytes_max: settings.peak_bytes_max(),
        killed: watcher.has_killed.load(Relaxed),
        beyond: Vec::new(),
    };
    row.beyond = beyond(&row, &seen);
    Ok(row)
}

fn beyond(row: &Row, seen: &Seen) -> Vec<String> {
    let mut beyond = Vec::new();
    if row.p99_ms > P99_MS_MAX {
        beyond.push(format!("p99 {:.1} ms > {P99_MS_MAX} ms", row.p99_ms));
    }
    if row.worst_ms > WORST_MS_MAX {
        beyond.push(format!("worst {:.0} ms > {WORST_MS_MAX} ms", row.worst_ms));
    }
    if row.peak_bytes > row.peak_bytes_max {
        let mib = |bytes: u64| bytes >> 20;
        let (peak, most) = (mib(row.peak_bytes), mib(row.peak_bytes_max));
        beyond.push(format!("memory {peak} MiB > {most} MiB"));
    }
    if row.attack == Attack::Crowd.name() && row.rate_kept < RATE_KEPT_MIN {
        beyond.push(format!("rate {:.2} < {RATE_KEPT_MIN}", row.rate_kept));
    }
    if row.killed {
        beyond.push("killed for its memory".to_owned());
    } else if let Some(problem) = &seen.problem {
        beyond.push(format!("the honest client: {problem}"));
    }
    beyond
}

/// Looks at the memory of a server, and kills one that takes far too much.
#[derive(Default)]
struct Watcher {
    is_over: AtomicBool,
    has_killed: AtomicBool,
    peak: AtomicU64,
}

impl Watcher {
    fn watch(&self, server: &Running, most: u64) {
        while !self.is_over.load(Relaxed) {
            let now = memory(server, "VmRSS:").unwrap_or(0);
            self.peak.fetch_max(now, Relaxed);
            if now > most {
                self.has_killed.store(true, Relaxed);
                server.kill();
                return;
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }
}

/// A field of a process's status, in bytes.
fn memory(server: &Running, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
