//! The honest client, and others that come during an attack.

use crate::histogram::Histogram;
use anyhow::{Context, ensure};
use futae_nbd::constants::SIMPLE_REPLY_BYTES;
use futae_nbd::{ClientWish, Command, Reply, RequestHeader, client, parse_reply};
use futae_policy::Prng;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const READ_BYTES: u32 = 4096;
/// A server that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two newcomers.
const NEWCOMER_INTERVAL: Duration = Duration::from_millis(50);

/// What the honest client has seen in a time.
pub struct Seen {
    latency: Histogram,
    /// The longest, in milliseconds.
    pub worst_ms: f64,
    seconds: f64,
    /// Why it stopped before the time was over, if it did.
    pub problem: Option<String>,
}

impl Seen {
    /// Milliseconds that 99 of 100 reads took at most.
    pub fn p99_ms(&self) -> f64 {
        // The top of its bucket may be above the longest.
        (self.latency.quantile_ns(0.99) as f64 / 1e6).min(self.worst_ms)
    }

    /// Reads a second.
    pub fn per_second(&self) -> f64 {
        self.latency.total() as f64 / self.seconds.max(1e-9)
    }
}

/// A client that reads blocks which the cache has, one at a time.
pub struct Victim {
    stream: UnixStream,
    prng: Prng,
    blocks: u64,
    data: Vec<u8>,
}

impl Victim {
    /// Enters the honest export.
    pub fn enter(socket: &Path, size_bytes: u64) -> anyhow::Result<Self> {
        let mut stream = UnixStream::connect(socket).context("connecting")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        client::negotiate(&mut stream, "honest", &ClientWish::default())?;
        let data = vec![0; SIMPLE_REPLY_BYTES + READ_BYTES as usize];
        let blocks = size_bytes / u64::from(READ_BYTES);
        Ok(Self {
            stream,
            prng: Prng::new(1),
            blocks,
            data,
        })
    }

    fn read(&mut self, block: u64) -> anyhow::Result<()> {
        let offset = block * u64::from(READ_BYTES);
        let request = RequestHeader::new(Command::Read, block, offset, READ_BYTES);
        self.stream.write_all(&request.encode()).context("asking")?;
        let (head, data) = self.data.split_at_mut(SIMPLE_REPLY_BYTES);
        self.stream
            .read_exact(head)
            .context("waiting for a reply")?;
        let reply = parse_reply(head)?.map(|(reply, _)| reply);
        let is_ours = reply
            == Some(Reply::Simple {
                cookie: block,
                error: None,
            });
        ensure!(is_ours, "a read was answered with {reply:?}");
        self.stream.read_exact(data).context("waiting for data")?;
        ensure!(
            data.iter().all(|&byte| byte == 0),
            "bytes that are not this volume's"
        );
        Ok(())
    }

    /// Reads every block once, so that the cache has it.
    pub fn read_all(&mut self) -> anyhow::Result<()> {
        (0..self.blocks).try_for_each(|block| self.read(block))
    }

    /// Reads for a time, and remembers how long each read took.
    pub fn watch(&mut self, duration: Duration) -> Seen {
        let mut seen = Seen {
            latency: Histogram::default(),
            worst_ms: 0.0,
            seconds: 0.0,
            problem: None,
        };
        let start = Instant::now();
        while start.elapsed() < duration {
            let asked = Instant::now();
            let block = self.prng.below(self.blocks);
            let outcome = self.read(block);
            let took = asked.elapsed();
            seen.latency.add(took.as_nanos() as u64);
            seen.worst_ms = seen.worst_ms.max(took.as_secs_f64() * 1e3);
            if let Err(error) = outcome {
                seen.problem = Some(format!("{error:#}"));
                break;
            }
        }
        seen.seconds = start.elapsed().as_secs_f64();
        seen
    }
}

/// Clients that came, and how many of them were served.
#[derive(Default)]
pub struct Newcomers {
    pub came: u64,
    pub served: u64,
}

/// One honest client after the other: each connects, reads a block and leaves.
pub fn newcomers(socket: &Path, is_over: &AtomicBool) -> Newcomers {
    let mut newcomers = Newcomers::default();
    while !is_over.load(Relaxed) {
        newcomers.came += 1;
        let served = Victim::enter(socket, u64::from(READ_BYTES)).and_then(|mut one| one.read(0));
        newcomers.served += u64::from(served.is_ok());
        thread::sleep(NEWCOMER_INTERVAL);
    }
    newcomers
}
