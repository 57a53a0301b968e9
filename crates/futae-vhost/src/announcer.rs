//! Messages that the device sends on its own, over a channel that the frontend provides.
//!
//! The crate `vhost` takes the channel's descriptor from the frontend's message and has no call for
//! this message. Therefore the frontend's message is inspected before that crate reads it.

use rustix::fd::OwnedFd;
use rustix::io::IoSliceMut;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// `VHOST_USER_SET_BACKEND_REQ_FD`, the message that carries the channel.
const BRINGS_CHANNEL: u32 = 21;
/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`.
const CONFIG_CHANGE: u32 = 2;
/// Flags of a message: the version of the protocol, without a request for an answer.
const VERSION: u32 = 1;

/// The channel to one frontend, if it has provided one.
#[derive(Debug, Default)]
pub struct Announcer(Mutex<Option<OwnedFd>>);

impl Announcer {
    /// Informs the frontend that the configuration space, such as the size of the disk, has
    /// changed; it then reads it again. Returns whether the message could be sent.
    pub fn config_changed(&self) -> bool {
        let channel = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(channel) = &*channel else {
            return false;
        };
        let mut message = CONFIG_CHANGE.to_ne_bytes().to_vec();
        message.extend(VERSION.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        // A frontend that has left so many messages unread will read the configuration when it gets
        // to them.
        let sent = send(channel, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        sent.is_ok_and(|sent| sent == message.len())
    }

    /// Waits for the frontend's next message and checks whether it carries the channel. The message
    /// stays in the socket.
    pub(crate) fn look(&self, stream: &UnixStream) {
        let mut kind = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
        let into = &mut [IoSliceMut::new(&mut kind)];
        let Ok(seen) = recvmsg(stream, into, &mut ancillary, flags) else {
            return; // The next reader sees the same error.
        };
        let brings = seen.bytes == kind.len() && u32::from_ne_bytes(kind) == BRINGS_CHANNEL;
        // The descriptors of other messages, which peeking has duplicated, are closed here.
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
                && brings
                && let Some(channel) = descriptors.next()
            {
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(channel);
            }
        }
    }
}
