//! TLS for NBD clients: certificates or pre-shared keys, access rules, and the stream.
//!
//! Each of the two kinds has its own library, behind [`Handshakes`] and [`TlsStream`]. A build
//! without the feature `tls` or `psk` lacks that kind; a server then refuses to start with it.

mod allow;
#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "tls")]
mod names;
#[cfg(any(feature = "tls", feature = "psk"))]
mod private;
#[cfg(feature = "psk")]
mod psk;
#[cfg(feature = "tls")]
mod stream;
mod subject;

pub use allow::TlsAllow;
pub(crate) use allow::doubts;
pub use subject::common_names;

use crate::HostError;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io::{IoSlice, IoSliceMut};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// TLS options of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// How the two sides prove who they are.
    pub proof: TlsProof,
    /// Access rules; without rules, each client may open every export.
    pub allow: Vec<TlsAllow>,
}

/// How a server and its clients prove who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsProof {
    /// By certificates: PEM files, as `openssl` and `certtool` write them.
    Certificates {
        /// The server's certificate, then the intermediate authorities up to one that clients know.
        certificate: PathBuf,
        /// Its private key.
        key: PathBuf,
        /// Certificates of the authorities that sign clients' certificates. If set, a client needs
        /// a certificate.
        client_authorities: Option<PathBuf>,
    },
    /// By keys that both sides have: a file with a line `NAME:KEY` for each client, as `psktool`
    /// writes it.
    PreSharedKeys(PathBuf),
}

impl TlsOptions {
    /// Reads the files as a server would.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub fn check(&self) -> Result<(), HostError> {
        ServerTerms::load(self).map(drop)
    }

    /// Whether each client must prove who it is.
    #[must_use]
    pub fn knows_clients(&self) -> bool {
        match &self.proof {
            TlsProof::Certificates {
                client_authorities, ..
            } => client_authorities.is_some(),
            TlsProof::PreSharedKeys(_) => true,
        }
    }
}

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

/// The terms on which clients begin TLS.
pub(crate) struct ServerTerms {
    handshakes: Box<dyn Handshakes>,
    allow: Vec<TlsAllow>,
}

impl ServerTerms {
    /// Reads the files.
    pub(crate) fn load(options: &TlsOptions) -> Result<Self, HostError> {
        if !options.allow.is_empty() && !options.knows_clients() {
            return Err(HostError::AllowNobody);
        }
        Ok(Self {
            handshakes: handshakes(&options.proof)?,
            allow: options.allow.clone(),
        })
    }

    /// The access rules.
    pub(crate) fn allow(&self) -> &[TlsAllow] {
        &self.allow
    }

    /// The server's side of TLS on a socket, before its handshake.
    pub(crate) fn begin<'a>(
        &self,
        socket: BorrowedFd<'a>,
    ) -> Result<Box<dyn TlsStream + 'a>, TlsError> {
        self.handshakes.begin(socket)
    }
}

fn handshakes(proof: &TlsProof) -> Result<Box<dyn Handshakes>, HostError> {
    match proof {
        #[cfg(feature = "tls")]
        TlsProof::Certificates {
            certificate,
            key,
            client_authorities,
        } => certificates::load(certificate, key, client_authorities.as_deref()),
        #[cfg(not(feature = "tls"))]
        TlsProof::Certificates { .. } => Err(HostError::NoTls),
        #[cfg(feature = "psk")]
        TlsProof::PreSharedKeys(path) => psk::load(path),
        #[cfg(not(feature = "psk"))]
        TlsProof::PreSharedKeys(_) => Err(HostError::NoPsk),
    }
}

/// The current terms of TLS, which can be replaced while the server runs.
pub(crate) struct Tls(RwLock<Arc<ServerTerms>>);

impl Tls {
    pub(crate) fn new(options: &TlsOptions) -> Result<Self, HostError> {
        Ok(Self(RwLock::new(Arc::new(ServerTerms::load(options)?))))
    }

    /// Reloads the files for new connections. On an error the current terms stay.
    pub(crate) fn reload(&self, options: &TlsOptions) -> Result<(), HostError> {
        let terms = Arc::new(ServerTerms::load(options)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = terms;
        Ok(())
    }

    /// The terms for a new connection.
    pub(crate) fn now(&self) -> Arc<ServerTerms> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}
