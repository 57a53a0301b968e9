//! TLS with certificates on a socket.

use super::interface::{Progress, TlsError, TlsStream};
use super::names;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::{Error, ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;

/// The largest number of encrypted bytes that the socket has not accepted yet.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// The server's side of TLS on one socket.
pub(super) struct RustlsStream<'a> {
    socket: BorrowedFd<'a>,
    tls: ServerConnection,
    problem: Option<String>,
}

/// The socket as rustls uses it.
struct Raw<'a>(BorrowedFd<'a>, RecvFlags);

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.0, buffer, self.1).map(|(received, _)| received)?)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(
            self.0,
            bytes,
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        )?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Describes a failure for operators.
fn in_words(error: &Error) -> String {
    match error {
        Error::NoCertificatesPresented => {
            "the client showed no certificate that an authority in --tls-client-ca has signed"
                .to_owned()
        }
        Error::InvalidCertificate(why) => {
            format!("the client's certificate is refused: {why:?}")
        }
        Error::AlertReceived(alert) => {
            format!(
                "the client gave up and says {alert:?}; it may not know the authority of the server's certificate"
            )
        }
        Error::InvalidMessage(why) => format!("the client sent bytes that are not TLS: {why:?}"),
        other => other.to_string(),
    }
}

/// The socket's error.
fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl<'a> RustlsStream<'a> {
    pub(super) fn new(
        socket: BorrowedFd<'a>,
        config: &Arc<ServerConfig>,
    ) -> Result<Self, TlsError> {
        let tls = ServerConnection::new(Arc::clone(config));
        let mut tls = tls.map_err(|error| TlsError(error.to_string()))?;
        tls.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        Ok(Self {
            socket,
            tls,
            problem: None,
        })
    }

    /// Receives once from the socket and decrypts; returns false at the end of the stream.
    fn pull(&mut self, flags: RecvFlags) -> Result<bool, Errno> {
        let received = loop {
            match self.tls.read_tls(&mut Raw(self.socket, flags)) {
                Ok(received) => break received,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(errno(&error)),
            }
        };
        if received == 0 {
            return Ok(false);
        }
        if let Err(error) = self.tls.process_new_packets() {
            self.problem = Some(in_words(&error));
            // Informs the peer of the reason, if it still reads.
            let _ = self.flush();
            return Err(Errno::PROTO);
        }
        self.flush()?;
        Ok(true)
    }

    /// Copies decrypted data; `None` if there is none yet.
    fn decrypted(&mut self, slices: &mut [IoSliceMut<'_>]) -> Option<usize> {
        let mut total = 0;
        for slice in slices.iter_mut().filter(|slice| !slice.is_empty()) {
            match self.tls.reader().read(slice) {
                Ok(received) if received == slice.len() => total += received,
                Ok(received) => return Some(total + received),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return (total > 0).then_some(total);
                }
                // The stream ended without a closing message, as on a plain socket.
                Err(_) => return Some(total),
            }
        }
        Some(total)
    }
}

impl TlsStream for RustlsStream<'_> {
    fn shake_hands(&mut self) -> Result<Progress, TlsError> {
        let gone = |error: Errno| TlsError(format!("the connection ended: {error}"));
        while self.tls.is_handshaking() || self.tls.wants_write() {
            self.flush().map_err(gone)?;
            if self.tls.wants_write() {
                return Ok(Progress::Send);
            }
            if !self.tls.is_handshaking() {
                break;
            }
            match self.pull(RecvFlags::DONTWAIT) {
                Ok(true) => {}
                Ok(false) => return Err(TlsError("the client left in the middle".into())),
                Err(Errno::AGAIN) => return Ok(Progress::Receive),
                Err(error) => {
                    let problem = self.problem.take();
                    return Err(problem.map_or_else(|| gone(error), TlsError));
                }
            }
        }
        let certificate = self.tls.peer_certificates().and_then(<[_]>::first);
        Ok(Progress::Done(
            certificate.map(names::of).unwrap_or_default(),
        ))
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    fn receive(&mut self, slices: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<usize, Errno> {
        loop {
            if let Some(received) = self.decrypted(slices) {
                return Ok(received);
            }
            // TLS's own answer must be sent before waiting for data.
            let must_send = self.tls.wants_write() && !flags.contains(RecvFlags::DONTWAIT);
            if must_send {
                return Err(Errno::AGAIN);
            }
            if !self.pull(flags)? {
                return Ok(0);
            }
        }
    }

    fn send(&mut self, mut slices: &mut [IoSlice<'_>]) -> Result<usize, Errno> {
        let mut taken = 0;
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let wrote = self.tls.writer().write_vectored(slices);
            let wrote = wrote.map_err(|error| errno(&error))?;
            IoSlice::advance_slices(&mut slices, wrote);
            taken += wrote;
            self.flush()?;
            if self.tls.wants_write() {
                break;
            }
        }
        if taken == 0 && !slices.is_empty() {
            return Err(Errno::AGAIN);
        }
        Ok(taken)
    }

    fn has_unsent(&self) -> bool {
        self.tls.wants_write()
    }

    fn flush(&mut self) -> Result<usize, Errno> {
        let mut sent = 0;
        while self.tls.wants_write() {
            match self
                .tls
                .write_tls(&mut Raw(self.socket, RecvFlags::empty()))
            {
                Ok(wrote) => sent += wrote,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(errno(&error)),
            }
        }
        Ok(sent)
    }

    fn say_goodbye(&mut self) {
        self.tls.send_close_notify();
        // A peer that no longer reads does not need it.
        let _ = self.flush();
    }
}
