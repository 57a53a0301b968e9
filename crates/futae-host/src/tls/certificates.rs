//! Certificates and keys from their files.

use super::{TlsAllow, TlsOptions};
use crate::HostError;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Permission bits of other users on a file.
const OTHERS: u32 = 0o007;

/// The terms on which clients begin TLS.
pub(crate) struct ServerTerms {
    pub(super) config: Arc<ServerConfig>,
    allow: Vec<TlsAllow>,
}

impl ServerTerms {
    /// Reads the files.
    pub(crate) fn load(options: &TlsOptions) -> Result<Self, HostError> {
        if !options.allow.is_empty() && options.client_authorities.is_none() {
            return Err(HostError::AllowNobody);
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&options.certificate, &error))?;
        let builder = match &options.client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut authorities = RootCertStore::empty();
                for certificate in certificates(path)? {
                    authorities
                        .add(certificate)
                        .map_err(|error| wrong(path, &error))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(authorities.into(), provider);
                let verifier = verifier.build().map_err(|error| wrong(path, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let chain = certificates(&options.certificate)?;
        let mut config = builder
            .with_single_cert(chain, key(&options.key)?)
            .map_err(|error| {
                let pair = format!(
                    "{} and {}",
                    options.certificate.display(),
                    options.key.display()
                );
                HostError::Certificate {
                    file: pair,
                    problem: format!("they cannot be used together: {error}"),
                }
            })?;
        // A returning client is checked again: its authority may have been removed from the file.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self {
            config: Arc::new(config),
            allow: options.allow.clone(),
        })
    }

    /// The access rules.
    pub(crate) fn allow(&self) -> &[TlsAllow] {
        &self.allow
    }
}

fn wrong(file: &Path, error: &dyn std::error::Error) -> HostError {
    HostError::Certificate {
        file: file.display().to_string(),
        problem: error.to_string(),
    }
}

/// All certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, HostError> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(path, &error))?;
    let found: Vec<_> = found
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(path, &error))?;
    if found.is_empty() {
        return Err(HostError::Certificate {
            file: path.display().to_string(),
            problem: "it holds no certificate (-----BEGIN CERTIFICATE-----)".to_owned(),
        });
    }
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, HostError> {
    let attributes = std::fs::metadata(path).map_err(|error| wrong(path, &error))?;
    if attributes.mode() & OTHERS != 0 {
        return Err(HostError::Certificate {
            file: path.display().to_string(),
            problem: "every user of this machine may read this private key; chmod o= it, and make a new one if it \
                      was so for long"
                .to_owned(),
        });
    }
    PrivateKeyDer::from_pem_file(path).map_err(|error| wrong(path, &error))
}
