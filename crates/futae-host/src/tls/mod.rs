//! TLS for NBD clients: certificates or pre-shared keys, access rules, and the stream.
//!
//! Each of the two kinds has its own library, behind [`Handshakes`] and [`TlsStream`]. A build
//! without the feature `tls` or `psk` lacks that kind; a server then refuses to start with it.

mod allow;
#[cfg(feature = "tls")]
mod certificates;
mod interface;
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
pub(crate) use interface::{Handshakes, Progress, TlsError, TlsStream};
pub use subject::common_names;

use crate::HostError;
use rustix::fd::BorrowedFd;
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
