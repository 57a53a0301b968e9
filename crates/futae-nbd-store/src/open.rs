//! A connection, from its first byte to the transmission phase.

use crate::error::ConnectError;
use crate::socket::{Socket, Timed, in_time};
use crate::tls;
use futae_nbd::client::{ClientExport, ClientWish, negotiate, negotiate_greeted, start_tls};
use futae_nbd::error::WireError;
use futae_nbd::uri::NbdUri;
use std::time::{Duration, Instant};

/// How long a server may take for the beginning of a connection, and for its end, at most.
const STEP_MAX: Duration = Duration::from_secs(10);

/// How long a server that may take `timeout` for a request (zero: no limit) may take for a connection's beginning or end.
pub(crate) fn step(timeout: Duration) -> Duration {
    if timeout.is_zero() {
        STEP_MAX
    } else {
        timeout.min(STEP_MAX)
    }
}

/// Connects and negotiates. All of that together may take as long as a request (`timeout`; zero: no limit), but 10 s at most: a
/// server that sends a byte now and then would otherwise take for ever.
pub(crate) fn open(
    uri: &NbdUri,
    wish: &ClientWish,
    timeout: Duration,
) -> Result<(Socket, ClientExport), ConnectError> {
    let step = step(timeout);
    let deadline = Instant::now() + step;
    let fail = |problem: String| ConnectError::new(uri, problem);
    let mut socket = Socket::connect(uri, deadline).map_err(|error| {
        let problem = in_time(&error, step).unwrap_or_else(|| error.to_string());
        fail(format!("cannot connect: {problem}; is the server running?"))
    })?;
    let in_words = |error: &WireError| match error {
        WireError::Io { source, .. } => {
            let why = in_time(source, step).unwrap_or_else(|| source.to_string());
            format!("{error}: {why}")
        }
        _ => error.to_string(),
    };
    let mut timed = Timed {
        socket: &mut socket,
        deadline,
    };
    let export = match &uri.tls {
        None => negotiate(&mut timed, &uri.export, wish).map_err(|error| fail(in_words(&error)))?,
        Some(tls) => {
            let greeted = start_tls(&mut timed).map_err(|error| fail(in_words(&error)))?;
            let ended;
            (socket, ended) = tls::begin(socket, uri, tls, (deadline, step)).map_err(fail)?;
            let mut timed = Timed {
                socket: &mut socket,
                deadline,
            };
            let export = negotiate_greeted(&mut timed, greeted, &uri.export, wish);
            // A server refuses a client's certificate only after the client has completed its
            // side of the handshake.
            export.map_err(|error| fail(ended.why().unwrap_or_else(|| in_words(&error))))?
        }
    };
    socket
        .set_timeout(None)
        .map_err(|error| fail(error.to_string()))?;
    Ok((socket, export))
}

/// Whether every byte of the export can be reached by commands of whole blocks.
pub(crate) fn check_sizes(export: &ClientExport) -> Result<(), String> {
    let (size, smallest) = (export.size_bytes, export.minimum_block_bytes);
    if smallest > 1 && !size.is_multiple_of(smallest.into()) {
        return Err(format!(
            "the export has {size} bytes, which is no multiple of the {smallest} bytes that its \
             server takes at least; resize the export, or serve it with smaller blocks"
        ));
    }
    Ok(())
}
