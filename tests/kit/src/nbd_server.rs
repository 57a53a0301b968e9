//! The beginning of an NBD server in a test, which then answers as the test needs it.

use futae_nbd::{ExportDirectory, Handshake, Outcome, greeting};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Takes a client into transmission with one of these exports.
///
/// # Panics
///
/// The client breaks the protocol, or leaves.
pub fn welcome(stream: &mut UnixStream, exports: impl ExportDirectory) {
    stream.write_all(&greeting()).expect("greeted");
    let mut handshake = Handshake::new(exports);
    let mut input = Vec::new();
    loop {
        let mut out = Vec::new();
        let progress = handshake.feed(&input, &mut out).expect("a sound client");
        stream.write_all(&out).expect("answered");
        input.drain(..progress.consumed);
        if matches!(progress.outcome, Outcome::Done(_)) {
            return;
        }
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).expect("more options");
        assert_ne!(count, 0, "the client left");
        input.extend_from_slice(&bytes[..count]);
    }
}
