//! Descriptors that systemd keeps for the next run of the service (`FileDescriptorStoreMax=` of its unit).

use rustix::fd::AsFd;
use rustix::net::addr::SocketAddrArg;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sendmsg_addr, socket_with,
};
use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;

/// What names of kept descriptors begin with; those of sockets do not.
pub(crate) const PREFIX: &str = "futae-memory";

/// Has systemd keep a descriptor, which the next run of this service takes by
/// [`take_stored`](crate::take_stored). The name begins with `futae-memory`, and has letters, digits and `-_.` only.
/// Whether there is a systemd that could.
///
/// # Errors
///
/// It cannot be told.
pub fn store(name: &str, descriptor: &impl AsFd) -> io::Result<bool> {
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
    let text = format!("FDSTORE=1\nFDNAME={name}");
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(text.as_bytes())];
    let to = address.as_any();
    sendmsg_addr(socket, &to, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(true)
}
