//! TLS for NBD clients: certificates, who may open what, and the stream.
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

/// What a server needs for TLS: files in PEM, as `openssl` and `certtool` write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// The server's certificate, then those of the authorities between it and one that clients know.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authorities that clients' certificates are signed by. With these, a client needs a
    /// certificate.
    pub client_authorities: Option<PathBuf>,
    /// Which client may open which export; without a rule, each client may open all.
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

/// A handshake of TLS that failed, or a peer that broke its rules: a sentence for the log.
#[derive(Debug)]
pub(crate) struct TlsError(pub(crate) String);

/// The terms of TLS, which can change while connections come.
pub(crate) struct Tls(RwLock<Arc<ServerTerms>>);

impl Tls {
    pub(crate) fn new(options: &TlsOptions) -> Result<Self, HostError> {
        Ok(Self(RwLock::new(Arc::new(ServerTerms::load(options)?))))
    }

    /// For the connections that come from now on; if something is wrong with the files, all stays as it was.
    pub(crate) fn reload(&self, options: &TlsOptions) -> Result<(), HostError> {
        let terms = Arc::new(ServerTerms::load(options)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = terms;
        Ok(())
    }

    /// The terms for a connection that begins now.
    pub(crate) fn now(&self) -> Arc<ServerTerms> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}
