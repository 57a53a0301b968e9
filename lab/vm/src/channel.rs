//! Orders to a guest and its answers, over a virtual serial port.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest answer that is taken.
const ANSWER_BYTES_MAX: u64 = 1 << 30;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The host's end.
pub struct Channel {
    stream: BufReader<UnixStream>,
}

impl Channel {
    /// Waits for QEMU to connect; `is_alive` says whether it still may.
    pub fn accept(
        path: &Path,
        deadline: Instant,
        mut is_alive: impl FnMut() -> bool,
        start: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        start()?;
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Ok(Self {
                        stream: BufReader::new(stream),
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if !is_alive() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Reads with the time that is left until the deadline.
    fn within(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.get_ref().set_read_timeout(Some(left))
    }

    /// A line of the guest, without its end.
    pub fn line(&mut self, deadline: Instant) -> io::Result<String> {
        let mut line = Vec::new();
        loop {
            self.within(deadline)?;
            let ready = self.stream.fill_buf().map_err(timed)?;
            if ready.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let end = ready.iter().position(|&byte| byte == b'\n');
            let taken = end.map_or(ready.len(), |end| end + 1);
            line.extend_from_slice(&ready[..taken]);
            self.stream.consume(taken);
            if end.is_some() {
                line.pop();
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
        }
    }

    /// This many bytes of the guest.
    pub fn bytes(&mut self, length: u64, deadline: Instant) -> io::Result<Vec<u8>> {
        if length > ANSWER_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < length {
            self.within(deadline)?;
            let left = length - bytes.len() as u64;
            let mut part = (&mut self.stream).take(left.min(1 << 16));
            let before = bytes.len();
            let mut chunk = [0; 1 << 12];
            let got = part.read(&mut chunk).map_err(timed)?;
            bytes.extend_from_slice(&chunk[..got]);
            if bytes.len() == before {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(bytes)
    }

    /// Tells the guest to run a script.
    pub fn order(&mut self, script: &str) -> io::Result<()> {
        let mut line: String = script.bytes().map(|byte| format!("{byte:02x}")).collect();
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes())
    }
}

/// A read that waited in vain says so in another word.
fn timed(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}
