//! The byte stream of a connection on its socket, plain or over TLS.

use crate::tls::TlsStream;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};

/// The byte stream of a connection.
pub(crate) enum Wire<'a> {
    /// One system call per operation, with the caller's buffers.
    Plain(BorrowedFd<'a>),
    Tls {
        socket: BorrowedFd<'a>,
        tls: Box<dyn TlsStream + 'a>,
    },
}

impl<'a> Wire<'a> {
    pub(crate) fn socket(&self) -> BorrowedFd<'a> {
        match self {
            Self::Plain(socket) | Self::Tls { socket, .. } => *socket,
        }
    }

    /// Fills the buffers, in order, with received bytes; 0 is the end of the stream. Waits for
    /// bytes unless `flags` say otherwise.
    pub(crate) fn receive(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        flags: RecvFlags,
    ) -> Result<usize, Errno> {
        let socket = match self {
            Self::Plain(socket) => *socket,
            Self::Tls { tls, .. } => return tls.receive(slices, flags),
        };
        if let [only] = slices {
            return recv(socket, &mut **only, flags).map(|(received, _)| received);
        }
        let mut control = RecvAncillaryBuffer::default();
        recvmsg(socket, slices, &mut control, flags).map(|message| message.bytes)
    }

    /// Accepts as much as possible without waiting.
    pub(crate) fn send(&mut self, slices: &mut [IoSlice<'_>]) -> Result<usize, Errno> {
        let socket = match self {
            Self::Plain(socket) => *socket,
            Self::Tls { tls, .. } => return tls.send(slices),
        };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags)
    }

    /// Whether accepted bytes have not been passed to the socket yet.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls { tls, .. } => tls.has_unsent(),
        }
    }

    /// Passes as many of these bytes to the socket as it accepts. Returns their number.
    pub(crate) fn flush(&mut self) -> Result<usize, Errno> {
        match self {
            Self::Plain(_) => Ok(0),
            Self::Tls { tls, .. } => tls.flush(),
        }
    }

    /// Informs the peer that nothing more follows, if the socket accepts that.
    pub(crate) fn say_goodbye(&mut self) {
        if let Self::Tls { tls, .. } = self {
            tls.say_goodbye();
        }
    }

    /// A violation by the peer below the level of NBD, if there was one.
    pub(crate) fn problem(&self) -> Option<&str> {
        match self {
            Self::Plain(_) => None,
            Self::Tls { tls, .. } => tls.problem(),
        }
    }
}
