//! The attacks.

use super::ground::{Ground, HOSTILE_BYTES};
use anyhow::Context;
use clap::ValueEnum;
use futae_agent_protocol::{Device, DeviceId, Frame, Hello, Message, Notices, Range, Reason};
use futae_nbd::{ClientWish, Command, RequestHeader, client};
use futae_policy::Prng;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// How long an attacker waits before it looks whether the attack is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Connections of the attacks that open many.
const CONNECTIONS: usize = 512;
/// Connections of the largest of them.
pub(super) const CROWD: usize = 2000;
/// Requests under way of the storms.
const DEPTH: u64 = 16;
const FILL_BYTES: u32 = 1 << 20;

/// An attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attack {
    /// Two requests at a time to prefetch 4 GiB.
    Cache,
    /// TRIM of 2 GiB, 16 under way.
    Trim,
    /// WRITE_ZEROES of 2 GiB, 16 under way.
    WriteZeroes,
    /// 512 connections that ask for 64 MiB each and receive nothing.
    Unread,
    /// 512 connections that say nothing, and connects in a loop.
    Idle,
    /// 2,000 connections: handshakes that are never finished, and the longest requests, whose replies nobody reads.
    Crowd,
    /// An agent whose frames name the whole volume 8,192 times.
    HostileAgent,
    /// A store that answers a READ with data without end.
    EndlessData,
    /// A store that answers BLOCK_STATUS with extents without end.
    EndlessExtents,
}

impl Attack {
    /// All, in the order of the table.
    pub const ALL: [Self; 9] = [
        Self::Cache,
        Self::Trim,
        Self::WriteZeroes,
        Self::Unread,
        Self::Idle,
        Self::Crowd,
        Self::HostileAgent,
        Self::EndlessData,
        Self::EndlessExtents,
    ];

    /// Whether it needs the store whose answers do not end.
    #[must_use]
    pub fn is_by_store(self) -> bool {
        matches!(self, Self::EndlessData | Self::EndlessExtents)
    }

    /// Its name in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Trim => "trim",
            Self::WriteZeroes => "write-zeroes",
            Self::Unread => "unread",
            Self::Idle => "idle",
            Self::Crowd => "crowd",
            Self::HostileAgent => "hostile-agent",
            Self::EndlessData => "endless-data",
            Self::EndlessExtents => "endless-extents",
        }
    }
}

/// A part of an attack; it ends when the attack is over.
type Part<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Attacks until standard input ends. In a process of its own, since a server may tell its peers
/// apart by their processes.
pub fn attack(attack: Attack, directory: &Path) {
    let ground = Ground::of(attack.name(), directory);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for part in parts(attack, &ground, &is_over) {
            scope.spawn(part);
        }
        // An end by an error is an end.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        is_over.store(true, Relaxed);
    });
}

/// What runs at the same time in an attack. That a server refuses or hangs up is no error.
fn parts<'a>(attack: Attack, ground: &'a Ground, is_over: &'a AtomicBool) -> Vec<Part<'a>> {
    let socket = ground.socket.as_path();
    let storm = |command: Command, length: u32, depth: u64| -> Part<'a> {
        Box::new(move || again(is_over, || storm(socket, command, length, depth, is_over)))
    };
    let endless = |command: Command| -> Part<'a> {
        Box::new(move || again(is_over, || ask_endless(socket, command, is_over)))
    };
    match attack {
        Attack::Cache => vec![storm(Command::Cache, u32::MAX - 4095, 2)],
        Attack::Trim => vec![storm(Command::Trim, 2 << 30, DEPTH)],
        Attack::WriteZeroes => vec![storm(Command::WriteZeroes, 2 << 30, DEPTH)],
        Attack::Unread => vec![Box::new(move || unread(socket, is_over))],
        Attack::Idle => {
            let knock = move || again(is_over, || knock(socket));
            vec![Box::new(move || idle(socket, is_over)), Box::new(knock)]
        }
        Attack::Crowd => vec![Box::new(move || crowd(socket, is_over))],
        Attack::HostileAgent => {
            vec![Box::new(move || {
                again(is_over, || agent(&ground.feed, is_over));
            })]
        }
        Attack::EndlessData => vec![endless(Command::Read)],
        Attack::EndlessExtents => vec![endless(Command::BlockStatus)],
    }
}

/// Does it until the attack is over; a failure is followed by another try.
fn again(is_over: &AtomicBool, mut attempt: impl FnMut() -> anyhow::Result<()>) {
    while !is_over.load(Relaxed) {
        if attempt().is_err() {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn enter(socket: &Path, export: &str, structured: bool) -> anyhow::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LOOK_INTERVAL * 20))?;
    stream.set_write_timeout(Some(LOOK_INTERVAL))?;
    let wish = ClientWish {
        structured,
        base_allocation: structured,
        ..ClientWish::default()
    };
    client::negotiate(&mut stream, export, &wish)?;
    stream.set_read_timeout(Some(LOOK_INTERVAL))?;
    Ok(stream)
}

/// Reads so many of the attackers' bytes that the cache is full of them.
pub fn fill(socket: &Path, bytes: u64) -> anyhow::Result<()> {
    let mut stream = enter(socket, "hostile", false).context("entering the attackers' export")?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut reply = vec![0; 16 + FILL_BYTES as usize];
    for offset in (0..bytes).step_by(FILL_BYTES as usize) {
        let request = RequestHeader::new(Command::Read, offset, offset, FILL_BYTES);
        stream.write_all(&request.encode())?;
        stream.read_exact(&mut reply).context("filling the cache")?;
    }
    Ok(())
}

/// Takes what has come, if anything has; an error if the server hung up.
fn drain(stream: &mut UnixStream, into: &mut [u8]) -> anyhow::Result<usize> {
    match stream.read(into) {
        Ok(0) => anyhow::bail!("the server hung up"),
        Ok(count) => Ok(count),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(0)
        }
        Err(error) => Err(error.into()),
    }
}

/// Keeps requests without data under way, behind what the cache was filled with.
fn storm(
    socket: &Path,
    command: Command,
    length: u32,
    depth: u64,
    is_over: &AtomicBool,
) -> anyhow::Result<()> {
    let mut stream = enter(socket, "hostile", false)?;
    let mut prng = Prng::new(7);
    let places = HOSTILE_BYTES / 2 / u64::from(length);
    let mut request = || {
        let offset = HOSTILE_BYTES / 2 + prng.below(places.max(1)) * u64::from(length);
        RequestHeader::new(command, 1, offset, length).encode()
    };
    let first: Vec<u8> = (0..depth).flat_map(|_| request()).collect();
    stream.write_all(&first)?;
    let (mut replies, mut left) = ([0; 16 * 64], 0);
    while !is_over.load(Relaxed) {
        left += drain(&mut stream, &mut replies)?;
        let more: Vec<u8> = (0..left / 16).flat_map(|_| request()).collect();
        left %= 16;
        stream.write_all(&more)?;
    }
    Ok(())
}

fn unread(socket: &Path, is_over: &AtomicBool) {
    let requests: Vec<u8> = (0..64u64)
        .flat_map(|at| RequestHeader::new(Command::Read, at, at << 20, 1 << 20).encode())
        .collect();
    let mut held = Vec::new();
    while held.len() < CONNECTIONS && !is_over.load(Relaxed) {
        if let Ok(mut stream) = enter(socket, "hostile", false) {
            // A server that does not read on has what it wants of this connection.
            let _ = stream.write_all(&requests);
            held.push(stream);
        }
    }
    wait(is_over);
}

fn idle(socket: &Path, is_over: &AtomicBool) {
    let mut held = Vec::new();
    for number in 0..CONNECTIONS {
        if is_over.load(Relaxed) {
            return;
        }
        held.extend(match number % 2 {
            0 => UnixStream::connect(socket).ok(),
            _ => enter(socket, "hostile", false).ok(),
        });
    }
    wait(is_over);
}

/// All that a client may be slow with, on as many connections as the server was told to take.
fn crowd(socket: &Path, is_over: &AtomicBool) {
    const LONGEST: u32 = 32 << 20;
    let header = |command| RequestHeader::new(command, 1, 0, LONGEST).encode();
    let mut held = Vec::new();
    for number in 0..CROWD {
        if is_over.load(Relaxed) {
            return;
        }
        let stream = match number % 4 {
            // Says that it is a client, and no more.
            0 => UnixStream::connect(socket).and_then(|mut stream| {
                stream.write_all(&[0, 0, 0, 3])?;
                Ok(stream)
            }),
            _ => enter(socket, "hostile", false).map_err(std::io::Error::other),
        };
        let Ok(mut stream) = stream else {
            continue;
        };
        let asked: Vec<u8> = match number % 4 {
            0 => Vec::new(),
            1 => (0..64).flat_map(|_| header(Command::Read)).collect(),
            2 => [&header(Command::Write)[..], &[0; 4096]].concat(),
            // Half of a request.
            _ => header(Command::Read)[..14].to_vec(),
        };
        // A server that does not read on has what it wants of this connection.
        let _ = stream.write_all(&asked);
        held.push(stream);
    }
    wait(is_over);
}

fn wait(is_over: &AtomicBool) {
    while !is_over.load(Relaxed) {
        thread::sleep(LOOK_INTERVAL);
    }
}

fn knock(socket: &Path) -> anyhow::Result<()> {
    drop(UnixStream::connect(socket)?);
    Ok(())
}

fn agent(feed: &PathBuf, is_over: &AtomicBool) -> anyhow::Result<()> {
    let mut stream = UnixStream::connect(feed)?;
    stream.set_write_timeout(Some(LOOK_INTERVAL))?;
    let id = DeviceId {
        major: 254,
        minor: 0,
    };
    let (name, sectors) = ("vda".to_owned(), HOSTILE_BYTES / 512);
    let device = Device {
        id,
        name,
        serial: String::new(),
        sectors,
    };
    let run = u64::from(std::process::id());
    let hello = Hello {
        run,
        devices: vec![device],
        ..Hello::default()
    };
    let mut message = Message::Hello(hello);
    for sequence in 0.. {
        let frame = Frame { sequence, message }.encode();
        let mut sent = 0;
        while sent < frame.len() {
            if is_over.load(Relaxed) {
                return Ok(());
            }
            match stream.write(&frame[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ranges = vec![
            Range {
                start: 0,
                count: sectors
            };
            Notices::MAX_RANGES
        ];
        message = Message::Notices(Notices {
            device: id,
            reason: Reason::Reclaim,
            ranges,
        });
    }
    Ok(())
}

/// Asks the export whose store never ends its answers.
fn ask_endless(socket: &Path, command: Command, is_over: &AtomicBool) -> anyhow::Result<()> {
    let mut stream = enter(socket, "endless", true)?;
    let mut replies = vec![0; 64 << 10];
    for number in 0u64.. {
        let request = RequestHeader::new(command, number, (number % 1024) << 20, 1 << 20);
        stream.write_all(&request.encode())?;
        while drain(&mut stream, &mut replies)? == 0 {
            if is_over.load(Relaxed) {
                return Ok(());
            }
        }
    }
    Ok(())
}
