//! Requests that are neither reads nor writes: they go, as `/dev/fuse` would bring them, through a socket to
//! a session of the FUSE library, whose threads may wait for the disk while the ring's must not.

use super::served::Served;
use super::wire::{self, HEADER_BYTES, OUT_HEADER_BYTES};
use fuser::{Config, Session};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType,
    recv, send, sendmsg, shutdown, socketpair, sockopt,
};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Bytes of a directory that are read at a time at most, so that they fit into a message.
const DIRECTORY_BYTES: u32 = 64 << 10;
/// Longest message: the longest extended attribute or list of them, with its headers.
pub(super) const MESSAGE_BYTES: usize = (64 << 10) + 4096;

/// The socket to a session that answers.
pub(super) struct Others {
    socket: Arc<OwnedFd>,
    session: Option<JoinHandle<io::Result<()>>>,
}

impl Others {
    /// Begins a session on threads of its own.
    pub(super) fn start(filesystem: impl Served, config: &Config) -> io::Result<Self> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        for socket in [&ours, &theirs] {
            // Half of what the kernel says is for what it keeps with a message.
            if sockopt::socket_send_buffer_size(socket)? < 2 * MESSAGE_BYTES {
                sockopt::set_socket_send_buffer_size(socket, MESSAGE_BYTES)?;
            }
            let room = sockopt::socket_send_buffer_size(socket)?;
            if room < 2 * MESSAGE_BYTES {
                return Err(io::Error::other(format!(
                    "a socket has room for {room} bytes only; raise net.core.wmem_max"
                )));
            }
        }
        send(&ours, &wire::hello(), SendFlags::NOSIGNAL)?;
        let session = Session::from_fd(filesystem, theirs, config.acl, config.clone())?;
        let mut message = [0; 4096];
        let (length, _) = recv(&ours, &mut message, RecvFlags::DONTWAIT)?;
        if !matches!(wire::answered(&message[..length]), Some((_, 0, _))) {
            return Err(io::Error::other("the FUSE library did not begin a session"));
        }
        let session = std::thread::Builder::new()
            .name("futae-others".into())
            .spawn(move || session.run())?;
        Ok(Self {
            socket: Arc::new(ours),
            session: Some(session),
        })
    }

    pub(super) fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.socket)
    }

    /// Passes a request on; false if it cannot be.
    pub(super) fn send(&self, header: &mut [u8; HEADER_BYTES], payload: &[u8]) -> bool {
        let Some(parts) = wire::message(header, payload, DIRECTORY_BYTES) else {
            return false;
        };
        let slices = parts.map(IoSlice::new);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut nothing = SendAncillaryBuffer::default();
        match sendmsg(&*self.socket, &slices, &mut nothing, flags) {
            Ok(_) => true,
            Err(rustix::io::Errno::AGAIN) => {
                // Too many requests are waiting. This thread must not: what they wait for may come by it.
                let (socket, message) = (self.socket(), parts.concat());
                let sender = std::thread::Builder::new().spawn(move || {
                    // It fails when the connection is over, and nobody waits for an answer then.
                    let _ = send(&*socket, &message, SendFlags::NOSIGNAL);
                });
                sender.is_ok()
            }
            Err(_) => false,
        }
    }

    /// Ends the session when it has done what it is doing.
    pub(super) fn close(&self) {
        let _ = shutdown(&*self.socket, Shutdown::Both);
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.close();
        if let Some(session) = self.session.take() {
            // That its socket was closed is an error to it, and to nobody else.
            drop(session.join());
        }
    }
}

const _: () = assert!(DIRECTORY_BYTES as usize + OUT_HEADER_BYTES <= MESSAGE_BYTES);
