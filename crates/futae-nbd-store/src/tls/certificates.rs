//! Certificates and a key from a directory, under the file names that libnbd and QEMU use.

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Permission bits of other users on a file.
const OTHERS: u32 = 0o007;

/// The configuration of TLS.
pub(super) fn config(directory: &Path) -> Result<ClientConfig, String> {
    let authority = directory.join("ca-cert.pem");
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&authority)? {
        roots
            .add(certificate)
            .map_err(|error| wrong(&authority, &error))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let own = directory.join("client-cert.pem");
    if !own.exists() {
        return Ok(builder.with_no_client_auth());
    }
    let key = directory.join("client-key.pem");
    let attributes = std::fs::metadata(&key).map_err(|error| wrong(&key, &error))?;
    if attributes.mode() & OTHERS != 0 {
        return Err(format!(
            "{}: every user of this machine may read this private key; chmod o= it",
            key.display()
        ));
    }
    let secret = PrivateKeyDer::from_pem_file(&key).map_err(|error| wrong(&key, &error))?;
    builder
        .with_client_auth_cert(certificates(&own)?, secret)
        .map_err(|error| wrong(&own, &error))
}

fn wrong(file: &Path, error: &dyn std::error::Error) -> String {
    format!("{}: {error}", file.display())
}

/// All certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(path, &error))?;
    let found: Vec<_> = found
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(path, &error))?;
    if found.is_empty() {
        return Err(format!(
            "{}: it holds no certificate (-----BEGIN CERTIFICATE-----)",
            path.display()
        ));
    }
    Ok(found)
}
