//! Lines over a socket, with a deadline for all of them together.

use futae_control::connect_within;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest line that is taken.
const LINE_BYTES_MAX: usize = 1 << 20;

/// A connection that is over at its deadline.
pub struct Lines {
    stream: UnixStream,
    deadline: Instant,
    read: Vec<u8>,
}

impl Lines {
    /// Connects.
    pub fn connect(path: &Path, timeout: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + timeout;
        let stream = connect_within(path, timeout).map_err(timed)?;
        Ok(Self {
            stream,
            deadline,
            read: Vec::new(),
        })
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left)
    }

    /// Sends a line.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write_all(format!("{line}\n").as_bytes())
    }

    /// The next line.
    pub fn hear(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                let line = std::mem::replace(&mut self.read, rest);
                return Ok(String::from_utf8_lossy(&line).trim().to_owned());
            }
            if self.read.len() > LINE_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.stream.set_read_timeout(Some(self.left()?))?;
            let mut part = [0; 4096];
            let got = self.stream.read(&mut part).map_err(timed)?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.read.extend_from_slice(&part[..got]);
        }
    }
}

/// What waited in vain says so in another word.
fn timed(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}
