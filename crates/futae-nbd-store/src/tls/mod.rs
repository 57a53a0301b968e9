//! TLS below a connection, on a thread of its own.
//!
//! The two threads of a connection send and receive at the same time, each waiting for the socket,
//! but a TLS connection has a single state. Therefore a thread carries bytes between the server,
//! encrypted, and one end of a socket pair, in plain text; the connection uses the other end.

mod carrier;
mod certificates;
mod ended;

use super::socket::{Socket, Timed, in_time};
pub(super) use ended::Ended;
use futae_nbd::uri::{ClientTls, NbdUri, Transport};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Checks whether TLS can be used with an address.
pub(super) fn check(tls: &ClientTls) -> Result<(), String> {
    if tls.certificates.is_none() {
        return Err(
            "TLS needs the certificate of the server's authority: add tls-certificates=DIRECTORY, which has ca-cert.pem, and \
             client-cert.pem and client-key.pem if the server asks for a certificate"
                .to_owned(),
        );
    }
    Ok(())
}

/// Performs the handshake until `deadline`, which was `time` after the beginning of the connection. Returns the socket that carries
/// plain text from now on.
pub(super) fn begin(
    mut socket: Socket,
    uri: &NbdUri,
    tls: &ClientTls,
    (deadline, time): (Instant, Duration),
) -> Result<(Socket, Ended), String> {
    check(tls)?;
    let name = match (&tls.hostname, &uri.transport) {
        (Some(name), _) => name.clone(),
        (None, Transport::Tcp { host, .. }) => host.clone(),
        (None, Transport::Unix { .. }) => "localhost".to_owned(),
    };
    let server = ServerName::try_from(name.clone()).map_err(|_| {
        format!("{name:?} is no name that a certificate can have; say tls-hostname=")
    })?;
    let directory = tls.certificates.as_deref().unwrap_or(Path::new("."));
    let config = Arc::new(certificates::config(directory)?);
    let mut connection =
        ClientConnection::new(config, server).map_err(|error| error.to_string())?;
    let mut timed = Timed {
        socket: &mut socket,
        deadline,
    };
    while connection.is_handshaking() {
        connection.complete_io(&mut timed).map_err(|error| {
            in_time(&error, time).unwrap_or_else(|| carrier::in_words(&error, &name))
        })?;
    }
    let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
    let ended = Ended::default();
    let carrier = carrier::Carrier::new(socket, theirs, connection, name, ended.clone())
        .map_err(|error| error.to_string())?;
    thread::Builder::new()
        .name("futae-nbd-tls".into())
        .spawn(move || carrier.run())
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok((Socket::Unix(ours), ended))
}
