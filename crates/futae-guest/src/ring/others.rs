//! Requests other than reads and writes. They are passed, in the format of `/dev/fuse`, through a
//! socket to a session of the FUSE library, whose threads may wait for the disk; the ring's thread
//! must not.

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

/// The largest number of bytes of a directory per read, so that they fit into a message.
const DIRECTORY_BYTES: u32 = 64 << 10;
/// The longest message: the longest extended attribute, or list of them, with its headers.
pub(super) const MESSAGE_BYTES: usize = (64 << 10) + 4096;

/// The socket to the session.
pub(super) struct Others {
    socket: Arc<OwnedFd>,
    session: Option<JoinHandle<io::Result<()>>>,
}

impl Others {
    /// Starts a session on threads of its own.
    pub(super) fn start(filesystem: impl Served, config: &Config) -> io::Result<Self> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        for socket in [&ours, &theirs] {
            // Half of the reported size is the kernel's overhead per message.
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

    /// Passes a request on; false if that is impossible.
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
                // The socket is full. This thread must not wait: the requests ahead may depend on
                // it.
                let (socket, message) = (self.socket(), parts.concat());
                let sender = std::thread::Builder::new().spawn(move || {
                    // The send fails when the connection has ended, and then no answer is needed.
                    let _ = send(&*socket, &message, SendFlags::NOSIGNAL);
                });
                sender.is_ok()
            }
            Err(_) => false,
        }
    }

    /// Ends the session after its current requests.
    pub(super) fn close(&self) {
        let _ = shutdown(&*self.socket, Shutdown::Both);
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.close();
        if let Some(session) = self.session.take() {
            // The closed socket is an error for the session, and expected here.
            drop(session.join());
        }
    }
}

const _: () = assert!(DIRECTORY_BYTES as usize + OUT_HEADER_BYTES <= MESSAGE_BYTES);
