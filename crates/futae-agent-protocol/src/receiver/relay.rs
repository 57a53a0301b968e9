//! Samples passed on to another receiver, so that one agent with one connection serves two programs.

use super::sinks::SampleSink;
use super::stop::Stop;
use super::{RETRY_INTERVAL, dial};
use crate::{Frame, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Bytes that wait for a reader who is slow; what comes beyond is dropped.
const QUEUE_BYTES_MAX: usize = 1 << 20;

/// How passing on goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayStatus {
    /// The unix socket.
    pub path: PathBuf,
    /// Whether somebody listens there.
    pub connected: bool,
    /// Frames that were put in line for it.
    pub frames: u64,
    /// Frames that were dropped: nobody listened, or what was waiting was 1 MiB.
    pub dropped_frames: u64,
}

#[derive(Debug, Default)]
struct Line {
    status: RelayStatus,
    /// What the agent said last of itself: a new reader hears it first, or it would believe nothing.
    hello: Option<Vec<u8>>,
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Line {
    fn put(&mut self, bytes: Vec<u8>) {
        self.bytes += bytes.len();
        self.waiting.push_back(bytes);
        self.status.frames += 1;
    }
}

/// Passes frames on to the receiver at a unix socket, to which it connects again for as long as it runs. It never makes the thread that
/// gives it frames wait: what nobody reads is dropped.
///
/// Frames keep the agent's run and numbers, so that the other receiver refuses what it has had before, whichever
/// way it comes.
#[derive(Debug)]
pub struct Relay {
    line: Arc<Mutex<Line>>,
    wake: Stop,
    thread: JoinHandle<()>,
}

/// The end of a [`Relay`] that takes frames.
struct Intake {
    line: Arc<Mutex<Line>>,
    wake: Stop,
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relay {
    /// Begins to connect. It ends when `stop` is told. The second part takes the frames.
    ///
    /// # Errors
    ///
    /// If there can be no thread or no descriptor.
    pub fn start(path: &Path, stop: &Stop) -> io::Result<(Self, impl SampleSink + 'static)> {
        let line = Line {
            status: RelayStatus {
                path: path.to_owned(),
                ..RelayStatus::default()
            },
            ..Line::default()
        };
        let (line, wake) = (Arc::new(Mutex::new(line)), Stop::new()?);
        let mut sender = Sender {
            line: Arc::clone(&line),
            wake: wake.clone(),
            stop: stop.clone(),
            path: path.to_owned(),
        };
        let thread = std::thread::Builder::new().name("relay".into());
        let thread = thread.spawn(move || sender.run())?;
        let intake = Intake {
            line: Arc::clone(&line),
            wake: wake.clone(),
        };
        Ok((Self { line, wake, thread }, intake))
    }

    /// How it goes.
    #[must_use]
    pub fn status(&self) -> RelayStatus {
        lock(&self.line).status.clone()
    }

    /// Waits for its end; its stop has been told.
    pub fn join(self) {
        self.wake.tell();
        // A thread that broke off has nothing more to say.
        let _ = self.thread.join();
    }
}

impl SampleSink for Intake {
    fn take(&mut self, frame: &Frame) {
        let bytes = frame.encode();
        let mut line = lock(&self.line);
        if matches!(frame.message, Message::Hello(_)) {
            line.hello = Some(bytes.clone());
        }
        if !line.status.connected || line.bytes + bytes.len() > QUEUE_BYTES_MAX {
            line.status.dropped_frames += 1;
            return;
        }
        line.put(bytes);
        drop(line);
        self.wake.tell();
    }
}

struct Sender {
    line: Arc<Mutex<Line>>,
    wake: Stop,
    stop: Stop,
    path: PathBuf,
}

impl Sender {
    fn run(&mut self) {
        loop {
            if let Ok(connection) = dial(&self.path) {
                {
                    let mut line = lock(&self.line);
                    line.status.connected = true;
                    if let Some(hello) = line.hello.clone() {
                        line.put(hello);
                    }
                }
                // Whatever ends a connection, there may be another.
                let _ = self.send_all(&connection);
                let mut line = lock(&self.line);
                line.status.connected = false;
                line.status.dropped_frames += line.waiting.len() as u64;
                line.waiting.clear();
                line.bytes = 0;
            }
            if self.stop.within(RETRY_INTERVAL) {
                return;
            }
        }
    }

    /// Sends what comes, until the connection or everything ends.
    fn send_all(&mut self, connection: &OwnedFd) -> Result<(), Errno> {
        let (mut frame, mut sent) = (Vec::new(), 0);
        loop {
            if sent == frame.len() {
                self.wake.clear();
                let mut line = lock(&self.line);
                // Those that wait count until they have left.
                line.bytes -= frame.len();
                frame = line.waiting.pop_front().unwrap_or_default();
                sent = 0;
            }
            let has_more = sent < frame.len();
            if has_more {
                match send(connection, &frame[sent..], SendFlags::NOSIGNAL) {
                    Ok(count) => {
                        sent += count;
                        continue;
                    }
                    Err(Errno::INTR) => continue,
                    Err(Errno::AGAIN) => {}
                    Err(error) => return Err(error),
                }
            }
            let wants = if has_more {
                PollFlags::OUT
            } else {
                PollFlags::IN
            };
            let mut fds = vec![
                PollFd::new(&self.stop, PollFlags::IN),
                PollFd::new(connection, wants),
            ];
            if !has_more {
                fds.push(PollFd::new(&self.wake, PollFlags::IN));
            }
            let forever: Option<&Timespec> = None;
            match poll(&mut fds, forever) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
            let ended = PollFlags::HUP | PollFlags::ERR;
            let seen = fds[1].revents();
            // A receiver says nothing; what can be read is its end.
            if seen.intersects(ended) || (!has_more && seen.contains(PollFlags::IN)) {
                return Ok(());
            }
        }
    }
}
