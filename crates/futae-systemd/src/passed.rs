//! Listening sockets that systemd passes. A socket belongs to the address that it is bound to: a program that listens there
//! takes it in place of one of its own.

use crate::system::inherited;
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{SocketAddrAny, SocketAddrUnix, SocketType, getsockname, sockopt};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tracing::warn;

/// A socket, and the name that `FileDescriptorName=` gives it.
struct Passed {
    name: String,
    address: SocketAddrAny,
    socket: OwnedFd,
}

/// The socket that is bound to a path, if one was passed. It never waits. Its file is the unit's to remove.
#[must_use]
pub fn take_unix(path: &Path) -> Option<OwnedFd> {
    let address = std::path::absolute(path).ok()?;
    let address = SocketAddrUnix::new(&address).ok()?.as_any();
    take(|passed| passed.address == address)
}

/// The socket that is bound to one of these addresses, if one was passed, and that address. It never waits.
#[must_use]
pub fn take_tcp(addresses: &[SocketAddr]) -> Option<(OwnedFd, SocketAddr)> {
    let mut found = None;
    let socket = take(|passed| {
        let address = SocketAddr::try_from(passed.address.clone()).ok();
        found = address.filter(|address| addresses.contains(address));
        found.is_some()
    })?;
    Some((socket, found?))
}

/// The sockets that nobody has taken, each by its name and address. They are closed: clients that connect there would wait
/// for ever.
pub fn unclaimed() -> Vec<String> {
    let left = std::mem::take(&mut *all());
    left.iter().map(ToString::to_string).collect()
}

fn take(is_it: impl FnMut(&Passed) -> bool) -> Option<OwnedFd> {
    let mut all = all();
    let at = all.iter().position(is_it)?;
    Some(all.swap_remove(at).socket)
}

fn all() -> MutexGuard<'static, Vec<Passed>> {
    static ALL: OnceLock<Mutex<Vec<Passed>>> = OnceLock::new();
    let all = ALL.get_or_init(|| Mutex::new(from_environment()));
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

fn from_environment() -> Vec<Passed> {
    let inherited = inherited().unwrap_or_else(|error| {
        warn!("sockets that systemd passes cannot be used (LISTEN_FDS): {error}");
        Vec::new()
    });
    let mut all = Vec::new();
    for (socket, name) in inherited {
        match Passed::new(&name, socket) {
            Ok(passed) => all.push(passed),
            Err(error) => {
                warn!("what systemd passes as {name:?} cannot be listened on: {error}");
            }
        }
    }
    all
}

impl Passed {
    fn new(name: &str, socket: OwnedFd) -> io::Result<Self> {
        let is_stream = sockopt::socket_type(&socket)? == SocketType::STREAM;
        if !is_stream || !sockopt::socket_acceptconn(&socket)? {
            let problem =
                "it accepts no connections; write ListenStream= and Accept=no in the unit";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        fcntl_setfl(&socket, fcntl_getfl(&socket)? | OFlags::NONBLOCK)?;
        Ok(Self {
            name: name.to_owned(),
            address: getsockname(&socket)?,
            socket,
        })
    }
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        if let Ok(address) = SocketAddr::try_from(self.address.clone()) {
            return write!(f, "{name} (tcp:{address})");
        }
        let unix = SocketAddrUnix::try_from(self.address.clone()).ok();
        let path = unix.as_ref().and_then(|unix| unix.path());
        let path = path.map(|path| path.to_string_lossy().into_owned());
        write!(f, "{name} (unix:{})", path.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn only_sockets_that_listen_are_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("an address");
        let passed = Passed::new("nbd", listener.into()).expect("it listens");
        assert_eq!(passed.to_string(), format!("nbd (tcp:{address})"));
        let flags = fcntl_getfl(&passed.socket).expect("flags");
        assert!(flags.contains(OFlags::NONBLOCK));
        let other = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let error = Passed::new("nbd", other.into()).err().expect("refused");
        assert!(error.to_string().contains("ListenStream="), "{error}");
    }
}
