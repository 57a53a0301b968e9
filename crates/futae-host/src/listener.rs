//! Sockets that listen.

use crate::listen::Listen;
use futae_control::UnixSocket;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// A non-blocking socket that accepts connections.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: Socket,
    /// The actual address: with the assigned port, or the complete path.
    pub(crate) address: Listen,
    /// Clients need no TLS on this address, even if the server has TLS.
    pub(crate) is_in_the_clear: bool,
}

#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixSocket),
    Tcp(OwnedFd),
}

impl Listener {
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.address, Listen::Tcp { .. })
    }

    pub(crate) fn is_vhost_user(&self) -> bool {
        matches!(self.address, Listen::VhostUser(_))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Unix(socket) => socket.as_fd(),
            Socket::Tcp(socket) => socket.as_fd(),
        }
    }
}

/// A non-blocking socket that listens on one of these addresses, or the one that systemd passes;
/// and its port.
pub(crate) fn listen_on(addresses: &[SocketAddr]) -> io::Result<(OwnedFd, u16)> {
    if let Some((socket, address)) = futae_systemd::take_tcp(addresses) {
        return Ok((socket, address.port()));
    }
    let socket = TcpListener::bind(addresses)?;
    let port = socket.local_addr()?.port();
    socket.set_nonblocking(true)?;
    Ok((socket.into(), port))
}
