//! TLS of a running server: which addresses need it, and reloading of certificates, keys and rules.

use crate::server::Server;
use crate::tls::{TlsOptions, doubts};
use crate::{HostError, Listen};
use tracing::warn;

impl Server {
    /// Whether clients of an address must use TLS.
    #[must_use]
    pub fn needs_tls(&self, address: &Listen) -> bool {
        let mut all = self.addresses.iter().zip(&self.encrypted);
        all.any(|(known, encrypted)| known == address && *encrypted)
    }

    /// Reloads certificates, keys of both kinds and rules, for new connections.
    ///
    /// # Errors
    ///
    /// What is wrong with them, or that the server has no TLS. The current ones then stay in force.
    pub fn reload_tls(&self, options: &TlsOptions) -> Result<(), HostError> {
        let old = self.shared.options.tls.as_ref();
        let knew_clients = old.is_some_and(TlsOptions::knows_clients);
        if knew_clients && !options.knows_clients() {
            return Err(HostError::AuthoritiesStay);
        }
        let tls = self.shared.tls.as_ref();
        tls.map_or(Ok(()), |tls| tls.reload(options))
    }

    /// Logs which rules for clients look like mistakes, given the exports that there are now.
    pub fn remark_on_rules(&self, tls: &TlsOptions) {
        let all = self.shared.exports.all();
        let exports: Vec<&str> = all.iter().map(|export| export.name.as_str()).collect();
        for remark in doubts(&tls.allow, &exports) {
            warn!("{remark}");
        }
    }
}
