//! One connected socket, unix or TCP.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

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
    /// Connects. An attempt may take `step`.
    pub(super) fn connect(uri: &NbdUri, step: Duration) -> io::Result<Self> {
        match &uri.transport {
            Transport::Unix { socket } => {
                let flags = SocketFlags::CLOEXEC;
                let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                // It also limits how long a full queue of the server is waited for.
                set_socket_timeout(&stream, Timeout::Send, Some(step))?;
                connect(&stream, &SocketAddrUnix::new(socket)?)?;
                Ok(Self::Unix(stream.into()))
            }
            Transport::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, step) {
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

/// What to say of an error if it is that the time for a step was over.
pub(super) fn in_time(error: &io::Error, step: Duration) -> Option<String> {
    let is_late = matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    );
    is_late.then(|| format!("no answer within {step:?}"))
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
