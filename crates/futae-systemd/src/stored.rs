//! Descriptors that systemd keeps for the next run of the service (`FileDescriptorStoreMax=` of its unit).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sendmsg_addr, socket_with,
};
use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use tracing::warn;

/// What names of kept descriptors begin with; those of sockets of units do not.
const PREFIXES: [&str; 2] = ["futae-memory", "futae-client"];

/// How long systemd may take to read what it was told.
const BARRIER: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Whether a descriptor of this name was stored by an earlier run of the service.
pub(crate) fn is_stored(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Has systemd keep a descriptor, which the next run of this service takes by
/// [`take_stored`](crate::take_stored). The name begins with `futae-memory` or `futae-client`, has printable ASCII without `:` only, and at
/// most 255 characters. Whether there is a systemd that could.
///
/// # Errors
///
/// It cannot be told.
pub fn store(name: &str, descriptor: &impl AsFd) -> io::Result<bool> {
    tell(
        &format!("FDSTORE=1\nFDNAME={name}"),
        Some(descriptor.as_fd()),
    )
}

/// Has systemd close its copies of the descriptors of a name. If it cannot be told, that is logged.
pub fn forget(name: &str) {
    if let Err(error) = tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None) {
        warn!("systemd cannot be told to close its copy of {name} (NOTIFY_SOCKET): {error}");
    }
}

/// Waits until systemd has read what it was told: it does not listen to a process that has ended. Whether it has, within five
/// seconds.
///
/// # Errors
///
/// It cannot be told.
pub fn barrier() -> io::Result<bool> {
    let (ours, theirs) = io::pipe()?;
    if !tell("BARRIER=1", Some(theirs.as_fd()))? {
        return Ok(false);
    }
    drop(theirs);
    // systemd closes its copy when its turn comes.
    let mut fds = [PollFd::new(&ours, PollFlags::IN)];
    Ok(poll(&mut fds, Some(&BARRIER))? > 0)
}

/// Whether there is a systemd.
fn tell(text: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<bool> {
    let Some(to) = env::var_os("NOTIFY_SOCKET") else {
        return Ok(false);
    };
    let address = match to.as_bytes() {
        [b'@', rest @ ..] => SocketAddrUnix::new_abstract_name(rest)?,
        path => SocketAddrUnix::new(path)?,
    };
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let descriptors: Vec<_> = descriptor.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(text.as_bytes())];
    let to = address.as_any();
    sendmsg_addr(socket, &to, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(true)
}
