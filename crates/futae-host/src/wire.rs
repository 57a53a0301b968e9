//! The bytes of a connection on its socket: as they are, or over TLS.

use crate::tls::TlsStream;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};

/// A socket that is received from and sent to.
pub(crate) enum Wire<'a> {
    /// One system call each, from and into the buffers of the caller.
    Plain(BorrowedFd<'a>),
    Tls(Box<TlsStream<'a>>),
}

impl<'a> Wire<'a> {
    pub(crate) fn socket(&self) -> BorrowedFd<'a> {
        match self {
            Self::Plain(socket) => *socket,
            Self::Tls(tls) => tls.socket(),
        }
    }

    /// Fills the buffers, one after the other, with what has arrived; 0 is the end. Waits for it unless `flags` say
    /// otherwise.
    pub(crate) fn receive(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        flags: RecvFlags,
    ) -> Result<usize, Errno> {
        let socket = match self {
            Self::Plain(socket) => *socket,
            Self::Tls(tls) => return tls.receive(slices, flags),
        };
        if let [only] = slices {
            return recv(socket, &mut **only, flags).map(|(received, _)| received);
        }
        let mut control = RecvAncillaryBuffer::default();
        recvmsg(socket, slices, &mut control, flags).map(|message| message.bytes)
    }

    /// Takes as much as can be taken without waiting.
    pub(crate) fn send(&mut self, slices: &mut [IoSlice<'_>]) -> Result<usize, Errno> {
        let socket = match self {
            Self::Plain(socket) => *socket,
            Self::Tls(tls) => return tls.send(slices),
        };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)
    }

    /// Whether something was taken that the socket has not.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.has_unsent(),
        }
    }

    /// Sends of that as much as the socket takes: how many bytes it was.
    pub(crate) fn flush(&mut self) -> Result<usize, Errno> {
        match self {
            Self::Plain(_) => Ok(0),
            Self::Tls(tls) => tls.flush(),
        }
    }

    /// Tells the peer that nothing more comes, if the socket takes that.
    pub(crate) fn say_goodbye(&mut self) {
        if let Self::Tls(tls) = self {
            tls.say_goodbye();
        }
    }

    /// What the peer did wrong below NBD, if it did.
    pub(crate) fn problem(&self) -> Option<&str> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => tls.problem(),
        }
    }
}
