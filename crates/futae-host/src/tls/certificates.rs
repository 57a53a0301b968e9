//! Certificates and keys from their files.

use super::interface::{Handshakes, TlsError, TlsStream};
use super::private::{refuse_if_open_to_all, wrong};
use super::stream::RustlsStream;
use crate::HostError;
use rustix::fd::BorrowedFd;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use std::path::Path;
use std::sync::Arc;

/// What clients are shown, and must show.
struct Certificates(Arc<ServerConfig>);

impl Handshakes for Certificates {
    fn begin<'a>(&self, socket: BorrowedFd<'a>) -> Result<Box<dyn TlsStream + 'a>, TlsError> {
        Ok(Box::new(RustlsStream::new(socket, &self.0)?))
    }
}

/// Reads the files.
pub(super) fn load(
    certificate: &Path,
    key: &Path,
    client_authorities: Option<&Path>,
) -> Result<Box<dyn Handshakes>, HostError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(certificate, &error))?;
    let builder = match client_authorities {
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
    let chain = certificates(certificate)?;
    let mut config = builder
        .with_single_cert(chain, private_key(key)?)
        .map_err(|error| {
            let pair = format!("{} and {}", certificate.display(), key.display());
            HostError::Certificate {
                file: pair,
                problem: format!("they cannot be used together: {error}"),
            }
        })?;
    // A returning client is checked again: its authority may have been removed from the file.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Box::new(Certificates(Arc::new(config))))
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

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, HostError> {
    refuse_if_open_to_all(path, "private key")?;
    PrivateKeyDer::from_pem_file(path).map_err(|error| wrong(path, &error))
}
