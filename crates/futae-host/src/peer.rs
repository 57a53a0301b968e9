//! The identity of a connection's peer, as far as the kernel knows it.

use rustix::fd::OwnedFd;
use rustix::net::{getpeername, sockopt};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A user and a process of this machine, or an address. Peers that cannot be distinguished are
/// equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Peer {
    /// The number of the user, or the address.
    pub(crate) user: u128,
    /// The process ID; 0 for a peer on another machine.
    pub(crate) process: u32,
}

/// Above all user IDs, and above IPv6 addresses as well: those in `ffff::/16` are multicast.
const ADDRESSES_V4: u128 = 0xffff << 112;

impl Peer {
    /// The peer of a socket.
    pub(crate) fn of(socket: &OwnedFd, tcp: bool) -> Self {
        if tcp {
            return Self::at(socket);
        }
        let Ok(known) = sockopt::socket_peercred(socket) else {
            return Self::default();
        };
        Self {
            user: known.uid.as_raw().into(),
            process: known.pid.as_raw_nonzero().get().unsigned_abs(),
        }
    }

    /// Whether the peer is on this machine, where processes can be distinguished.
    fn is_here(&self) -> bool {
        self.process != 0
    }

    fn at(socket: &OwnedFd) -> Self {
        let address = getpeername(socket).ok();
        let address = address.and_then(|address| SocketAddr::try_from(address?).ok());
        let user = match address.map(|address| address.ip().to_canonical()) {
            Some(IpAddr::V4(ip)) => ADDRESSES_V4 | u128::from(ip.to_bits()),
            // A network belongs to one customer.
            Some(IpAddr::V6(ip)) => (ip.to_bits() >> 64) << 64,
            None => 0,
        };
        Self { user, process: 0 }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, process } = *self;
        if self.is_here() {
            write!(f, "process {process} of user {user}")
        } else if user >> 32 == ADDRESSES_V4 >> 32 {
            // The lower half is the address.
            write!(f, "{}", Ipv4Addr::from_bits(user as u32))
        } else if user > u128::from(u32::MAX) {
            write!(f, "{}/64", Ipv6Addr::from_bits(user))
        } else {
            f.write_str("an unknown peer")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_written_as_an_operator_knows_them() {
        let of = |user, process| Peer { user, process }.to_string();
        assert_eq!(of(0, 17), "process 17 of user 0");
        let local = u128::from(Ipv4Addr::LOCALHOST.to_bits());
        assert_eq!(of(ADDRESSES_V4 | local, 0), "127.0.0.1");
        let network: Ipv6Addr = "2001:db8::".parse().expect("an address");
        assert_eq!(of(network.to_bits(), 0), "2001:db8::/64");
        assert_eq!(of(0, 0), "an unknown peer");
    }
}
