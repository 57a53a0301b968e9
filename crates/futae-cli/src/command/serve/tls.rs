//! The options of `futae serve` about TLS.

use futae_host::{HostError, TlsAllow, TlsOptions};
use std::path::PathBuf;

/// What is put behind an address whose clients need no TLS.
const OFF: &str = ",tls=off";

/// Encryption, and certificates of clients.
#[derive(clap::Args, Clone)]
pub(super) struct TlsArgs {
    /// Certificate of the server, in PEM, with those of intermediate authorities behind it. Clients then have to use
    /// TLS (nbds://, nbds+unix://) on every address but vhost-user ones and those with `,tls=off`. SIGHUP has the
    /// files read again if there is a --config
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM; other users must not be able to read it
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Certificates of the authorities that sign clients' certificates, in PEM. Every client then needs a
    /// certificate, and TCP addresses that other machines can reach need no --insecure-tcp
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Let clients whose certificate has NAME (a DNS name, or the common name of its subject) open an export:
    /// EXPORT=NAME. * stands for every export, or for every certificate. With any such rule, a client neither sees nor
    /// opens an export that no rule gives it
    #[arg(long, value_name = "RULE", requires = "tls_client_ca")]
    tls_allow: Vec<String>,
}

impl TlsArgs {
    /// What a server needs to know; nothing without a certificate.
    pub(super) fn options(&self) -> Result<Option<TlsOptions>, String> {
        let (Some(certificate), Some(key)) = (self.tls_cert.clone(), self.tls_key.clone()) else {
            return Ok(None);
        };
        let rules = self.tls_allow.iter().map(|text| {
            let rule = text.parse::<TlsAllow>();
            rule.map_err(|error: HostError| format!("--tls-allow {error}"))
        });
        Ok(Some(TlsOptions {
            certificate,
            key,
            client_authorities: self.tls_client_ca.clone(),
            allow: rules.collect::<Result<_, _>>()?,
        }))
    }
}

/// Takes `tls=off` from an address: what is left, and whether it was there.
pub(super) fn take_off(text: &str) -> (&str, bool) {
    text.strip_suffix(OFF)
        .map_or((text, false), |rest| (rest, true))
}
