//! Taking orders: a socket, and a thread for each connection.

use crate::accept::accept_until;
use crate::{Access, Orders, SocketError, UnixSocket};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::net::SocketFlags;
use serde_json::json;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// What the socket is called in a directory.
const NAME_IN_DIRECTORY: &str = "control.sock";
/// Longest line, in bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Connections at a time; more are told so and closed.
const CONTROLLERS_MAX: usize = 32;
/// Idle time after which a connection is closed. Also the time limit of a write.
const IDLE: Duration = Duration::from_secs(300);

struct Shared {
    orders: Orders,
    controllers: AtomicUsize,
    /// Becomes readable, for good, when no more orders are taken.
    stop: OwnedFd,
}

/// A socket at which orders are taken. Dropped, it takes no more, and its file is removed; an
/// order that is being obeyed is still answered.
pub struct Control {
    shared: Arc<Shared>,
    socket_path: std::path::PathBuf,
    acceptor: Option<JoinHandle<()>>,
}

impl Control {
    /// Takes orders at `path`, or at `control.sock` in it if it is a directory.
    ///
    /// # Errors
    ///
    /// [`SocketError`] if nothing can listen there; nothing stays behind.
    pub fn start(path: &Path, orders: Orders) -> Result<Self, SocketError> {
        Self::start_for(path, &Access::default(), orders)
    }

    /// The same for those to whom `access` is given; of [`Self::start`] it is the user that runs the program.
    ///
    /// # Errors
    ///
    /// As of [`Self::start`].
    pub fn start_for(path: &Path, access: &Access, orders: Orders) -> Result<Self, SocketError> {
        let socket = UnixSocket::bind_for(path, NAME_IN_DIRECTORY, access)?;
        let socket_path = socket.path().to_owned();
        let refused = |source: io::Error| SocketError::Listen {
            path: socket_path.clone(),
            source,
        };
        let stop = eventfd(0, EventfdFlags::CLOEXEC);
        let shared = Arc::new(Shared {
            orders,
            controllers: AtomicUsize::new(0),
            stop: stop.map_err(|errno| refused(errno.into()))?,
        });
        let there = Arc::clone(&shared);
        let thread = Builder::new().name("control".into());
        let acceptor = thread.spawn(move || {
            accept_until(&there.stop, &socket, SocketFlags::empty(), |connection| {
                welcome(&there, connection);
            });
        });
        let acceptor = Some(acceptor.map_err(refused)?);
        Ok(Self {
            shared,
            socket_path,
            acceptor,
        })
    }

    /// Where it really listens: absolute, and completed in a directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.socket_path
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// Takes orders on a new connection, on a thread of its own.
fn welcome(shared: &Arc<Shared>, connection: OwnedFd) {
    if shared.controllers.fetch_add(1, Relaxed) >= CONTROLLERS_MAX {
        shared.controllers.fetch_sub(1, Relaxed);
        return turn_away(connection);
    }
    let there = Arc::clone(shared);
    let thread = Builder::new().name("orders".into()).spawn(move || {
        // A peer that disconnected or timed out is not an error of the server.
        let _ = take_orders(&there, UnixStream::from(connection));
        there.controllers.fetch_sub(1, Relaxed);
    });
    if thread.is_err() {
        shared.controllers.fetch_sub(1, Relaxed);
    }
}

/// Says to one more than there can be why it gets no answer.
fn turn_away(connection: OwnedFd) {
    let stream = UnixStream::from(connection);
    let problem = format!(
        "{CONTROLLERS_MAX} connections are open at this socket, and there can be no more: end one of the programs that hold them"
    );
    // A new connection has room for the line, so this waits for nobody.
    let _ = stream.set_nonblocking(true);
    let _ = (&stream).write_all(format!("{}\n", json!({ "error": problem })).as_bytes());
}

fn take_orders(shared: &Shared, stream: UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    let mut lines = BufReader::new(&stream);
    loop {
        if lines.buffer().is_empty() && stopped_before(shared, &stream, IDLE)? {
            return Ok(());
        }
        let mut line = Vec::new();
        let received = (&mut lines)
            .take(LINE_BYTES_MAX + 1)
            .read_until(b'\n', &mut line)?;
        if received == 0 {
            return Ok(());
        }
        let too_long = received as u64 > LINE_BYTES_MAX;
        let answer = if too_long {
            json!({ "error": format!("a line has at most {LINE_BYTES_MAX} bytes") })
        } else {
            shared.orders.answer(&line)
        };
        (&stream).write_all(format!("{answer}\n").as_bytes())?;
        if too_long {
            return Ok(());
        }
    }
}

/// Waits for the next line to begin; `true` if there are to be no more orders. An error after `idle`.
fn stopped_before(shared: &Shared, stream: &UnixStream, idle: Duration) -> io::Result<bool> {
    let mut fds = [
        PollFd::new(&shared.stop, PollFlags::IN),
        PollFd::new(stream, PollFlags::IN),
    ];
    let idle = Timespec::try_from(idle).ok();
    if poll(&mut fds, idle.as_ref())? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(fds[0].revents().contains(PollFlags::IN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoArguments, ask};

    fn ping() -> Orders {
        Orders::new().with("ping", |NoArguments {}| Ok(json!({ "pong": true })))
    }

    #[test]
    fn one_connection_too_many_is_told_why() {
        let directory = tempfile::tempdir().expect("a directory");
        let control = Control::start(directory.path(), ping()).expect("it listens");
        let connect = |_| {
            let mut stream = UnixStream::connect(control.path()).expect("it listens");
            stream
                .write_all(b"{\"command\":\"ping\"}\n")
                .expect("written");
            let mut answer = String::new();
            let read = BufReader::new(&stream).read_line(&mut answer);
            assert!(read.is_ok() && answer.contains("pong"), "{answer}");
            stream
        };
        let idle: Vec<UnixStream> = (0..CONTROLLERS_MAX).map(connect).collect();
        let refused = ask(control.path(), &json!({ "command": "ping" }));
        let refused = refused.expect_err("one too many").to_string();
        assert!(refused.contains("32 connections are open"), "{refused}");
        drop(idle);
    }

    #[test]
    fn it_answers_line_after_line_until_it_is_dropped() {
        let directory = tempfile::tempdir().expect("a directory");
        let control = Control::start(directory.path(), ping()).expect("it listens");
        let path = directory.path().join("control.sock");
        assert_eq!(control.path(), path);
        let mut stream = UnixStream::connect(&path).expect("it answers");
        let mut lines = BufReader::new(stream.try_clone().expect("a copy"));
        for _ in 0..3 {
            let mut line = String::new();
            stream.write_all(b"{\"command\":\"ping\"}\n").expect("sent");
            lines.read_line(&mut line).expect("an answer");
            assert_eq!(line, "{\"pong\":true}\n");
        }
        drop(control);
        assert!(!path.exists(), "the socket is left");
        assert!(ask(&path, &json!({ "command": "ping" })).is_err());
    }

    #[test]
    fn one_that_says_nothing_is_closed_after_its_time_and_not_after_twice_that() {
        let shared = Shared {
            orders: ping(),
            controllers: AtomicUsize::new(1),
            stop: eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"),
        };
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let next = |idle| stopped_before(&shared, &ours, idle);
        let late = next(Duration::from_millis(1)).expect_err("nothing has come");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        theirs.write_all(b"{").expect("written");
        assert!(!next(IDLE).expect("an order"));
        rustix::io::write(&shared.stop, &1u64.to_ne_bytes()).expect("told");
        assert!(next(IDLE).expect("the end"));
    }

    #[test]
    fn it_is_asked_and_says_what_is_wrong() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("here");
        let _control = Control::start(&path, ping()).expect("it listens");
        let answer = ask(&path, &json!({ "command": "ping" })).expect("an answer");
        assert_eq!(answer["pong"], true);
        let refused = ask(&path, &json!({ "command": "pong" })).expect_err("no such command");
        assert!(refused.to_string().contains("there are ping"), "{refused}");
        let taken = Control::start(&path, ping()).err().expect("it is taken");
        assert!(taken.to_string().contains("in use"), "{taken}");
    }
}
