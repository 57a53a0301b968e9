//! A server of GET requests that nobody can make hold much, or for long: each connection is for one request and has a thread.

use crate::request::{REQUEST_BYTES_MAX, Refusal, read};
use futae_control::{Access, SocketError, UnixSocket};
use futae_host::Listen;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, SocketFlags, accept_with, send, shutdown};
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use tracing::warn;

/// What a socket is called in a directory.
const NAME_IN_DIRECTORY: &str = "http.sock";
/// Connections at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 16;
/// Time in which a request must be whole, and in which its answer must be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of the stack of a connection's thread.
const STACK_BYTES: usize = 256 << 10;
/// Pause after running out of descriptors or threads.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(20);

/// Why nothing is answered at an address.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// A unix socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Others could read it, and it was not said that they may.
    #[error(
        "{address}: other machines could reach this, and there is neither encryption nor authentication; listen \
         on 127.0.0.1 or on a unix socket, or say --insecure-tcp"
    )]
    InsecureTcp {
        /// The address.
        address: String,
    },
    /// Neither `unix:` nor `tcp:`.
    #[error("{address}: write unix:PATH or tcp:HOST:PORT")]
    Kind {
        /// The address.
        address: String,
    },
    /// The operating system does not let us listen.
    #[error("{address}: cannot listen")]
    Listen {
        /// The address.
        address: String,
        /// What it said.
        source: io::Error,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

/// The page at a path, if there is one.
pub type Routes = Arc<dyn Fn(&str) -> Option<Reply> + Send + Sync>;

struct Shared {
    routes: Routes,
    is_tcp: bool,
    connections: AtomicUsize,
    /// Becomes readable, for good, when nothing is answered any more.
    stop: OwnedFd,
}

enum Socket {
    Unix(UnixSocket),
    Tcp(OwnedFd),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

/// A server of pages. Dropped, it answers no more, and the file of its socket is removed.
pub struct Http {
    shared: Arc<Shared>,
    address: Listen,
    acceptor: Option<JoinHandle<()>>,
}

impl Http {
    /// Answers at an address: of a unix socket those to whom `access` is given; of TCP addresses this machine, and others only if
    /// `insecure_tcp` says so.
    ///
    /// # Errors
    ///
    /// [`HttpError`]; nothing stays behind.
    pub fn start(
        address: &Listen,
        access: &Access,
        insecure_tcp: bool,
        routes: Routes,
    ) -> Result<Self, HttpError> {
        let (socket, address) = bind(address, access, insecure_tcp)?;
        let refused = |source: io::Error| HttpError::Listen {
            address: address.to_string(),
            source,
        };
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| refused(errno.into()))?;
        let shared = Arc::new(Shared {
            routes,
            is_tcp: matches!(socket, Socket::Tcp(_)),
            connections: AtomicUsize::new(0),
            stop,
        });
        let there = Arc::clone(&shared);
        let thread = Builder::new().name("http".into()).stack_size(STACK_BYTES);
        let acceptor = thread
            .spawn(move || accept_all(&there, &socket))
            .map_err(refused)?;
        Ok(Self {
            shared,
            address,
            acceptor: Some(acceptor),
        })
    }

    /// Where it answers: with the port that was chosen, or the complete path.
    #[must_use]
    pub fn address(&self) -> &Listen {
        &self.address
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn bind(
    address: &Listen,
    access: &Access,
    insecure_tcp: bool,
) -> Result<(Socket, Listen), HttpError> {
    let text = || address.to_string();
    match address {
        Listen::Unix(path) => {
            let socket = UnixSocket::bind_for(path, NAME_IN_DIRECTORY, access)?;
            let address = Listen::Unix(socket.path().to_owned());
            Ok((Socket::Unix(socket), address))
        }
        Listen::Tcp { host, port } => {
            let refused = |source| HttpError::Listen {
                address: text(),
                source,
            };
            let addresses: Vec<_> = (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(refused)?
                .collect();
            if !insecure_tcp && !addresses.iter().all(|address| address.ip().is_loopback()) {
                return Err(HttpError::InsecureTcp { address: text() });
            }
            let socket = TcpListener::bind(&addresses[..]).map_err(refused)?;
            let port = socket.local_addr().map_err(refused)?.port();
            socket.set_nonblocking(true).map_err(refused)?;
            let host = host.clone();
            Ok((Socket::Tcp(socket.into()), Listen::Tcp { host, port }))
        }
        Listen::VhostUser(_) => Err(HttpError::Kind { address: text() }),
    }
}

fn accept_all(shared: &Arc<Shared>, socket: &Socket) {
    loop {
        let mut fds = [
            PollFd::new(&shared.stop, PollFlags::IN),
            PollFd::new(socket, PollFlags::IN),
        ];
        let polled = poll(&mut fds, None);
        if polled.is_ok() && fds[0].revents().contains(PollFlags::IN) {
            return;
        }
        match accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(connection) => welcome(shared, connection),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            // Descriptors or memory have run out; they come back when connections end.
            Err(_) => std::thread::sleep(SHORTAGE_PAUSE),
        }
    }
}

/// Answers a new connection on a thread of its own.
fn welcome(shared: &Arc<Shared>, connection: OwnedFd) {
    if shared.connections.fetch_add(1, Relaxed) >= CONNECTIONS_MAX {
        shared.connections.fetch_sub(1, Relaxed);
        return;
    }
    let there = Arc::clone(shared);
    let thread = Builder::new()
        .name("http-client".into())
        .stack_size(STACK_BYTES);
    let thread = thread.spawn(move || {
        // A peer that disconnected or timed out is not an error of the server.
        let _ = answer(&there, &connection);
        there.connections.fetch_sub(1, Relaxed);
    });
    if let Err(error) = thread {
        shared.connections.fetch_sub(1, Relaxed);
        warn!("a request for a page is not answered: {error}");
    }
}

/// Reads a request and answers it.
fn answer(shared: &Shared, connection: &OwnedFd) -> io::Result<()> {
    let mut received = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    let asked = loop {
        match read(&received, shared.is_tcp) {
            Ok(None) => {}
            Ok(Some(request)) => break Ok(request),
            Err(refusal) => break Err(refusal),
        }
        wait_for(connection, PollFlags::IN, deadline)?;
        let mut part = [0; 1024];
        let most = part.len().min(REQUEST_BYTES_MAX - received.len());
        match rustix::io::read(connection, &mut part[..most]) {
            Ok(0) => return Ok(()),
            Ok(length) => received.extend_from_slice(&part[..length]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    };
    let text = match asked {
        Err(refusal) => refused(refusal, false),
        Ok(request) => match (shared.routes)(&request.path) {
            None => refused((404, "there is no such page"), request.head_only),
            Some(reply) => page("200 OK", reply.content_type, &reply.body, request.head_only),
        },
    };
    let mut rest = text.as_bytes();
    let deadline = Instant::now() + PATIENCE;
    while !rest.is_empty() {
        wait_for(connection, PollFlags::OUT, deadline)?;
        match send(connection, rest, SendFlags::NOSIGNAL) {
            Ok(length) => rest = &rest[length..],
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(shutdown(connection, Shutdown::Write)?)
}

/// Waits until bytes can be moved.
fn wait_for(connection: &OwnedFd, what: PollFlags, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).ok();
    let mut fds = [PollFd::new(connection, what)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn refused((status, sentence): Refusal, head_only: bool) -> String {
    let reason = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        _ => "Request Header Fields Too Large",
    };
    let body = format!("{sentence}\n");
    page(
        &format!("{status} {reason}"),
        "text/plain; charset=utf-8",
        &body,
        head_only,
    )
}

/// A whole answer. No script but those of the page itself may run, and nothing is loaded from elsewhere.
fn page(status: &str, content_type: &str, body: &str, head_only: bool) -> String {
    let shown = if head_only { "" } else { body };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
         connect-src 'self'\r\n\r\n{shown}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    fn routes() -> Routes {
        Arc::new(|path| {
            let body = "x".repeat(1 << 20);
            (path == "/long").then_some(Reply {
                content_type: "text/plain",
                body,
            })
        })
    }

    fn exchange(mut stream: impl Read + Write, request: &str) -> String {
        let mut answer = String::new();
        // The server may have answered before all was sent.
        let _ = stream.write_all(request.as_bytes());
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    #[test]
    fn pages_are_answered_on_both_kinds_of_sockets() {
        let directory = tempfile::tempdir().expect("a directory");
        let start = |text: &str| {
            let address = text.parse().expect("an address");
            Http::start(&address, &Access::default(), false, routes()).expect("it listens")
        };
        let unix = start(&format!("unix:{}", directory.path().display()));
        let path = directory.path().join("http.sock");
        assert_eq!(unix.address(), &Listen::Unix(path.clone()));
        let stream = || UnixStream::connect(&path).expect("it answers");
        let whole = exchange(stream(), "GET /long HTTP/1.1\r\n\r\n");
        assert!(
            whole.starts_with("HTTP/1.1 200 OK\r\n"),
            "{}",
            &whole[..100]
        );
        let (head, body) = whole.split_once("\r\n\r\n").expect("a head and a body");
        assert_eq!(body.len(), 1 << 20);
        assert!(head.contains("Content-Length: 1048576\r\n"), "{head}");
        let head = exchange(stream(), "HEAD /long HTTP/1.1\r\n\r\n");
        assert!(
            head.contains("1048576") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
        let none = exchange(stream(), "GET / HTTP/1.1\r\n\r\n");
        assert!(none.starts_with("HTTP/1.1 404 Not Found\r\n"), "{none}");
        drop(unix);
        assert!(!path.exists(), "the socket is left");

        let tcp = start("tcp:127.0.0.1:0");
        let Listen::Tcp { port, .. } = tcp.address() else {
            panic!("{}", tcp.address());
        };
        let stream = || TcpStream::connect(("127.0.0.1", *port)).expect("it answers");
        let whole = exchange(stream(), "GET /long HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        assert!(whole.starts_with("HTTP/1.1 200"), "{}", &whole[..100]);
        let named = exchange(stream(), "GET /long HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        assert!(named.starts_with("HTTP/1.1 403"), "{}", &named[..100]);
    }

    #[test]
    fn clients_that_say_nothing_take_no_more_than_their_places() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("s");
        let address = Listen::Unix(path.clone());
        let _http = Http::start(&address, &Access::default(), false, routes()).expect("it listens");
        let connect = || UnixStream::connect(&path).expect("it answers");
        let mut silent: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect()).collect();
        // Those beyond are closed without an answer; in the order of arrival.
        let mut beyond = connect();
        assert_eq!(beyond.read(&mut [0]).expect("closed"), 0);
        // The others end when their time is over, and make room.
        for stream in &mut silent {
            assert_eq!(stream.read(&mut [0]).expect("closed"), 0);
        }
        let mut answer = String::new();
        while answer.is_empty() {
            answer = exchange(connect(), "GET /long HTTP/1.1\r\n\r\n");
        }
        assert!(answer.starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn addresses_that_others_can_reach_are_refused() {
        let start = |text: &str, insecure| {
            let address = text.parse().expect("an address");
            Http::start(&address, &Access::default(), insecure, routes())
        };
        let refused = start("tcp:0.0.0.0:0", false).err().expect("refused");
        assert!(refused.to_string().contains("--insecure-tcp"), "{refused}");
        assert!(start("tcp:0.0.0.0:0", true).is_ok());
        let refused = start("vhost-user:/x", false).err().expect("refused");
        assert!(
            refused.to_string().contains("unix:PATH or tcp:"),
            "{refused}"
        );
    }
}
