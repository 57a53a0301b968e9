//! QEMU's machine protocol.

use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// No wait is shorter: none at all would be one without end.
const SHORTEST: Duration = Duration::from_millis(20);

/// A connection to the monitor of a QEMU.
pub struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    /// Connects, until the deadline.
    pub fn open(path: &Path, deadline: Instant) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(SHORTEST)))?;
        let mut monitor = Self {
            stream: BufReader::new(stream),
        };
        monitor.line()?;
        monitor.order(&json!({ "execute": "qmp_capabilities" }))?;
        Ok(monitor)
    }

    fn line(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// Gives an order; what it returns. Events in between are nobody's concern.
    pub fn order(&mut self, order: &Value) -> io::Result<Value> {
        let stream = self.stream.get_mut();
        stream.write_all(format!("{order}\n").as_bytes())?;
        loop {
            let mut told = self.line()?;
            if told.get("error").is_some() {
                return Err(io::Error::other(told["error"].to_string()));
            }
            if told.get("return").is_some() {
                return Ok(told["return"].take());
            }
        }
    }
}
