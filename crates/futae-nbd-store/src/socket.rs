//! One connected socket, unix or TCP.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_keepalive, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recv, sendmsg, socket_with,
};

use futae_nbd::uri::{NbdUri, Transport};

/// A connected stream.
#[derive(Debug)]
pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Connects until `deadline`. Addresses of one host divide the time among them: it may listen at one of them only.
    pub(super) fn connect(uri: &NbdUri, deadline: Instant) -> io::Result<Self> {
        match &uri.transport {
            Transport::Unix { socket } => {
                let flags = SocketFlags::CLOEXEC;
                let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                // It also limits how long a full queue of the server is waited for.
                set_socket_timeout(&stream, Timeout::Send, Some(left(deadline)?))?;
                connect(&stream, &SocketAddrUnix::new(socket)?)?;
                Ok(Self::Unix(stream.into()))
            }
            Transport::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                let addresses = addresses(host, *port, deadline)?;
                for (others, address) in (1..=addresses.len() as u32).rev().zip(addresses) {
                    match TcpStream::connect_timeout(&address, left(deadline)? / others) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            set_socket_keepalive(&stream, true)?;
                            return Ok(Self::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    /// How long a read or a write may take; none: no limit.
    pub(super) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
            Self::Tcp(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
        }
    }

    /// Makes the socket non-blocking.
    #[cfg(feature = "tls")]
    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        self.set_timeout(None)?;
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true),
        }
    }

    /// Shuts the connection down in both directions, which wakes its readers and writers.
    pub(super) fn shut_down(&self) {
        // It may be closed already, which is fine.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Sends some of the slices. Returns `None` if `wait` is false and the socket is full.
    pub(super) fn send(&self, slices: &[IoSlice<'_>], wait: bool) -> io::Result<Option<usize>> {
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::DONTWAIT, !wait);
        loop {
            match sendmsg(self, slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => return Ok(Some(sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !wait => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Waits for bytes and receives at least one. It waits in `poll`: a thread that waits in `recv`
    /// on a unix socket is also woken each time that the peer has received something, which
    /// accounted for half of all wake-ups.
    pub(super) fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(self, &mut *bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((received, _)) => return Ok(received),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
            match poll(&mut [PollFd::new(self, PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// A socket of which all reads and writes together have to end at a deadline.
pub(super) struct Timed<'a> {
    pub(super) socket: &'a mut Socket,
    pub(super) deadline: Instant,
}

impl Timed<'_> {
    /// The socket, for an operation in the time that is left.
    fn in_time(&mut self) -> io::Result<&mut Socket> {
        self.socket.set_timeout(Some(left(self.deadline)?))?;
        Ok(self.socket)
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.in_time()?.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.in_time()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The addresses of a host, if they are known before `deadline`.
fn addresses(host: &str, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let of = (host.to_owned(), port);
    let found = until(deadline, move || Ok(of.to_socket_addrs()?.collect()));
    found.unwrap_or_else(|| {
        let problem = format!("no name server told the address of {host} in time");
        Err(io::Error::other(problem))
    })
}

/// What `work` returns, on a thread of its own, if it does so before `deadline`. The C library asks each name server several
/// times, for half a minute and longer if none answers, and cannot be interrupted.
fn until<T: Send + 'static>(
    deadline: Instant,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Option<io::Result<T>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let name = thread::Builder::new().name("futae-nbd-name".into());
    // If the send fails, nobody waits any longer.
    match name.spawn(move || drop(sender.send(work()))) {
        Ok(_) => receiver.recv_timeout(left(deadline).ok()?).ok(),
        Err(error) => Some(Err(error)),
    }
}

/// The time until a deadline, or that it is over.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// What to say of an error if it is that the time was over.
pub(super) fn in_time(error: &io::Error, time: Duration) -> Option<String> {
    let is_late = matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    );
    is_late.then(|| format!("no answer within {time:?}"))
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    #[test]
    fn an_address_that_nobody_tells_is_not_waited_for_for_ever() {
        let (silent, asked) = mpsc::channel::<()>();
        let found = until(deadline(), move || {
            let _ = asked.recv();
            Ok(())
        });
        assert!(found.is_none());
        drop(silent);
    }

    #[test]
    fn addresses_are_found_by_number_and_by_name() {
        let later = Instant::now() + Duration::from_secs(60);
        let found = |host| addresses(host, 7, later).expect("found");
        assert_eq!(found("127.0.0.2"), ["127.0.0.2:7".parse().expect("one")]);
        assert_eq!(found("::1"), ["[::1]:7".parse().expect("one")]);
        assert!(found("localhost").iter().all(|it| it.ip().is_loopback()));
    }
}
