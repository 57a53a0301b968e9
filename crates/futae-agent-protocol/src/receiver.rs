//! The one receiver of agents' frames, for every program that listens to agents.
//!
//! A [`Receiver`] is a thread with one agent. It accepts or makes the connection, reads frames and hands
//! them to a [`Dispatch`], which believes each frame once, checks what it says, and fans it out: evicted
//! ranges of each disk to a [`NoticeSink`] (a cache), where the guest's memory holds evicted pages to a [`RingSink`],
//! everything else to [`SampleSink`]s (an allocator, or a [`Relay`] that passes them on to one).
//!
//! | file | holds |
//! | --- | --- |
//! | `dispatch` | what is believed, what is refused, who gets it |
//! | `disks` | which of a guest's disks is which volume |
//! | `sinks` | the three kinds of sinks |
//! | `answers` | what is said to the agent |
//! | `limits` | how fast one agent may speak |
//! | `relay` | samples passed on to another receiver |
//! | `status` | what is known of the agent |
//! | `stop` | the end, for threads that wait |

mod answers;
mod disks;
mod dispatch;
mod limits;
mod relay;
mod sinks;
mod status;
mod stop;

pub use answers::Answers;
pub use disks::serial_of;
pub use dispatch::Dispatch;
pub use limits::Allowance;
pub use relay::{Relay, RelayStatus};
pub use sinks::{NoticeSink, RingSink, SampleSink};
pub use status::{AgentStatus, AgentVolume};
pub use stop::Stop;

use crate::Stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, connect, socket_with,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const READ_BYTES: usize = 64 << 10;
/// From one attempt to connect to the next.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// How long a failure to accept is left alone.
const PAUSE: Duration = Duration::from_millis(1);

/// Where the agent is met.
pub enum Endpoint {
    /// A socket that listens and does not block. A new connection takes the place of the one before,
    /// which may be dead.
    Listen(Box<dyn AsFd + Send>),
    /// A unix socket that somebody else listens on, tried for ever.
    Connect(PathBuf),
}

/// The thread that receives from one agent.
#[derive(Debug)]
pub struct Receiver {
    status: status::Shared,
    allowance: Arc<Allowance>,
    thread: JoinHandle<()>,
}

impl Receiver {
    /// Begins to receive. It ends when `stop` is told.
    ///
    /// # Errors
    ///
    /// If there can be no thread.
    pub fn start(
        endpoint: Endpoint,
        dispatch: Dispatch,
        allowance: Allowance,
        stop: &Stop,
    ) -> io::Result<Self> {
        let (status, allowance) = (dispatch.shared(), Arc::new(allowance));
        let mut reader = Reader {
            dispatch,
            stream: Stream::default(),
            allowance: Arc::clone(&allowance),
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new().name("agent".into());
        let thread = thread.spawn(move || reader.run(&endpoint))?;
        Ok(Self {
            status,
            allowance,
            thread,
        })
    }

    /// What is known of the agent.
    #[must_use]
    pub fn status(&self) -> AgentStatus {
        self.status.now()
    }

    /// Lets the agent speak again, of an allowance that lasts until it is renewed.
    pub fn renew(&self) {
        self.allowance.renew();
    }

    /// Waits for its end; its stop has been told.
    pub fn join(self) {
        // A thread that broke off has nothing more to say.
        let _ = self.thread.join();
    }
}

struct Reader {
    dispatch: Dispatch,
    stream: Stream,
    allowance: Arc<Allowance>,
    stop: Stop,
}

impl Reader {
    fn run(&mut self, endpoint: &Endpoint) {
        let mut connection: Option<OwnedFd> = None;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let listener = match endpoint {
                Endpoint::Listen(socket) => Some(socket.as_fd()),
                Endpoint::Connect(path) => {
                    if connection.is_none() {
                        connection = dial(path).ok();
                        let answers = self.dispatch.answers();
                        answers.connected(connection.as_ref().map(AsFd::as_fd));
                    }
                    None
                }
            };
            // An agent that has said enough is not read; what it has to say waits in its own buffers.
            let wait = self.allowance.wait();
            let speaker = connection.as_ref().filter(|_| wait.is_none());
            let retry = (listener.is_none() && connection.is_none()).then_some(RETRY_INTERVAL);
            let timeout = wait
                .or(retry)
                .and_then(|time| Timespec::try_from(time).ok());
            let mut fds = vec![PollFd::new(&self.stop, PollFlags::IN)];
            fds.extend(speaker.map(|fd| PollFd::new(fd, PollFlags::IN)));
            fds.extend(listener.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            if poll(&mut fds, timeout.as_ref()).is_err() {
                continue;
            }
            let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            let (stopping, speaking) = (is_ready(0), speaker.is_some() && is_ready(1));
            let calling = listener.is_some() && is_ready(fds.len() - 1);
            if stopping {
                return;
            }
            if let Some(speaker) = connection.as_ref().filter(|_| speaking) {
                match rustix::io::read(speaker, &mut buffer) {
                    Ok(count) if count > 0 => self.hear(&buffer[..count]),
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Ok(_) | Err(_) => {
                        connection = None;
                        self.hung_up();
                        if listener.is_none() && self.stop.within(RETRY_INTERVAL) {
                            return;
                        }
                    }
                }
            }
            if let Some(socket) = listener.filter(|_| calling) {
                if let Ok(caller) = accept_with(socket, SocketFlags::CLOEXEC) {
                    self.hung_up();
                    self.dispatch.answers().connected(Some(caller.as_fd()));
                    connection = Some(caller);
                } else {
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    fn hung_up(&mut self) {
        self.stream.restart();
        self.dispatch.hung_up();
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.allowance.take(bytes.len());
        self.stream.feed(bytes);
        while let Some(frame) = self.stream.next_frame() {
            if self.stop.has_come() {
                return;
            }
            self.dispatch.frame(frame, &self.stop);
        }
        self.dispatch.note_health(self.stream.health());
    }
}

/// A connection to a unix socket that does not block; an error if it is not there at once.
fn dial(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}
