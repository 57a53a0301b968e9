//! The thread that carries bytes between a TLS server and the connection.

use super::ended::Ended;
use crate::socket::Socket;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustls::{ClientConnection, Error};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use tracing::warn;

/// Bytes carried at a time.
const STEP_BYTES: usize = 64 << 10;
/// Number of decrypted bytes waiting for the connection from which on nothing more is read.
const WAITING_MAX: usize = 256 << 10;

/// Describes a failure for operators.
pub(super) fn in_words(error: &io::Error, name: &str) -> String {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    match tls {
        Some(tls) => of_tls(tls, name),
        None if error.kind() == ErrorKind::UnexpectedEof => {
            "the server left while TLS began".to_owned()
        }
        None => format!("TLS: {error}"),
    }
}

fn of_tls(error: &Error, name: &str) -> String {
    match error {
        Error::InvalidCertificate(why) => format!(
            "the server's certificate is refused: {why:?}; it must be signed by an authority in ca-cert.pem, and be for {name} (or say \
             tls-hostname=)"
        ),
        Error::AlertReceived(alert) => format!(
            "the server gave up and says {alert:?}; it may want a certificate (client-cert.pem) that an authority of its own has signed"
        ),
        Error::InvalidMessage(why) => format!("the server sent bytes that are not TLS: {why:?}"),
        other => format!("TLS: {other}"),
    }
}

/// Both sockets, and the TLS state between them.
pub(super) struct Carrier {
    server: Socket,
    inside: UnixStream,
    tls: ClientConnection,
    name: String,
    ended: Ended,
    /// Decrypted bytes that the connection has not received yet.
    waiting: Vec<u8>,
    taken: usize,
    step: Vec<u8>,
}

impl Carrier {
    pub(super) fn new(
        server: Socket,
        inside: UnixStream,
        mut tls: ClientConnection,
        name: String,
        ended: Ended,
    ) -> io::Result<Self> {
        server.set_nonblocking()?;
        inside.set_nonblocking(true)?;
        tls.set_buffer_limit(None);
        Ok(Self {
            server,
            inside,
            tls,
            name,
            ended,
            waiting: Vec::new(),
            taken: 0,
            step: vec![0; STEP_BYTES],
        })
    }

    /// Carries bytes until one side has closed; then closes the other.
    pub(super) fn run(mut self) {
        // Data received with the handshake.
        let mut result = self.decrypted();
        while let Ok(true) = result {
            result = self.turn();
        }
        if let Err(error) = result {
            let problem = in_words(&error, &self.name);
            warn!("{problem}");
            self.ended.because(problem);
        }
        self.server.shut_down();
        let _ = self.inside.shutdown(Shutdown::Both);
    }

    fn has_waiting(&self) -> bool {
        self.taken < self.waiting.len()
    }

    /// Waits until one side is ready and carries bytes. Returns false at the end.
    fn turn(&mut self) -> io::Result<bool> {
        let (mut of_server, mut of_inside) = (PollFlags::empty(), PollFlags::empty());
        of_server.set(PollFlags::IN, self.waiting.len() - self.taken < WAITING_MAX);
        of_server.set(PollFlags::OUT, self.tls.wants_write());
        // Nothing more is encrypted before the server has received the earlier bytes.
        of_inside.set(PollFlags::IN, !self.tls.wants_write());
        of_inside.set(PollFlags::OUT, self.has_waiting());
        let ready = {
            let mut fds = [
                PollFd::new(&self.server, of_server),
                PollFd::new(&self.inside, of_inside),
            ];
            match poll(&mut fds, None) {
                Ok(_) => fds.map(|fd| fd.revents()),
                Err(Errno::INTR) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        };
        let is_over = |flags: PollFlags| flags.intersects(PollFlags::HUP | PollFlags::ERR);
        if self.has_waiting() && ready[1].contains(PollFlags::OUT) {
            self.hand_over()?;
        }
        let reads_server = of_server.contains(PollFlags::IN);
        if reads_server
            && (ready[0].contains(PollFlags::IN) || is_over(ready[0]))
            && !self.hear()?
        {
            return Ok(false);
        }
        let reads_inside = of_inside.contains(PollFlags::IN);
        if reads_inside
            && (ready[1].contains(PollFlags::IN) || is_over(ready[1]))
            && !self.take()?
        {
            return Ok(false);
        }
        self.say()?;
        // poll would report the end of an unread socket repeatedly.
        Ok(!is_over(ready[1]) || reads_inside)
    }

    /// Sends encrypted bytes, as many as the server accepts.
    fn say(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.server) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads from the server and decrypts; returns false if the server has closed.
    fn hear(&mut self) -> io::Result<bool> {
        match self.tls.read_tls(&mut self.server) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) if is_for_later(&error) => return Ok(true),
            Err(error) => return Err(error),
        }
        let processed = self.tls.process_new_packets();
        processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        self.decrypted()
    }

    /// Collects decrypted bytes; returns false if the server has ended the stream.
    fn decrypted(&mut self) -> io::Result<bool> {
        loop {
            match self.tls.reader().read(&mut self.step) {
                Ok(0) => {
                    self.hand_over()?;
                    return Ok(false);
                }
                Ok(count) => self.waiting.extend_from_slice(&self.step[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The stream ended without a closing message, as on a plain socket.
                Err(_) => return Ok(false),
            }
        }
        self.hand_over()?;
        Ok(true)
    }

    /// Sends waiting bytes to the connection, as many as it accepts.
    fn hand_over(&mut self) -> io::Result<()> {
        while self.has_waiting() {
            match self.inside.write(&self.waiting[self.taken..]) {
                Ok(count) => self.taken += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.waiting.clear();
        self.taken = 0;
        Ok(())
    }

    /// Reads from the connection and encrypts; returns false if the connection has closed.
    fn take(&mut self) -> io::Result<bool> {
        match self.inside.read(&mut self.step) {
            Ok(0) => {
                self.tls.send_close_notify();
                self.say()?;
                Ok(false)
            }
            Ok(count) => {
                self.tls.writer().write_all(&self.step[..count])?;
                Ok(true)
            }
            Err(error) if is_for_later(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
