//! A reader in a control group of its own, and what tells the allocator of it.
//!
//! The reader is `futae load`, one file after the other, through the page cache. How much it read,
//! and how much of that came from the disk, the kernel tells (`/proc/PID/io`); which pages is drawn
//! again from its seed, as many as it has read.

use super::aoki_race::Race;
use super::aoki_systems::Ends;
use super::cgroup::Group;
use super::experiment::choice;
use super::process::futae;
use anyhow::{Context, bail};
use futae_agent_protocol::{
    Counters, Frame, Hello, Memory, Message, PAGE_BYTES, References, Sample,
};
use futae_trace::Generator;
use futae_units::Size;
use rustix::fs::Advice;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const REPORT_INTERVAL: Duration = Duration::from_millis(100);
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// Of all pages, this many are in the sample.
const SAMPLED: u32 = References::ALL / 4;

/// What one reader does.
pub struct Script {
    /// The files and their sizes in bytes, in the order in which they are read.
    pub files: [(PathBuf, u64); 2],
    /// How pages are chosen, as `futae load` knows it.
    pub choice: &'static str,
    /// Page reads of each.
    pub reads: u64,
    /// Of the first file; the second has the next.
    pub seed: u64,
}

/// Reads one file after the other, and tells each client of `listener` until all have read. Returns when
/// each file was done with.
pub fn read(
    script: &Script,
    group: &Group,
    listener: &UnixListener,
    race: &Race,
) -> anyhow::Result<Ends> {
    let (mut stream, _) = listener.accept()?;
    let mut sequence = 0;
    let mut tell = |message: Message| -> anyhow::Result<()> {
        let frame = Frame { sequence, message };
        sequence += 1;
        Ok(stream_all(&mut stream, &frame)?)
    };
    tell(Message::Hello(Hello::default()))?;
    let mut ends = [0.0; 2];
    let mut all = Io::default();
    for (number, (path, bytes)) in script.files.iter().enumerate() {
        let seed = script.seed + number as u64;
        let mut load = futae([
            "load",
            "--json",
            "--choice",
            script.choice,
            "--operation",
            "4KiB",
        ])?;
        load.args(["--file-size", &Size::Bytes(*bytes).to_string()]);
        load.args(["--seed", &seed.to_string()]);
        load.args(["--operations", &script.reads.to_string()])
            .arg(path);
        let mut load = group.run(&load);
        load.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = Running(load.spawn().context("a reader cannot be started")?);
        let draws = choice(script.choice, Size::Bytes(*bytes))?;
        let mut draws = draws.generator(PAGE_BYTES, seed)?;
        let (mut before, mut told) = (Io::default(), Instant::now());
        loop {
            std::thread::sleep(LOOK_INTERVAL);
            let ended = has_ended(&child.0)?;
            let now = Io::read(child.0.id()).unwrap_or(before);
            let sum = all.and(now);
            let waits = race.has_to_wait(sum.hits(), sum.misses);
            if !ended && !waits && told.elapsed() < REPORT_INTERVAL {
                continue;
            }
            race.go_on()?;
            if waits && !ended {
                child.signal(Signal::STOP)?;
            }
            let now = Io::read(child.0.id()).unwrap_or(now);
            let period = told.elapsed();
            told = Instant::now();
            let (reads, misses) = (
                now.reads - before.reads,
                now.misses.saturating_sub(before.misses),
            );
            before = now;
            let references = references(&mut draws, number as u64, reads);
            tell(Message::References(references))?;
            let cache = group.memory().and_then(|memory| memory.achieved().ok());
            let cache = cache.and_then(|memory| group.cache(memory));
            tell(Message::Sample(Sample {
                period_us: u64::try_from(period.as_micros()).unwrap_or(u64::MAX),
                total: Counters {
                    accesses: reads,
                    misses: misses.min(reads),
                    ..Counters::default()
                },
                memory: Memory {
                    cached: cache.unwrap_or(0),
                    ..Memory::default()
                },
                ..Sample::default()
            }))?;
            if waits {
                race.wait()?;
                if !ended {
                    child.signal(Signal::CONT)?;
                }
            }
            if ended {
                all = all.and(now);
                let status = child.0.wait()?;
                if !status.success() {
                    bail!("the reader of {} ended with {status}", path.display());
                }
                break;
            }
        }
        ends[number] = race.elapsed(all.hits(), all.misses);
    }
    race.has_read();
    // An agent has no end: that a guest reads nothing is told, too.
    while race.is_on() {
        race.go_on()?;
        tell(Message::Sample(Sample::default()))?;
        std::thread::sleep(REPORT_INTERVAL);
    }
    Ok(ends)
}

fn stream_all(stream: &mut UnixStream, frame: &Frame) -> std::io::Result<()> {
    stream.write_all(&frame.encode())
}

/// The next `reads` pages of a file, as a sample by hash.
fn references(draws: &mut Generator, file: u64, reads: u64) -> References {
    let mut pages = Vec::new();
    for _ in 0..reads {
        let page = draws.next_block().0 | file << 40;
        let hash = mixed(page);
        if hash as u32 % References::ALL < SAMPLED && pages.len() < References::MAX_PAGES {
            pages.push(hash);
        }
    }
    References {
        threshold: SAMPLED,
        pages,
    }
}

/// The finaliser of splitmix64.
fn mixed(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A child that does not outlive its parent.
struct Running(Child);

impl Running {
    /// Stops it or lets it go on.
    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(pid(&self.0)?, signal)?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a child has ended. Until it is waited for, the kernel still tells what it has read.
fn has_ended(child: &Child) -> anyhow::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(pid(child)?), options)?.is_some())
}

fn pid(child: &Child) -> anyhow::Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.context("a process without a number")
}

/// What a process has read, in pages.
#[derive(Clone, Copy, Default)]
struct Io {
    reads: u64,
    misses: u64,
}

impl Io {
    fn hits(self) -> u64 {
        self.reads.saturating_sub(self.misses)
    }

    fn and(self, more: Self) -> Self {
        Self {
            reads: self.reads + more.reads,
            misses: self.misses + more.misses,
        }
    }

    fn read(process: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
        let bytes = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<u64>().ok()
        };
        Some(Self {
            reads: bytes("rchar:")? / PAGE_BYTES,
            misses: bytes("read_bytes:")? / PAGE_BYTES,
        })
    }
}

/// Has the page cache forget a file, and whatever is below know it: every run begins alike.
pub fn forget(path: &PathBuf) -> anyhow::Result<()> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    std::io::copy(&mut file, &mut std::io::sink())?;
    Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
}
