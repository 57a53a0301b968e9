//! Sockets on which clients connect, as they are asked for.

use crate::HostError;
use crate::listen::Listen;
use crate::listener::{Listener, Socket, listen_on};
use futae_control::{Access, UnixSocket};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// The name of the socket in a directory.
pub(crate) const SOCKET_NAME: &str = "futae.sock";

/// A socket on which clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Its address.
    pub address: Listen,
    /// The only export that is served there; `None`: all exports.
    pub export: Option<String>,
    /// Access to a unix socket.
    pub access: Access,
    /// Clients need no TLS here, even if the server has TLS.
    pub in_the_clear: bool,
}

impl From<Listen> for Gate {
    /// All exports, for the user who runs the program.
    fn from(address: Listen) -> Self {
        Self {
            address,
            export: None,
            access: Access::default(),
            in_the_clear: false,
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
        let (socket, address) = match &self.address {
            Listen::Unix(path) => {
                let socket = UnixSocket::bind_for(path, name_in_directory, &self.access)?;
                let address = Listen::Unix(socket.path().to_owned());
                (Socket::Unix(socket), address)
            }
            Listen::VhostUser(path) => {
                let name = format!("vhost-user.{name_in_directory}");
                let socket = UnixSocket::bind_for(path, &name, &self.access)?;
                let address = Listen::VhostUser(socket.path().to_owned());
                (Socket::Unix(socket), address)
            }
            Listen::Tcp { host, port } => {
                let addresses = self.resolve(host, *port, may_be_reached)?;
                let socket = listen_on(&addresses);
                let (socket, port) = socket.map_err(|source| refused(&self.address, source))?;
                let address = Listen::Tcp {
                    host: host.clone(),
                    port,
                };
                (Socket::Tcp(socket), address)
            }
        };
        Ok(Listener {
            socket,
            address,
            is_in_the_clear: self.in_the_clear,
        })
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
        let addresses = addresses.map_err(|source| refused(&self.address, source))?;
        let addresses: Vec<_> = addresses.collect();
        let is_local = addresses.iter().all(|address| address.ip().is_loopback());
        if !is_local && !may_be_reached {
            let address = self.address.to_string();
            return Err(HostError::InsecureTcp { address });
        }
        Ok(addresses)
    }
}

/// Why an address cannot be listened on.
fn refused(address: &Listen, source: io::Error) -> HostError {
    let address = address.to_string();
    match source.kind() {
        io::ErrorKind::AddrInUse => HostError::InUse { address },
        _ => HostError::Listen { address, source },
    }
}
