//! TLS for NBD clients: certificates, access rules, and the stream.
//!
//! A build without the feature `tls` has the same names; a server then refuses to start with TLS.

#[cfg(not(feature = "tls"))]
mod absent;
mod allow;
#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "tls")]
mod names;
#[cfg(feature = "tls")]
mod stream;
mod subject;

#[cfg(not(feature = "tls"))]
pub(crate) use absent::{ServerTerms, TlsStream};
pub use allow::TlsAllow;
pub(crate) use allow::doubts;
#[cfg(feature = "tls")]
pub(crate) use certificates::ServerTerms;
#[cfg(feature = "tls")]
pub(crate) use stream::TlsStream;
pub use subject::common_names;

use crate::HostError;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// TLS options of a server: PEM files, as `openssl` and `certtool` write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// The server's certificate, then the intermediate authorities up to one that clients know.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authorities that sign clients' certificates. If set, a client needs a
    /// certificate.
    pub client_authorities: Option<PathBuf>,
    /// Access rules; without rules, each client may open every export.
    pub allow: Vec<TlsAllow>,
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
}

/// A failed TLS handshake, or a violation of TLS by the peer: a sentence for the log.
#[derive(Debug)]
pub(crate) struct TlsError(pub(crate) String);

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
