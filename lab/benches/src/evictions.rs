//! What the agent costs a machine whose page cache evicts at full speed.
//!
//! A load reads a disk at random in a memory cgroup much smaller than the disk, so that nearly each read evicts a page.
//! It does so in turns without an agent, above one that tells what was evicted, and above one that demotes the data,
//! and each turn is compared with that without an agent in the same round, by its reads a second and by the processor
//! time that the load and the agent took for a read. The latter says the same on a busy machine. The host is in this process, and takes
//! whatever the agent has at once: what a real one does for it is done on other processors than the guest's.

use crate::process::{Nursery, Running, cpu_seconds};
use anyhow::{Context, bail, ensure};
use futae_agent_protocol::in_place::{RingAnswer, Verdict};
use futae_agent_protocol::{Frame, Message, Stream};
use futae_policy::Prng;
use rustix::fs::Advice;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde::Serialize;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// Sectors of a page, in which notices count.
const SECTORS_A_PAGE: u64 = 8;
const LOOK: Duration = Duration::from_millis(5);
/// How often the host says that it has read everything.
const ANSWER_INTERVAL: Duration = Duration::from_millis(1);
/// Where devices of zram are made.
const DISKS: &str = "/sys/class/zram-control";
const CGROUPS: &str = "/sys/fs/cgroup";

/// What runs beside the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Turn {
    /// Nothing.
    None,
    /// An agent that tells which pages were evicted.
    Notices,
    /// One that demotes them with their data, whatever that takes.
    Data,
    /// The same within its usual budget.
    DataWithinBudget,
    /// One that demotes them and counts what is read as well.
    DataAndReads,
}

impl Turn {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Notices,
        Self::Data,
        Self::DataWithinBudget,
        Self::DataAndReads,
    ];

    /// In the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "no agent",
            Self::Notices => "--notices",
            Self::Data => "--evictions --evictions-cpu 100",
            Self::DataWithinBudget => "--evictions",
            Self::DataAndReads => "--evictions ... 100 --count reads",
        }
    }

    /// The agent's options.
    fn options(self) -> Option<&'static [&'static str]> {
        match self {
            Self::None => None,
            Self::Notices => Some(&["--notices"]),
            Self::Data => Some(&["--evictions", "--evictions-cpu", "100"]),
            Self::DataWithinBudget => Some(&["--evictions"]),
            Self::DataAndReads => {
                Some(&["--evictions", "--evictions-cpu", "100", "--count", "reads"])
            }
        }
    }

    fn has_data(self) -> bool {
        matches!(
            self,
            Self::Data | Self::DataWithinBudget | Self::DataAndReads
        )
    }
}

/// What is measured.
pub struct Settings {
    /// The program under test.
    pub futae: PathBuf,
    /// What is read: a file or a block device.
    pub disk: PathBuf,
    /// Memory of the load, page cache and all.
    pub memory_bytes: u64,
    /// How long a turn takes.
    pub duration: Duration,
    /// How many rounds, each with all turns.
    pub rounds: usize,
    /// The processor on which both the load and the agent run, as in a guest with one; none: wherever they like.
    pub processor: Option<u32>,
}

/// What came of one kind of turn.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which.
    pub turn: Turn,
    /// Reads a second, the median of all rounds.
    pub reads_per_second: f64,
    /// The median over rounds of reads a second to those without an agent in the same round, less one.
    pub cost: f64,
    /// The first and the third quartile of the same.
    pub cost_quartiles: [f64; 2],
    /// Processor time of a read in microseconds, of the load and the agent together, the median of all rounds.
    pub cpu_us: f64,
    /// The median over rounds of what a read took more of it than without an agent in the same round, in microseconds.
    pub extra_cpu_us: f64,
    /// Of the reads, those whose evicted pages came without their data, as far as that is known.
    pub told_without_data: Option<f64>,
}

/// A compressed block device in memory, full of what cannot be compressed. It answers at once, on the reader's own
/// processor: no disk is faster, and nothing of a read depends on what else the machine does.
pub struct MemoryDisk {
    /// The device.
    pub path: PathBuf,
    number: u32,
}

impl MemoryDisk {
    /// Makes one of this many bytes.
    ///
    /// # Errors
    ///
    /// If this machine cannot, or this user may not.
    pub fn new(bytes: u64) -> anyhow::Result<Self> {
        let add = Path::new(DISKS).join("hot_add");
        let number = fs::read_to_string(&add);
        let number = number.with_context(|| format!("{}: needs root and zram", add.display()))?;
        let number = number.trim().parse()?;
        let disk = Self {
            path: format!("/dev/zram{number}").into(),
            number,
        };
        fs::write(
            format!("/sys/block/zram{number}/disksize"),
            bytes.to_string(),
        )?;
        let file = fs::OpenOptions::new().write(true).open(&disk.path)?;
        let mut words = Prng::new(bytes);
        for _ in 0..bytes >> 20 {
            let piece = (0..1 << 17).flat_map(|_| words.bits().to_le_bytes());
            (&file).write_all(&piece.collect::<Vec<u8>>())?;
        }
        file.sync_all()?;
        // What is cached now belongs to nobody's memory.
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(disk)
    }
}

impl Drop for MemoryDisk {
    fn drop(&mut self) {
        let number = self.number;
        let _ = fs::write(format!("/sys/block/zram{number}/reset"), "1");
        let _ = fs::write(Path::new(DISKS).join("hot_remove"), number.to_string());
    }
}

/// A memory cgroup, which is gone at the end.
struct Group(PathBuf);

impl Group {
    fn new(bytes: u64) -> anyhow::Result<Self> {
        let root = Path::new(CGROUPS);
        let is_unified = root.join("cgroup.controllers").exists();
        let (parent, limit) = match is_unified {
            true => (root.to_owned(), "memory.max"),
            false => (root.join("memory"), "memory.limit_in_bytes"),
        };
        if is_unified {
            // It may be given to groups already.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        }
        let group = Self(parent.join(format!("futae-bench-{}", std::process::id())));
        let told = || format!("{}: needs root, and control groups", group.0.display());
        fs::create_dir(&group.0).with_context(told)?;
        fs::write(group.0.join(limit), bytes.to_string()).with_context(told)?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// What hears the agent.
struct Host {
    socket: PathBuf,
    heard: Arc<Heard>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Heard {
    is_over: AtomicBool,
    /// Whether the agent is at work, and whether it has offered its ring.
    greeted: AtomicBool,
    offered: AtomicBool,
    /// Sectors in notices.
    sectors: AtomicU64,
}

impl Host {
    fn listen(socket: &Path) -> anyhow::Result<Self> {
        let _ = fs::remove_file(socket);
        let listener = UnixListener::bind(socket)?;
        listener.set_nonblocking(true)?;
        let heard = Arc::new(Heard::default());
        let hears = Arc::clone(&heard);
        let thread = std::thread::spawn(move || hears.hear(&listener));
        Ok(Self {
            socket: socket.to_owned(),
            heard,
            thread: Some(thread),
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.heard.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it broke off for shows in what it did not hear.
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.socket);
    }
}

impl Heard {
    fn hear(&self, listener: &UnixListener) {
        let mut agent: Option<UnixStream> = None;
        let (mut stream, mut offer, mut sequence) = (Stream::default(), None, 0);
        let mut buffer = vec![0; 64 << 10];
        while !self.is_over.load(Relaxed) {
            let caller = listener.accept().ok().map(|(caller, _)| caller);
            agent = caller
                .filter(|caller| caller.set_nonblocking(true).is_ok())
                .or(agent);
            if let Some(agent) = &mut agent {
                while let Ok(count @ 1..) = agent.read(&mut buffer) {
                    stream.feed(&buffer[..count]);
                }
                while let Some(frame) = stream.next_frame() {
                    match frame.message {
                        Message::Hello(_) => self.greeted.store(true, Relaxed),
                        Message::Ring(ring) => {
                            offer = Some(ring.offer);
                            self.offered.store(true, Relaxed);
                        }
                        Message::Notices(notices) => {
                            let sectors = notices.ranges.iter().map(|range| range.count).sum();
                            self.sectors.fetch_add(sectors, Relaxed);
                        }
                        _ => {}
                    }
                }
                if let Some(offer) = offer {
                    let message = Message::RingAnswer(RingAnswer {
                        offer,
                        verdict: Verdict::Reads,
                        taken: u64::MAX,
                        why: String::new(),
                    });
                    // What the agent does not take now it takes the next time.
                    let _ = agent.write(&Frame { sequence, message }.encode());
                    sequence += 1;
                }
            }
            std::thread::sleep(ANSWER_INTERVAL);
        }
    }
}

/// Runs all rounds; a row for each kind of turn.
///
/// # Errors
///
/// If a cgroup, the agent or the load cannot be had, or the agent does not work.
pub fn run(settings: &Settings, nursery: &Nursery, place: &Path) -> anyhow::Result<Vec<Row>> {
    let group = Group::new(settings.memory_bytes)?;
    // Fills the page cache.
    measure(settings, nursery, place, &group, Turn::None)?;
    let mut taken = vec![Vec::new(); Turn::ALL.len()];
    for round in 0..settings.rounds {
        for step in 0..Turn::ALL.len() {
            let at = (round + step) % Turn::ALL.len();
            let one = measure(settings, nursery, place, &group, Turn::ALL[at])?;
            taken[at].push(one);
        }
    }
    let row = |(at, turn): (usize, Turn)| {
        let of = |what: fn(&Taken) -> f64| taken[at].iter().map(what).collect::<Vec<_>>();
        // Without an agent comes first.
        let pairs = || taken[at].iter().zip(&taken[0]);
        let costs: Vec<f64> = pairs()
            .map(|(one, alone)| one.speed / alone.speed - 1.0)
            .collect();
        let extra: Vec<f64> = pairs()
            .map(|(one, alone)| one.cpu_us - alone.cpu_us)
            .collect();
        Row {
            turn,
            reads_per_second: quantile(&of(|one| one.speed), 0.5),
            cost: quantile(&costs, 0.5),
            cost_quartiles: [quantile(&costs, 0.25), quantile(&costs, 0.75)],
            cpu_us: quantile(&of(|one| one.cpu_us), 0.5),
            extra_cpu_us: quantile(&extra, 0.5),
            told_without_data: turn
                .has_data()
                .then(|| quantile(&of(|one| one.untold), 0.5)),
        }
    };
    Ok(Turn::ALL.into_iter().enumerate().map(row).collect())
}

/// What came of one turn.
#[derive(Clone)]
struct Taken {
    /// Reads a second.
    speed: f64,
    /// Processor time of a read.
    cpu_us: f64,
    /// Of the reads, those whose evicted page was told of without its data.
    untold: f64,
}

/// Has one turn.
fn measure(
    settings: &Settings,
    nursery: &Nursery,
    place: &Path,
    group: &Group,
    turn: Turn,
) -> anyhow::Result<Taken> {
    let host = Host::listen(&place.join("agent.sock"))?;
    let agent = turn.options().map(|options| {
        let mut agent = on_processor(settings, &settings.futae);
        agent.arg("agent").arg("--report");
        agent
            .arg(format!("unix:{}", host.socket.display()))
            .args(options);
        let is_ready = || {
            let is_there = if turn.has_data() {
                &host.heard.offered
            } else {
                &host.heard.greeted
            };
            is_there.load(Relaxed)
        };
        nursery.start_until(&mut agent, &place.join("agent.log"), &is_ready)
    });
    let agent = agent.transpose()?;
    let before = host.heard.sectors.load(Relaxed);
    let spent = |agent: &Option<Running>| agent.as_ref().map_or(0.0, Running::cpu_seconds);
    let spent_before = spent(&agent);
    let (operations, speed, seconds) = load(settings, group, before)?;
    let seconds = seconds + spent(&agent) - spent_before;
    drop(agent);
    let pages = (host.heard.sectors.load(Relaxed) - before) / SECTORS_A_PAGE;
    Ok(Taken {
        speed,
        cpu_us: seconds * 1e6 / operations,
        untold: pages as f64 / operations,
    })
}

/// A program on the processor of the measurement.
fn on_processor(settings: &Settings, program: &Path) -> Command {
    match settings.processor {
        None => Command::new(program),
        Some(number) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &number.to_string()]).arg(program);
            command
        }
    }
}

/// Reads in the group for as long as a turn takes: how often, how often a second, and the processor seconds of all of it.
fn load(settings: &Settings, group: &Group, seed: u64) -> anyhow::Result<(f64, f64, f64)> {
    let futae = on_processor(settings, &settings.futae);
    let mut load = Command::new("sh");
    let enter = format!(
        "echo $$ >'{}/cgroup.procs' && exec \"$@\"",
        group.0.display()
    );
    load.args(["-c", &enter, "sh"])
        .arg(futae.get_program())
        .args(futae.get_args());
    load.arg("load").arg(&settings.disk).arg("--json");
    load.args(["--seed", &(seed + 1).to_string()]);
    load.args(["--seconds", &settings.duration.as_secs_f64().to_string()]);
    load.stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = load.spawn().context("sh")?;
    // Its times can be read until it is waited for.
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let id = id.context("a process without a number")?;
    waitid(
        WaitId::Pid(id),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    )?;
    let seconds = cpu_seconds(&format!("/proc/{}/stat", child.id()));
    let said = child.wait_with_output()?;
    if !said.status.success() {
        bail!(
            "futae load: {}",
            String::from_utf8_lossy(&said.stderr).trim()
        );
    }
    let report: serde_json::Value = serde_json::from_slice(&said.stdout)?;
    let number = |key: &str| report[key].as_f64().with_context(|| format!("no {key}"));
    let seconds = seconds.context("reading the processor time of futae load")?;
    let operations = number("operations")?;
    ensure!(operations > 0.0, "futae load has read nothing");
    Ok((operations, number("operations_per_second")?, seconds))
}

/// The value below which such a share of all lies; 0 of none.
fn quantile(of: &[f64], share: f64) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_values() {
        let values = [5.0, 1.0, 3.0, 2.0, 4.0];
        assert_eq!(quantile(&values, 0.5), 3.0);
        assert_eq!(quantile(&values, 0.25), 2.0);
        assert_eq!(quantile(&values, 1.0), 5.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
