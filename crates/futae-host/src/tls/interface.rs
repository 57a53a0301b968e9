//! TLS as the server sees it, whichever library does it.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io::{IoSlice, IoSliceMut};

/// A failed TLS handshake, or a violation of TLS by the peer: a sentence for the log.
#[derive(Debug)]
pub(crate) struct TlsError(pub(crate) String);

/// What a handshake needs to go on.
#[derive(Debug)]
#[cfg_attr(
    not(any(feature = "tls", feature = "psk")),
    expect(dead_code, reason = "without a library there is no handshake")
)]
pub(crate) enum Progress {
    /// The socket must accept bytes.
    Send,
    /// The client must send bytes.
    Receive,
    /// Nothing: it is complete. The names under which rules know the client.
    Done(Vec<String>),
}

/// Begins TLS on sockets.
pub(crate) trait Handshakes: Send + Sync {
    /// The server's side of TLS on a socket, before its handshake.
    fn begin<'a>(&self, socket: BorrowedFd<'a>) -> Result<Box<dyn TlsStream + 'a>, TlsError>;
}

/// The server's side of TLS on one socket, without a thread of its own, and non-blocking where
/// plain sockets are.
pub(crate) trait TlsStream {
    /// Performs as much of the handshake as possible without waiting.
    fn shake_hands(&mut self) -> Result<Progress, TlsError>;

    /// See [`crate::wire::Wire::receive`].
    fn receive(&mut self, slices: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<usize, Errno>;

    /// Encrypts and sends until all data is taken or the socket accepts no more.
    fn send(&mut self, slices: &mut [IoSlice<'_>]) -> Result<usize, Errno>;

    /// Whether the socket has not accepted all encrypted bytes yet.
    fn has_unsent(&self) -> bool;

    /// Passes as many of these bytes to the socket as it accepts. Returns their number.
    fn flush(&mut self) -> Result<usize, Errno>;

    /// Informs the peer that nothing more follows, if the socket accepts that.
    fn say_goodbye(&mut self);

    /// A violation of TLS by the peer, if there was one.
    fn problem(&self) -> Option<&str>;
}
