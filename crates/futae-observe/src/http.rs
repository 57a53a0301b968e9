//! A server of GET requests that nobody can make hold much, or for long: each connection is for one request and has a thread.

use crate::reply::{Reply, page, refused};
use crate::request::{REQUEST_BYTES_MAX, read};
use futae_control::{Access, SocketError, UnixSocket, accept_until};
use futae_host::Listen;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, SocketFlags, send, shutdown};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use tracing::warn;

/// What a socket is called in a directory.
const NAME_IN_DIRECTORY: &str = "http.sock";
/// Connections at a time; a newcomer takes the place of the oldest.
const CONNECTIONS_MAX: usize = 16;
/// How long a newcomer waits for the oldest to leave, before it is closed without an answer.
const LEAVE: Duration = Duration::from_secs(1);
/// Time in which a request must be whole, and in which its answer must be taken.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the stack of a connection's thread.
const STACK_BYTES: usize = 256 << 10;

/// Why nothing is answered at an address.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// A unix socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Others could read it, and it was not said that they may.
    #[error(
        "{address}: other machines could reach this, and there is neither encryption nor authentication; listen \
         on 127.0.0.1 or on a unix socket; a server also takes --insecure-tcp"
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

/// The page at a path, if there is one.
pub type Routes = Arc<dyn Fn(&str) -> Option<Reply> + Send + Sync>;

struct Shared {
    routes: Routes,
    /// Whether a client must name this machine by an address or as `localhost`.
    is_local: bool,
    timeout: Duration,
    /// The connections, oldest first.
    connections: Mutex<VecDeque<Arc<OwnedFd>>>,
    /// A connection has ended.
    left: Condvar,
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
        Self::start_with_timeout(address, access, insecure_tcp, routes, TIMEOUT)
    }

    /// Whether nothing but the machine's state keeps [`Self::start`] from answering there.
    ///
    /// # Errors
    ///
    /// [`HttpError`], for what the address itself is refused.
    pub fn check(address: &Listen, insecure_tcp: bool) -> Result<(), HttpError> {
        let text = || address.to_string();
        match address {
            Listen::Unix(_) => Ok(()),
            Listen::Tcp { host, port } => resolved((host, *port), insecure_tcp, &text).map(drop),
            Listen::VhostUser(_) => Err(HttpError::Kind { address: text() }),
        }
    }

    fn start_with_timeout(
        address: &Listen,
        access: &Access,
        insecure_tcp: bool,
        routes: Routes,
        timeout: Duration,
    ) -> Result<Self, HttpError> {
        let (socket, address, is_local) = bind(address, access, insecure_tcp)?;
        let refused = |source: io::Error| HttpError::Listen {
            address: address.to_string(),
            source,
        };
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| refused(errno.into()))?;
        let shared = Arc::new(Shared {
            routes,
            is_local,
            timeout,
            connections: Mutex::default(),
            left: Condvar::new(),
            stop,
        });
        let there = Arc::clone(&shared);
        let thread = Builder::new().name("http".into()).stack_size(STACK_BYTES);
        let acceptor = thread
            .spawn(move || {
                accept_until(&there.stop, &socket, SocketFlags::NONBLOCK, |connection| {
                    welcome(&there, connection);
                });
            })
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

/// What a TCP address stands for, and whether only this machine reaches all of that.
fn resolved(
    (host, port): (&str, u16),
    insecure_tcp: bool,
    text: &dyn Fn() -> String,
) -> Result<(Vec<SocketAddr>, bool), HttpError> {
    let found = (host, port).to_socket_addrs();
    let addresses: Vec<_> = found
        .map_err(|source| HttpError::Listen {
            address: text(),
            source,
        })?
        .collect();
    let is_local = addresses.iter().all(|address| address.ip().is_loopback());
    if !insecure_tcp && !is_local {
        return Err(HttpError::InsecureTcp { address: text() });
    }
    Ok((addresses, is_local))
}

/// A socket, its address, and whether it is TCP that only this machine reaches.
fn bind(
    address: &Listen,
    access: &Access,
    insecure_tcp: bool,
) -> Result<(Socket, Listen, bool), HttpError> {
    let text = || address.to_string();
    match address {
        Listen::Unix(path) => {
            let socket = UnixSocket::bind_for(path, NAME_IN_DIRECTORY, access)?;
            let address = Listen::Unix(socket.path().to_owned());
            Ok((Socket::Unix(socket), address, false))
        }
        Listen::Tcp { host, port } => {
            let refused = |source| HttpError::Listen {
                address: text(),
                source,
            };
            let (addresses, is_local) = resolved((host, *port), insecure_tcp, &text)?;
            let host = host.clone();
            if let Some((socket, address)) = futae_systemd::take_tcp(&addresses) {
                let port = address.port();
                return Ok((Socket::Tcp(socket), Listen::Tcp { host, port }, is_local));
            }
            let socket = TcpListener::bind(&addresses[..]).map_err(refused)?;
            let port = socket.local_addr().map_err(refused)?.port();
            socket.set_nonblocking(true).map_err(refused)?;
            let address = Listen::Tcp { host, port };
            Ok((Socket::Tcp(socket.into()), address, is_local))
        }
        Listen::VhostUser(_) => Err(HttpError::Kind { address: text() }),
    }
}

/// Answers a new connection on a thread of its own.
fn welcome(shared: &Arc<Shared>, connection: OwnedFd) {
    let connection = Arc::new(connection);
    if !shared.enter(&connection) {
        return;
    }
    let (there, mine) = (Arc::clone(shared), Arc::clone(&connection));
    let thread = Builder::new()
        .name("http-client".into())
        .stack_size(STACK_BYTES);
    let thread = thread.spawn(move || {
        // A peer that disconnected or timed out is not an error of the server.
        let _ = answer(&there, &mine);
        there.leave(&mine);
    });
    if let Err(error) = thread {
        shared.leave(&connection);
        warn!("a request for a page is not answered: {error}");
    }
}

impl Shared {
    /// Gives a connection a place; false if none became free. The oldest connections end for it.
    fn enter(&self, connection: &Arc<OwnedFd>) -> bool {
        let full = |there: &mut VecDeque<Arc<OwnedFd>>| there.len() >= CONNECTIONS_MAX;
        let mut there = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if full(&mut there)
            && let Some(oldest) = there.front()
        {
            // Its thread waits for bytes, and learns of this at once. A peer that is gone already leaves as well.
            let _ = shutdown(&**oldest, Shutdown::Both);
        }
        let waited = self.left.wait_timeout_while(there, LEAVE, full);
        let (mut there, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let has_place = !full(&mut there);
        if has_place {
            there.push_back(Arc::clone(connection));
        }
        has_place
    }

    fn leave(&self, connection: &Arc<OwnedFd>) {
        let mut there = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        there.retain(|one| !Arc::ptr_eq(one, connection));
        self.left.notify_all();
    }
}

/// Reads a request and answers it.
fn answer(shared: &Shared, connection: &OwnedFd) -> io::Result<()> {
    let mut received = Vec::new();
    let deadline = Instant::now() + shared.timeout;
    let asked = loop {
        match read(&received, shared.is_local) {
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
            Some(reply) => page("200 OK", &reply, request.head_only),
        },
    };
    let mut rest = text.as_bytes();
    let deadline = Instant::now() + shared.timeout;
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
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let timeout = Timespec::try_from(left).ok();
    let mut fds = [PollFd::new(connection, what)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
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
                nonce: None,
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

    /// A server on a unix socket in a directory.
    fn patient(directory: &tempfile::TempDir, timeout: Duration) -> (Http, std::path::PathBuf) {
        let path = directory.path().join("s");
        let (address, access) = (Listen::Unix(path.clone()), Access::default());
        let http = Http::start_with_timeout(&address, &access, false, routes(), timeout);
        (http.expect("it listens"), path)
    }

    #[test]
    fn newcomers_take_the_places_of_those_that_say_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let (http, path) = patient(&directory, Duration::from_secs(3600));
        let connect = || UnixStream::connect(&path).expect("it answers");
        let mut silent: Vec<_> = (0..3 * CONNECTIONS_MAX).map(|_| connect()).collect();
        let answer = exchange(connect(), "GET /long HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200"));
        // The last ones may stay; all before them were closed.
        let closed = silent.len() + 1 - CONNECTIONS_MAX;
        for stream in &mut silent[..closed] {
            assert_eq!(stream.read(&mut [0]).expect("closed"), 0);
        }
        let there = http.shared.connections.lock().expect("no panic").len();
        assert!(there <= CONNECTIONS_MAX, "{there}");
    }

    #[test]
    fn who_neither_asks_nor_listens_in_time_is_left() {
        let directory = tempfile::tempdir().expect("a directory");
        let (_http, path) = patient(&directory, Duration::from_millis(1));
        let connect = || UnixStream::connect(&path).expect("it answers");
        let mut slow = connect();
        assert_eq!(slow.read(&mut [0]).expect("closed"), 0);
        // The socket's buffer takes a part of the megabyte; the rest waits for a reader until the server hangs up.
        let mut deaf = connect();
        // It may have hung up already.
        let _ = deaf.write_all(b"GET /long HTTP/1.1\r\n\r\n");
        let mut fds = [PollFd::new(&deaf, PollFlags::HUP)];
        poll(&mut fds, None).expect("it hangs up");
        let mut taken = Vec::new();
        let _ = deaf.read_to_end(&mut taken);
        assert!(taken.len() < 1 << 20, "all of it came");
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
