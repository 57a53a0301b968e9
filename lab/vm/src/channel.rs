//! Orders to a guest and its answers, over a virtual serial port.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest answer that is taken.
const ANSWER_BYTES_MAX: u64 = 1 << 30;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How often a wait for an answer looks whether it is to end.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// The host's end.
pub struct Channel {
    stream: BufReader<UnixStream>,
    /// Nothing is waited for once this is set.
    stopped: Arc<AtomicBool>,
}

impl Channel {
    /// Waits for QEMU to connect; `is_alive` says whether it still may.
    pub fn accept(
        path: &Path,
        (deadline, stopped): (Instant, Arc<AtomicBool>),
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
                        stopped,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if stopped.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
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

    /// What the guest has said and was not taken yet; nothing if it says no more.
    fn said(&mut self, deadline: Instant) -> io::Result<&[u8]> {
        while self.stream.buffer().is_empty() {
            if self.stopped.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let stream = self.stream.get_ref();
            stream.set_read_timeout(Some(left.min(STOP_INTERVAL)))?;
            match self.stream.fill_buf() {
                Ok([]) => return Ok(&[]),
                Ok(_) => {}
                Err(error) if is_for_now(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.stream.buffer())
    }

    /// A line of the guest, without its end.
    pub fn line(&mut self, deadline: Instant) -> io::Result<String> {
        let mut line = Vec::new();
        loop {
            let ready = self.said(deadline)?;
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
            let left = length - bytes.len() as u64;
            let ready = self.said(deadline)?;
            if ready.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let taken = (ready.len() as u64).min(left) as usize;
            bytes.extend_from_slice(&ready[..taken]);
            self.stream.consume(taken);
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

/// Whether a read waited in vain, or for as long as no signal came.
fn is_for_now(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
    kinds.contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel() -> (Channel, UnixStream) {
        let (here, there) = UnixStream::pair().expect("a pair");
        let stream = BufReader::new(here);
        let stopped = Arc::default();
        (Channel { stream, stopped }, there)
    }

    #[test]
    fn nobody_waits_for_a_guest_once_everything_is_to_stop() {
        let (mut channel, _guest) = channel();
        channel.stopped.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + Duration::from_secs(3600);
        let line = channel.line(deadline).expect_err("it says nothing");
        assert_eq!(line.kind(), io::ErrorKind::Interrupted);
        let bytes = channel.bytes(1, deadline).expect_err("it says nothing");
        assert_eq!(bytes.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn what_a_guest_says_is_taken_in_pieces_until_its_end_or_the_deadline() {
        let (mut channel, mut guest) = channel();
        guest.write_all(b"ready 6.1\nabcdef").expect("it is there");
        let far = Instant::now() + Duration::from_secs(3600);
        assert_eq!(channel.line(far).expect("a line"), "ready 6.1");
        assert_eq!(channel.bytes(4, far).expect("bytes"), b"abcd");
        let past = channel
            .bytes(3, Instant::now())
            .expect_err("one is missing");
        assert_eq!(past.kind(), io::ErrorKind::TimedOut);
        drop(guest);
        let end = channel.line(far).expect_err("no end of the line");
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }
}
