//! TLS with pre-shared keys on a socket.

use super::claim::Claim;
use crate::tls::{Progress, TlsError, TlsStream};
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{self, ErrorCode, Ssl, SslContext, SslStream};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};

/// The largest number of bytes in a record of TLS.
const RECORD_BYTES_MAX: usize = 16 << 10;
/// OpenSSL's own answers are no longer taken above this number of encrypted bytes that the socket
/// has not accepted yet.
const UNSENT_BYTES_MAX: usize = 64 << 10;

/// The server's side of TLS on one socket.
pub(super) struct OpensslStream<'a> {
    tls: SslStream<Raw<'a>>,
    claims: Index<Ssl, Claim>,
    /// The text of a record, put together from the caller's buffers.
    record: Vec<u8>,
    problem: Option<String>,
}

/// The socket as OpenSSL uses it. What is written waits here for [`Raw::send`], so that OpenSSL
/// never has to repeat a write.
struct Raw<'a> {
    socket: BorrowedFd<'a>,
    flags: RecvFlags,
    /// The peer sends no more.
    has_ended: bool,
    unsent: Vec<u8>,
}

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = loop {
            match recv(self.socket, &mut *buffer, self.flags) {
                Ok((received, _)) => break received,
                Err(Errno::INTR) => {}
                // OpenSSL would take this for a socket that becomes ready later.
                Err(Errno::NOTCONN) => break 0,
                Err(error) => return Err(error.into()),
            }
        };
        self.has_ended |= received == 0;
        Ok(received)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.unsent.len() > UNSENT_BYTES_MAX {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.unsent.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Raw<'_> {
    /// Passes as many bytes to the socket as it accepts. Returns their number.
    fn send(&mut self) -> Result<usize, Errno> {
        let mut sent = 0;
        let result = loop {
            if sent == self.unsent.len() {
                break Ok(sent);
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(self.socket, &self.unsent[sent..], flags) {
                Ok(taken) => sent += taken,
                Err(Errno::AGAIN) => break Ok(sent),
                Err(Errno::INTR) => {}
                Err(error) => break Err(error),
            }
        };
        self.unsent.drain(..sent);
        result
    }
}

impl<'a> OpensslStream<'a> {
    pub(super) fn new(
        socket: BorrowedFd<'a>,
        context: &SslContext,
        claims: Index<Ssl, Claim>,
    ) -> Result<Self, ErrorStack> {
        let raw = Raw {
            socket,
            flags: RecvFlags::DONTWAIT,
            has_ended: false,
            unsent: Vec::new(),
        };
        Ok(Self {
            tls: SslStream::new(Ssl::new(context)?, raw)?,
            claims,
            record: Vec::new(),
            problem: None,
        })
    }

    /// Who the client says it is.
    fn claim(&self) -> Option<&Claim> {
        self.tls.ssl().ex_data(self.claims)
    }

    /// Notes a failure. `AGAIN` if there is none, but bytes are missing; `None` if the stream ended
    /// without a closing message, as a plain socket does.
    fn failed(&mut self, error: &ssl::Error) -> Option<Errno> {
        match (error.code(), error.io_error()) {
            (ErrorCode::WANT_READ | ErrorCode::WANT_WRITE, _) => Some(Errno::AGAIN),
            (ErrorCode::ZERO_RETURN, _) => None,
            (_, Some(error)) => Some(Errno::from_io_error(error).unwrap_or(Errno::IO)),
            _ if self.tls.get_ref().has_ended => None,
            _ => {
                self.problem = Some(in_words(error));
                // Informs the peer of the reason, if it still reads.
                let _ = self.flush();
                Some(Errno::PROTO)
            }
        }
    }

    /// Decrypts data, at most of one record; `None` at the end of the stream.
    fn decrypt(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        let read = self.tls.ssl_read(buffer);
        let read = read.map(Some).or_else(|error| {
            let failed = self.failed(&error);
            failed.map_or(Ok(None), Err)
        });
        // OpenSSL may have answered by itself.
        self.flush()?;
        read
    }

    /// Encrypts a record of the data at the front of the slices. Returns the number of its bytes.
    fn encrypt(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        self.record.clear();
        for slice in slices {
            let room = RECORD_BYTES_MAX - self.record.len();
            self.record
                .extend_from_slice(&slice[..room.min(slice.len())]);
            if self.record.len() == RECORD_BYTES_MAX {
                break;
            }
        }
        match self.tls.ssl_write(&self.record) {
            Ok(taken) => Ok(taken),
            Err(error) => Err(self.failed(&error).unwrap_or(Errno::PIPE)),
        }
    }

    /// Why the handshake failed.
    fn refusal(&mut self) -> String {
        let problem = self.problem.take().unwrap_or_default();
        match self.claim() {
            Some(Claim {
                name,
                is_known: false,
            }) => {
                format!("the client says that it is {name:?}, which has no key in --tls-psk")
            }
            Some(Claim { name, .. }) => {
                format!("the client says that it is {name:?}, and fails with its key: {problem}")
            }
            None => format!("the client named no key of --tls-psk: {problem}"),
        }
    }
}

/// Describes a failure for operators.
fn in_words(error: &ssl::Error) -> String {
    let stack = error.ssl_error().map(ErrorStack::errors);
    let reason = stack
        .and_then(<[_]>::first)
        .and_then(openssl::error::Error::reason);
    reason.map_or_else(|| error.to_string(), str::to_owned)
}

impl TlsStream for OpensslStream<'_> {
    fn shake_hands(&mut self) -> Result<Progress, TlsError> {
        let gone = |error: Errno| TlsError(format!("the connection ended: {error}"));
        let accepted = self.tls.accept();
        let waits = match accepted.map_err(|error| self.failed(&error)) {
            Ok(()) => false,
            Err(Some(Errno::AGAIN)) => true,
            Err(Some(Errno::PROTO)) => return Err(TlsError(self.refusal())),
            Err(Some(error)) => return Err(gone(error)),
            Err(None) => return Err(TlsError("the client left in the middle".into())),
        };
        self.flush().map_err(gone)?;
        if self.has_unsent() {
            return Ok(Progress::Send);
        }
        if waits {
            return Ok(Progress::Receive);
        }
        match self.claim() {
            Some(claim) if claim.is_known => Ok(Progress::Done(vec![claim.name.clone()])),
            // Nobody has the key of such a client.
            _ => Err(TlsError(self.refusal())),
        }
    }

    fn receive(&mut self, slices: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<usize, Errno> {
        self.tls.get_mut().flags = flags;
        let mut total = 0;
        for slice in slices {
            let mut rest = &mut **slice;
            while !rest.is_empty() {
                match self.decrypt(rest) {
                    Ok(Some(received)) => {
                        total += received;
                        rest = &mut rest[received..];
                    }
                    Ok(None) => return Ok(total),
                    Err(_) if total > 0 => return Ok(total),
                    Err(error) => return Err(error),
                }
                // What follows is taken only if it is there.
                self.tls.get_mut().flags = flags | RecvFlags::DONTWAIT;
            }
        }
        Ok(total)
    }

    fn send(&mut self, mut slices: &mut [IoSlice<'_>]) -> Result<usize, Errno> {
        let mut taken = 0;
        IoSlice::advance_slices(&mut slices, 0);
        self.flush()?;
        while !slices.is_empty() && !self.has_unsent() {
            let encrypted = self.encrypt(slices)?;
            IoSlice::advance_slices(&mut slices, encrypted);
            taken += encrypted;
            self.flush()?;
        }
        if taken == 0 && !slices.is_empty() {
            return Err(Errno::AGAIN);
        }
        Ok(taken)
    }

    fn has_unsent(&self) -> bool {
        !self.tls.get_ref().unsent.is_empty()
    }

    fn flush(&mut self) -> Result<usize, Errno> {
        self.tls.get_mut().send()
    }

    fn say_goodbye(&mut self) {
        // A peer that no longer reads does not need it.
        let _ = self.tls.shutdown();
        let _ = self.flush();
    }

    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}
