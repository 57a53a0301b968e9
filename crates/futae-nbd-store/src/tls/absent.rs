//! Replaces TLS in a build without it.

use super::socket::Socket;
use futae_nbd::uri::{ClientTls, NbdUri};
use std::time::{Duration, Instant};

const PROBLEM: &str =
    "this build has no TLS (the cargo feature tls); use nbd or nbd+unix, or a tunnel";

/// Returns the error for a TLS address.
pub(super) fn check(_tls: &ClientTls) -> Result<(), String> {
    Err(PROBLEM.to_owned())
}

/// Why a connection ended.
pub(super) struct Ended;

impl Ended {
    pub(super) fn why(&self) -> Option<String> {
        None
    }
}

pub(super) fn begin(
    _socket: Socket,
    _uri: &NbdUri,
    tls: &ClientTls,
    _limit: (Instant, Duration),
) -> Result<(Socket, Ended), String> {
    check(tls)?;
    Err(PROBLEM.to_owned())
}
