//! Who is at the other end of a connection, as far as the kernel knows.

use rustix::fd::OwnedFd;
use rustix::net::{getpeername, sockopt};
use std::net::{IpAddr, SocketAddr};

/// A user and a process of this machine, or an address; all that cannot be told apart are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Peer {
    /// The number of the user, or the address.
    pub(crate) user: u128,
    /// The number of the process; 0 for one on another machine.
    pub(crate) process: u32,
}

/// Above the numbers of users, and of IPv6 addresses as well: those in `ffff::/16` are multicast.
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

    fn at(socket: &OwnedFd) -> Self {
        let address = getpeername(socket).ok();
        let address = address.and_then(|address| SocketAddr::try_from(address?).ok());
        let user = match address.map(|address| address.ip().to_canonical()) {
            Some(IpAddr::V4(ip)) => ADDRESSES_V4 | u128::from(ip.to_bits()),
            // A network is one customer's.
            Some(IpAddr::V6(ip)) => (ip.to_bits() >> 64) << 64,
            None => 0,
        };
        Self { user, process: 0 }
    }
}
