//! Giving an order to a running cache.

use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A status of many exports is long, but not this long.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No program takes orders there, or it is not a cache of futae.
    #[error(
        "{}: no cache answers here; start futae serve or futae mount with --control unix:{}",
        path.display(), path.display()
    )]
    Silent {
        /// The socket.
        path: PathBuf,
        /// What the system or the parser said.
        source: io::Error,
    },
    /// The order was refused.
    #[error("{0}")]
    Refused(String),
}

/// Gives one order, an object with a `command`, and waits ten seconds at most for its answer.
///
/// # Errors
///
/// [`AskError::Silent`] without an answer in JSON, [`AskError::Refused`] for an answer that is an
/// error.
pub fn ask(path: &Path, order: &Value) -> Result<Value, AskError> {
    ask_within(path, order, TIMEOUT)
}

/// As [`ask`], of an order that takes its time.
///
/// # Errors
///
/// As those of [`ask`].
pub fn ask_within(path: &Path, order: &Value, timeout: Duration) -> Result<Value, AskError> {
    let answer = exchange(path, order, timeout).map_err(|source| AskError::Silent {
        path: path.to_owned(),
        source,
    })?;
    match answer.get("error") {
        Some(Value::String(problem)) => Err(AskError::Refused(problem.clone())),
        _ => Ok(answer),
    }
}

fn exchange(path: &Path, order: &Value, timeout: Duration) -> io::Result<Value> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("{order}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
