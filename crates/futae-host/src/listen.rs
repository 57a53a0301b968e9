//! Addresses to listen on.

use crate::HostError;
use crate::tenant::Gate;
use futae_control::UnixSocket;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// An address on which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// `unix:PATH`: a socket at a path. If the path is a directory, the socket has a default name
    /// in it.
    Unix(PathBuf),
    /// `vhost-user:PATH`: a socket at a path, to which the frontends of virtual machines' disks
    /// connect. If the path is a directory, the socket has a default name in it.
    VhostUser(PathBuf),
    /// `tcp:HOST:PORT`: a name or an address, and a port.
    Tcp {
        /// The host, an IPv6 address without its brackets.
        host: String,
        /// The port; 0 lets the system choose.
        port: u16,
    },
}

impl FromStr for Listen {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let wrong = |problem| {
            Err(HostError::Address {
                text: text.to_owned(),
                problem,
            })
        };
        let bad = |problem: &'static str| wrong(problem.into());
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return bad("the path is missing");
            }
            return Ok(Self::Unix(path.into()));
        }
        if let Some(path) = text.strip_prefix("vhost-user:") {
            if path.is_empty() {
                return bad("the path is missing");
            }
            return Ok(Self::VhostUser(path.into()));
        }
        let Some(address) = text.strip_prefix("tcp:") else {
            return match kind_of(text) {
                Some(kind) => wrong(format!("its kind is missing ({kind}:{text})").into()),
                None => bad("not an address"),
            };
        };
        let Some((host, port)) = address.rsplit_once(':') else {
            return bad("the port is missing");
        };
        let host = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        match port.parse() {
            _ if host.is_empty() => bad("the host is missing"),
            Ok(port) => Ok(Self::Tcp {
                host: host.to_owned(),
                port,
            }),
            Err(_) => bad("the port is not a number from 0 to 65535"),
        }
    }
}

/// The kind that an address without one has, if it looks like one.
fn kind_of(text: &str) -> Option<&'static str> {
    if text.starts_with(['/', '.']) {
        return Some("unix");
    }
    let (host, port) = text.rsplit_once(':')?;
    (!host.is_empty() && port.parse::<u16>().is_ok()).then_some("tcp")
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::VhostUser(path) => write!(f, "vhost-user:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

impl Gate {
    /// Starts to listen. In a directory, a unix socket is named `name_in_directory`. A TCP address
    /// that other machines can reach is refused unless `may_be_reached`.
    pub(crate) fn bind(
        &self,
        name_in_directory: &str,
        may_be_reached: bool,
    ) -> Result<Listener, HostError> {
        let is_in_the_clear = self.in_the_clear;
        match &self.address {
            Listen::Unix(path) => {
                let socket = UnixSocket::bind_for(path, name_in_directory, &self.access)?;
                let address = Listen::Unix(socket.path().to_owned());
                let socket = Socket::Unix(socket);
                Ok(Listener {
                    socket,
                    address,
                    is_in_the_clear,
                })
            }
            Listen::VhostUser(path) => {
                let name = format!("vhost-user.{name_in_directory}");
                let socket = UnixSocket::bind_for(path, &name, &self.access)?;
                let address = Listen::VhostUser(socket.path().to_owned());
                let socket = Socket::Unix(socket);
                Ok(Listener {
                    socket,
                    address,
                    is_in_the_clear,
                })
            }
            Listen::Tcp { host, port } => {
                let addresses = self.resolve(host, *port, may_be_reached)?;
                let socket = listen_on(&addresses);
                let (socket, port) = socket.map_err(|source| self.address.refused(source))?;
                let address = Listen::Tcp {
                    host: host.clone(),
                    port,
                };
                let socket = Socket::Tcp(socket);
                Ok(Listener {
                    socket,
                    address,
                    is_in_the_clear,
                })
            }
        }
    }

    /// Whether [`Self::bind`] could listen, as far as that shows without listening.
    pub(crate) fn check(
        &self,
        name_in_directory: &str,
        may_be_reached: bool,
    ) -> Result<(), HostError> {
        match &self.address {
            Listen::Unix(path) | Listen::VhostUser(path) => {
                Ok(UnixSocket::check(path, name_in_directory)?)
            }
            Listen::Tcp { host, port } => self.resolve(host, *port, may_be_reached).map(drop),
        }
    }

    fn resolve(
        &self,
        host: &str,
        port: u16,
        may_be_reached: bool,
    ) -> Result<Vec<SocketAddr>, HostError> {
        let addresses = (host, port).to_socket_addrs();
        let addresses = addresses.map_err(|source| self.address.refused(source))?;
        let addresses: Vec<_> = addresses.collect();
        let is_local = addresses.iter().all(|address| address.ip().is_loopback());
        if !is_local && !may_be_reached {
            let address = self.address.to_string();
            return Err(HostError::InsecureTcp { address });
        }
        Ok(addresses)
    }
}

/// A non-blocking socket that listens on one of these addresses, or the one that systemd passes;
/// and its port.
fn listen_on(addresses: &[SocketAddr]) -> io::Result<(OwnedFd, u16)> {
    if let Some((socket, address)) = futae_systemd::take_tcp(addresses) {
        return Ok((socket, address.port()));
    }
    let socket = TcpListener::bind(addresses)?;
    let port = socket.local_addr()?.port();
    socket.set_nonblocking(true)?;
    Ok((socket.into(), port))
}

impl Listen {
    fn refused(&self, source: io::Error) -> HostError {
        let address = self.to_string();
        match source.kind() {
            io::ErrorKind::AddrInUse => HostError::InUse { address },
            _ => HostError::Listen { address, source },
        }
    }
}

/// A non-blocking socket that accepts connections.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    /// The actual address: with the assigned port, or the complete path.
    pub(crate) address: Listen,
    /// Clients need no TLS on this address, even if the server has TLS.
    pub(crate) is_in_the_clear: bool,
}

#[derive(Debug)]
enum Socket {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in [
            "unix:/run/futae.sock",
            "vhost-user:/v",
            "tcp:localhost:10809",
            "tcp:[::1]:0",
        ] {
            assert_eq!(text.parse::<Listen>().expect("valid").to_string(), text);
        }
        for text in [
            "",
            "unix:",
            "vhost-user:",
            "tcp:",
            "tcp:host",
            "tcp::1",
            "tcp:host:65536",
            "/run/x",
        ] {
            assert!(text.parse::<Listen>().is_err(), "{text:?}");
        }
    }
}
