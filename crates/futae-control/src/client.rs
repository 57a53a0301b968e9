//! Giving an order to a running cache.

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::de::DeserializeOwned;
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
    /// No program takes orders there, or it has ended without an answer.
    #[error(
        "{}: no cache answers here; start futae serve or futae mount with --control unix:{}",
        path.display(), path.display()
    )]
    Silent {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The answer has no end: the program was ended meanwhile.
    #[error(
        "{}: the cache ended while it answered; once it runs again, ask again",
        path.display()
    )]
    Cut {
        /// The socket.
        path: PathBuf,
    },
    /// The answer is none of futae's.
    #[error(
        "{}: what answers here is no cache of futae, or one of another version; name the socket of --control",
        path.display()
    )]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// Somebody listens there, and has said nothing in time: it may be stopped, or busy.
    #[error("{}: the cache has not answered within {timeout:?}", path.display())]
    Late {
        /// The socket.
        path: PathBuf,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// The order was refused.
    #[error("{0}")]
    Refused(String),
}

/// Gives one order, an object with a `command`, and waits ten seconds at most for its answer.
///
/// # Errors
///
/// [`AskError::Silent`] without an answer, [`AskError::Late`] without one in time, [`AskError::Cut`] without its end,
/// [`AskError::Foreign`] for one that is no JSON, [`AskError::Refused`] for an answer that is an error.
pub fn ask(path: &Path, order: &Value) -> Result<Value, AskError> {
    ask_within(path, order, TIMEOUT)
}

/// As [`ask`], of an order that takes its time, or of somebody who has less of it.
///
/// # Errors
///
/// As those of [`ask`].
pub fn ask_within(path: &Path, order: &Value, timeout: Duration) -> Result<Value, AskError> {
    let line = exchange(path, order, timeout).map_err(|source| {
        let path = path.to_owned();
        match source.kind() {
            // A socket's own time limit ends in the one, that of the kernel's connection in the other.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AskError::Late { path, timeout },
            _ => AskError::Silent { path, source },
        }
    })?;
    let answer: Value = serde_json::from_slice(&line).map_err(|source| {
        let path = path.to_owned();
        if source.is_eof() && line.last() != Some(&b'\n') {
            AskError::Cut { path }
        } else {
            AskError::Foreign { path, source }
        }
    })?;
    match answer.get("error") {
        Some(Value::String(problem)) => Err(AskError::Refused(problem.clone())),
        _ => Ok(answer),
    }
}

/// As [`ask`], of an order whose answer says what it came to.
///
/// # Errors
///
/// As those of [`ask`]; [`AskError::Foreign`] if the answer says something else.
pub fn ask_for<T: DeserializeOwned>(path: &Path, order: &Value) -> Result<T, AskError> {
    ask_for_within(path, order, TIMEOUT)
}

/// As [`ask_for`], of an order that takes its time, or of somebody who has less of it.
///
/// # Errors
///
/// As those of [`ask_for`].
pub fn ask_for_within<T: DeserializeOwned>(
    path: &Path,
    order: &Value,
    timeout: Duration,
) -> Result<T, AskError> {
    let answer = ask_within(path, order, timeout)?;
    serde_json::from_value(answer).map_err(|source| AskError::Foreign {
        path: path.to_owned(),
        source,
    })
}

/// Connects to a unix socket. A program that is stopped accepts nobody, and when its queue is full, connecting waits, too.
///
/// # Errors
///
/// Those of the operating system; of the kind "would block" if the queue was full for so long.
pub fn connect_within(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The kernel applies it to connecting as well.
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    connect(&socket, &address)?;
    Ok(socket.into())
}

/// Sends an order, and returns the line of its answer.
fn exchange(path: &Path, order: &Value, timeout: Duration) -> io::Result<Vec<u8>> {
    let mut stream = connect_within(path, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    match stream.write_all(format!("{order}\n").as_bytes()) {
        // It may have said why before it closed.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
        _ => {}
    }
    let mut line = Vec::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::net::UnixListener;

    #[derive(Debug, serde::Deserialize)]
    struct Answer {
        #[expect(dead_code, reason = "it has to be there")]
        version: String,
    }

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn somebody_who_listens_and_says_nothing_is_late_and_not_missing() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("control");
        let status = json!({ "command": "status" });
        let nobody = ask_within(&path, &status, SHORT).expect_err("nobody is there");
        assert!(matches!(nobody, AskError::Silent { .. }), "{nobody}");
        let _stopped = UnixListener::bind(&path).expect("a socket");
        let late = ask_within(&path, &status, SHORT).expect_err("it never answers");
        let wanted = format!("{}: the cache has not answered within 20ms", path.display());
        assert_eq!(late.to_string(), wanted);
    }

    #[test]
    fn an_answer_that_is_cut_or_none_of_futae_is_said_to_be_that() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("control");
        let listener = UnixListener::bind(&path).expect("a socket");
        for (answer, words) in [
            ("{\"version\": \"0.", "ended while it answered"),
            ("", "no cache answers here"),
            ("SSH-2.0\r\n", "is no cache of futae"),
            ("{\"version\":\n", "is no cache of futae"),
            ("{}\n", "is no cache of futae"),
        ] {
            let said = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut client, _) = listener.accept().expect("a client");
                    let mut order = String::new();
                    let read = BufReader::new(&client).read_line(&mut order);
                    read.expect("an order");
                    client.write_all(answer.as_bytes()).expect("it listens");
                });
                let answer = ask_for::<Answer>(&path, &json!({ "command": "status" }));
                answer.expect_err("no answer")
            });
            let said = said.to_string();
            let name = path.display().to_string();
            assert!(said.starts_with(&name) && said.contains(words), "{said}");
        }
    }

    #[test]
    fn a_full_queue_is_waited_for_no_longer_than_was_said() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("control");
        let address = SocketAddrUnix::new(&path).expect("an address");
        let listener = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        );
        let listener = listener.expect("a socket");
        rustix::net::bind(&listener, &address).expect("it is bound");
        rustix::net::listen(&listener, 0).expect("it listens");
        let waiting = connect_within(&path, SHORT).expect("there is room for one");
        let full = connect_within(&path, SHORT).expect_err("there is no more room");
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        drop(waiting);
    }
}
