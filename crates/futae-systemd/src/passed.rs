//! Descriptors that systemd passes: listening sockets, and what an earlier run of the service has had it keep
//! ([`crate::store`]). A socket belongs to the address that it is bound to: a program that listens there
//! takes it in place of one of its own.

use crate::stored::{forget, is_stored, store};
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
/// for ever. What an earlier run has had systemd keep and nobody has taken is closed, too, here and by systemd.
pub fn unclaimed() -> Vec<String> {
    let mut names: Vec<String> = stored().drain(..).map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    names.iter().for_each(|name| forget(name));
    let left = std::mem::take(&mut *all());
    left.iter().map(ToString::to_string).collect()
}

/// What an earlier run of this service has had systemd keep under this name, if it is there: the latest, if there are several.
/// systemd then keeps this one alone.
#[must_use]
pub fn take_stored(name: &str) -> Option<OwnedFd> {
    let of_name: Vec<(String, OwnedFd)> = stored()
        .extract_if(.., |(known, _)| known == name)
        .collect();
    let is_alone = of_name.len() == 1;
    // systemd passes the latest first.
    let (_, latest) = of_name.into_iter().next()?;
    if !is_alone {
        forget(name);
        if let Err(error) = store(name, &latest) {
            warn!("systemd cannot be told to keep {name} any longer (NOTIFY_SOCKET): {error}");
        }
    }
    Some(latest)
}

/// All that an earlier run of this service has had systemd keep under names that begin so: the rest of each name, and the
/// descriptor. systemd keeps no socket whose other side has closed it, so one may be missing among them.
#[must_use]
pub fn take_all_stored(prefix: &str) -> Vec<(String, OwnedFd)> {
    let mut stored = stored();
    let taken = stored.extract_if(.., |(name, _)| name.starts_with(prefix));
    taken
        .map(|(name, descriptor)| (name[prefix.len()..].to_owned(), descriptor))
        .collect()
}

fn take(is_it: impl FnMut(&Passed) -> bool) -> Option<OwnedFd> {
    let mut all = all();
    let at = all.iter().position(is_it)?;
    Some(all.swap_remove(at).socket)
}

/// What was passed and nobody has taken.
struct Everything {
    sockets: Mutex<Vec<Passed>>,
    stored: Mutex<Vec<(String, OwnedFd)>>,
}

fn all() -> MutexGuard<'static, Vec<Passed>> {
    let sockets = &everything().sockets;
    sockets.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stored() -> MutexGuard<'static, Vec<(String, OwnedFd)>> {
    let stored = &everything().stored;
    stored.lock().unwrap_or_else(PoisonError::into_inner)
}

fn everything() -> &'static Everything {
    static ALL: OnceLock<Everything> = OnceLock::new();
    ALL.get_or_init(from_environment)
}

fn from_environment() -> Everything {
    let inherited = inherited().unwrap_or_else(|error| {
        warn!("descriptors that systemd passes cannot be used (LISTEN_FDS): {error}");
        Vec::new()
    });
    let (mut sockets, mut stored) = (Vec::new(), Vec::new());
    for (descriptor, name) in inherited {
        if is_stored(&name) {
            stored.push((name, descriptor));
            continue;
        }
        match Passed::new(&name, descriptor) {
            Ok(passed) => sockets.push(passed),
            Err(error) => {
                warn!("what systemd passes as {name:?} cannot be listened on: {error}");
            }
        }
    }
    Everything {
        sockets: Mutex::new(sockets),
        stored: Mutex::new(stored),
    }
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
