//! TLS of a running server: who needs it, and other certificates and rules.

use crate::server::{Server, Shared};
use crate::tls::{TlsOptions, doubts};
use crate::{HostError, Listen};
use tracing::warn;

impl Server {
    /// Whether clients of an address have to use TLS.
    #[must_use]
    pub fn needs_tls(&self, address: &Listen) -> bool {
        let mut all = self.addresses.iter().zip(&self.encrypted);
        all.any(|(known, encrypted)| known == address && *encrypted)
    }

    /// Reads certificates, keys and rules again, for connections that begin from now on.
    ///
    /// # Errors
    ///
    /// What is wrong with them; all stays as it was then, as it does if the server has no TLS.
    pub fn reload_tls(&self, options: &TlsOptions) -> Result<(), HostError> {
        let old = self.shared.options.tls.as_ref();
        let had_authorities = old.is_some_and(|old| old.client_authorities.is_some());
        if had_authorities && options.client_authorities.is_none() {
            return Err(HostError::AuthoritiesStay);
        }
        let tls = self.shared.tls.as_ref();
        tls.map_or(Ok(()), |tls| tls.reload(options))?;
        self.shared.remark_on_rules(options);
        Ok(())
    }
}

impl Shared {
    /// Has the log say which rules for clients look like slips.
    pub(crate) fn remark_on_rules(&self, tls: &TlsOptions) {
        let all = self.exports.all();
        let exports: Vec<&str> = all.iter().map(|export| export.name.as_str()).collect();
        for remark in doubts(&tls.allow, &exports) {
            warn!("{remark}");
        }
    }
}
