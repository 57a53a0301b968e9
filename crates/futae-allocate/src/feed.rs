//! What agents report: a thread a guest reads, whoever is asked takes what has come.
//!
//! An agent is not believed: a frame is taken once and in order, what comes in a period is bounded,
//! and what is more waits in the agent's own buffers.

use crate::config::AgentConfig;
use futae_balance::{Activity, OnlineCurve};
use futae_control::{SocketError, UnixSocket};
use futae_report::{Frame, Message, References, Replay, Sample, Stream};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes that are read of an agent in a period.
const BYTES_MAX: usize = 32 << 20;
/// Sampled reads that are kept in a period.
const REFERENCES_MAX: usize = 1 << 21;
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// What the socket is called in a directory.
const SOCKET_NAME: &str = "agent.sock";
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// What has come since it was last taken.
#[derive(Debug, Default)]
pub struct Inbox {
    heard: Option<Heard>,
    references: Vec<References>,
    pages: usize,
    bytes: usize,
    replay: Replay,
    last: Option<Instant>,
    refused: u64,
}

/// Sums over the samples of a period.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    hits: u64,
    misses: u64,
    cache: u64,
    full_us: u64,
    period_us: u64,
    has_pressure: bool,
}

impl Inbox {
    /// Takes a frame, if it is the next of its run.
    pub fn frame(&mut self, frame: Frame) {
        if !self.replay.is_new(&frame) {
            self.refused += 1;
            return;
        }
        match frame.message {
            Message::Sample(sample) => self.sample(&sample),
            Message::References(references) => {
                self.pages += references.pages.len();
                if self.pages <= REFERENCES_MAX {
                    self.references.push(references);
                }
            }
            Message::Hello(_) | Message::Notices(_) => {}
        }
    }

    fn sample(&mut self, sample: &Sample) {
        let heard = self.heard.get_or_insert_default();
        let counters = &sample.total;
        // An agent that sees no reads still sees what was missed before.
        let blind = counters.accesses == 0;
        let misses = if blind {
            counters.refaults
        } else {
            counters.misses
        };
        heard.hits = heard.hits.saturating_add(counters.hits());
        heard.misses = heard.misses.saturating_add(misses);
        let memory = &sample.memory;
        heard.cache = memory
            .free
            .saturating_add(memory.cached)
            .saturating_add(memory.buffers);
        heard.period_us = heard.period_us.saturating_add(sample.period_us);
        if let Some(pressure) = sample.pressure {
            heard.has_pressure = true;
            heard.full_us = heard.full_us.saturating_add(pressure.full_us);
        }
        self.last = Some(Instant::now());
    }

    /// What the guest did since this was last asked; none if nothing came. Sampled reads go to
    /// `curve`.
    pub fn take(&mut self, curve: Option<&mut OnlineCurve>) -> Option<Activity> {
        if let Some(curve) = curve {
            for references in &self.references {
                let threshold = references.threshold.min(References::ALL);
                curve.given_share(f64::from(threshold) / f64::from(References::ALL));
                references.pages.iter().for_each(|&page| curve.access(page));
            }
        }
        self.references.clear();
        (self.pages, self.bytes) = (0, 0);
        let heard = self.heard.take()?;
        let share = heard.full_us as f64 / (heard.period_us.max(1)) as f64;
        Some(Activity {
            hits: heard.hits,
            misses: heard.misses,
            cache: (heard.cache > 0).then_some(heard.cache),
            pressure: heard.has_pressure.then_some(share.min(1.0)),
        })
    }

    /// Frames that were not taken: played again, or by nobody.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// The ear for one agent. Dropping it ends its thread.
#[derive(Debug)]
pub struct Feed {
    inbox: Arc<Mutex<Inbox>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// A socket that cannot be made. One that nobody listens at is tried for ever.
    pub fn start(agent: &AgentConfig) -> Result<Self, SocketError> {
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let (AgentConfig::Connect(path) | AgentConfig::Listen(path)) = agent;
        let path = path.clone();
        let listener = match agent {
            AgentConfig::Connect(_) => None,
            AgentConfig::Listen(path) => {
                // What an allocator left that was killed is in nobody's way.
                Some(UnixSocket::bind(path, SOCKET_NAME)?)
            }
        };
        let (agent, its_inbox, its_stop) = (agent.clone(), Arc::clone(&inbox), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("agent".to_owned());
        let thread = thread
            .spawn(move || hear(&agent, listener.as_ref(), &its_inbox, &its_stop))
            .map_err(|source| SocketError::Listen {
                path: path.clone(),
                source,
            })?;
        Ok(Self {
            inbox,
            stop,
            thread: Some(thread),
        })
    }

    /// What the guest did since this was last asked.
    pub fn take(&self, curve: Option<&mut OnlineCurve>) -> Option<Activity> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.take(curve)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn hear(
    agent: &AgentConfig,
    listener: Option<&UnixSocket>,
    inbox: &Mutex<Inbox>,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::Relaxed) {
        let stream = match (agent, listener) {
            (AgentConfig::Connect(path), _) => UnixStream::connect(path).ok(),
            (_, Some(listener)) => listener.accept().ok(),
            _ => None,
        };
        match stream {
            // Whatever ends a connection, there may be another.
            Some(stream) => drop(listen(stream, inbox, stop)),
            None => std::thread::sleep(LOOK_INTERVAL),
        }
        if listener.is_none() {
            pause(RETRY_INTERVAL, stop);
        }
    }
}

fn pause(time: Duration, stop: &AtomicBool) {
    let end = Instant::now() + time;
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn listen(mut stream: UnixStream, inbox: &Mutex<Inbox>, stop: &AtomicBool) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LOOK_INTERVAL))?;
    let mut frames = Stream::default();
    let mut part = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        let is_full = || inbox.lock().unwrap_or_else(PoisonError::into_inner).bytes > BYTES_MAX;
        if is_full() {
            std::thread::sleep(LOOK_INTERVAL);
            continue;
        }
        let got = match stream.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        frames.feed(&part[..got]);
        let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.bytes += got;
        while let Some(frame) = frames.next_frame() {
            inbox.frame(frame);
        }
    }
    Ok(())
}
