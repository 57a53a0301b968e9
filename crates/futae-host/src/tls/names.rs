//! The names in a client's certificate, to which rules refer.
//!
//! These are the DNS names among its alternative names, and the common names of its subject, which
//! `certtool` and older recipes write.

use super::subject::common_names;
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The distinct names in a certificate.
pub(super) fn of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else {
        return Vec::new();
    };
    let dns = certificate.valid_dns_names().map(str::to_owned);
    let mut names: Vec<String> = dns.chain(common_names(certificate.subject())).collect();
    names.sort();
    names.dedup();
    names
}
