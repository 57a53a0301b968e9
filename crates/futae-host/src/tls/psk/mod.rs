//! TLS with pre-shared keys, by OpenSSL: rustls has none from outside of TLS.
//!
//! An observer who records a connection and gets the key later cannot decrypt it: every handshake
//! also has a Diffie-Hellman exchange.

mod claim;
mod keys;
mod stream;

use super::interface::{Handshakes, TlsError, TlsStream};
use super::private::{refuse_if_open_to_all, wrong};
use crate::HostError;
use claim::{Claim, claims};
use keys::Keys;
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::rand::rand_bytes;
use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslRef,
    SslSessionCacheMode, SslVersion,
};
use rustix::fd::BorrowedFd;
use std::path::Path;
use stream::OpensslStream;

/// For TLS 1.3: those with the hash that OpenSSL and GnuTLS assume of an external key.
const SUITES_1_3: &str = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
/// For TLS 1.2: those with an exchange (ECDHE) whose secrets are not kept, and no older mode of
/// encryption. Plain PSK and RSA-PSK are not among them.
const SUITES_1_2: &str = "ECDHE-PSK-CHACHA20-POLY1305";
/// Bytes of the key of a client that has none.
const DECOY_BYTES: usize = 32;

/// What clients must know.
struct PreSharedKeys {
    context: SslContext,
    claims: Index<Ssl, Claim>,
}

impl Handshakes for PreSharedKeys {
    fn begin<'a>(&self, socket: BorrowedFd<'a>) -> Result<Box<dyn TlsStream + 'a>, TlsError> {
        let stream = OpensslStream::new(socket, &self.context, self.claims);
        let stream = stream.map_err(|error| TlsError(error.to_string()))?;
        Ok(Box::new(stream))
    }
}

/// Reads a file of keys.
pub(super) fn load(path: &Path) -> Result<Box<dyn Handshakes>, HostError> {
    refuse_if_open_to_all(path, "file of keys")?;
    let text = std::fs::read_to_string(path).map_err(|error| wrong(path, &error))?;
    let keys = Keys::parse(&text).map_err(|problem| HostError::Certificate {
        file: path.display().to_string(),
        problem,
    })?;
    let terms = terms(keys).map_err(|error| wrong(path, &error))?;
    Ok(Box::new(terms))
}

fn terms(keys: Keys) -> Result<PreSharedKeys, ErrorStack> {
    let claims = claims()?;
    let mut context = SslContextBuilder::new(SslMethod::tls_server())?;
    context.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    context.set_ciphersuites(SUITES_1_3)?;
    context.set_cipher_list(SUITES_1_2)?;
    context.set_options(SslOptions::NO_RENEGOTIATION | SslOptions::NO_TICKET);
    // A returning client is checked again: its key may have been removed from the file.
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_num_tickets(0)?;
    // A record is received with one system call rather than two.
    context.set_read_ahead(true);
    context.set_mode(SslMode::RELEASE_BUFFERS | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
    context.set_psk_server_callback(move |ssl, name, key| find_key(&keys, claims, ssl, name, key));
    Ok(PreSharedKeys {
        context: context.build(),
        claims,
    })
}

/// Puts a client's key into `key`, and returns its length. A client whose name is unknown gets a key
/// that nobody has. So it fails as one with a wrong key does, and cannot try which names there are.
fn find_key(
    keys: &Keys,
    claims: Index<Ssl, Claim>,
    ssl: &mut SslRef,
    name: Option<&[u8]>,
    key: &mut [u8],
) -> Result<usize, ErrorStack> {
    let name = String::from_utf8_lossy(name.unwrap_or_default());
    let known = keys.find(&name);
    ssl.set_ex_data(
        claims,
        Claim {
            name: name.into_owned(),
            is_known: known.is_some(),
        },
    );
    let length = known.map_or(DECOY_BYTES, <[u8]>::len);
    let Some(place) = key.get_mut(..length) else {
        return Ok(0);
    };
    match known {
        Some(known) => place.copy_from_slice(known),
        None => rand_bytes(place)?,
    }
    Ok(length)
}
