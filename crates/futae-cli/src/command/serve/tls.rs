//! The options of `futae serve` about TLS.

use futae_host::{HostError, TlsAllow, TlsOptions, TlsProof};
use std::path::PathBuf;

/// What is put behind an address whose clients need no TLS.
const OFF: &str = ",tls=off";

/// Encryption, and certificates or keys of clients.
#[derive(clap::Args, Clone)]
pub(super) struct TlsArgs {
    /// Certificate of the server, in PEM, followed by those of intermediate authorities. Clients
    /// then have to use TLS (nbds://, nbds+unix://) on every address but vhost-user ones and those
    /// with `,tls=off`. On SIGHUP the server reads the files again if there is a --config
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM; its mode must not let other users read it
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Certificates of the authorities that sign clients' certificates, in PEM. Every client then needs a
    /// certificate, and TCP addresses that other machines can reach need no --insecure-tcp
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        group = "known_clients"
    )]
    tls_client_ca: Option<PathBuf>,
    /// Pre-shared keys instead of certificates: a file with a line NAME:KEY for each client, KEY in hexadecimal, as
    /// psktool writes it; its mode must not let other users read it. Every client then has to use TLS with its name and
    /// key, on the same addresses as with --tls-cert
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["tls_cert", "tls_key", "tls_client_ca"],
        group = "known_clients"
    )]
    tls_psk: Option<PathBuf>,
    /// Let clients whose certificate has NAME (a DNS name, or the common name of its subject), or whose pre-shared key
    /// is that of NAME, open an export: EXPORT=NAME. * stands for every export, or for every client. With any such rule,
    /// a client neither sees nor opens an export that no rule gives it
    #[arg(long, value_name = "RULE", requires = "known_clients")]
    tls_allow: Vec<String>,
}

impl TlsArgs {
    /// What a server needs to know; nothing without a certificate and without keys of clients.
    pub(super) fn options(&self) -> Result<Option<TlsOptions>, String> {
        let proof = match (&self.tls_psk, &self.tls_cert, &self.tls_key) {
            (Some(keys), _, _) => TlsProof::PreSharedKeys(keys.clone()),
            (None, Some(certificate), Some(key)) => TlsProof::Certificates {
                certificate: certificate.clone(),
                key: key.clone(),
                client_authorities: self.tls_client_ca.clone(),
            },
            (None, _, _) => return Ok(None),
        };
        let rules = self.tls_allow.iter().map(|text| {
            let rule = text.parse::<TlsAllow>();
            rule.map_err(|error: HostError| format!("--tls-allow {error}"))
        });
        Ok(Some(TlsOptions {
            proof,
            allow: rules.collect::<Result<_, _>>()?,
        }))
    }
}

/// Takes `tls=off` from an address: what is left, and whether it was there.
pub(super) fn take_off(text: &str) -> (&str, bool) {
    text.strip_suffix(OFF)
        .map_or((text, false), |rest| (rest, true))
}
