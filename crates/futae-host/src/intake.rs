//! Requests on their way in: one system call brings as many as have arrived, and long payloads
//! go straight into the buffer that the cache will use.

use futae_engine::IoBuf;
use futae_wire::{
    Command, ErrorNumber, Refusal, RequestHeader, RequestRules, WireError, parse_request,
};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recv, recvmsg};
use std::io::{self, IoSliceMut};

/// Bytes read ahead. Small enough that most of a long payload goes past it.
const BUFFER_BYTES: usize = 128 * 1024;

/// What one [`Intake::fill`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    Bytes,
    WouldBlock,
    End,
}

/// One request, or what to do instead.
#[derive(Debug)]
pub(crate) enum Item {
    /// To be carried out; a payload if the command has one.
    Request(RequestHeader, Option<IoBuf>),
    /// To be answered with an error.
    Refused(RequestHeader, ErrorNumber, &'static str),
    /// A demotion that breaks a rule of shape: no answer.
    Ignored,
}

struct Payload {
    header: RequestHeader,
    data: IoBuf,
    filled: usize,
}

/// The receiving side of a connection in the transmission phase.
pub(crate) struct Intake {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    payload: Option<Payload>,
    discard: usize,
}

impl Intake {
    /// An intake that starts with what was received along with the handshake.
    pub(crate) fn new(received: &[u8]) -> Self {
        let mut buffer = vec![0; BUFFER_BYTES.max(received.len())].into_boxed_slice();
        buffer[..received.len()].copy_from_slice(received);
        Self {
            buffer,
            start: 0,
            end: received.len(),
            payload: None,
            discard: 0,
        }
    }

    /// Receives once. Call it only after [`Self::next`] found nothing.
    pub(crate) fn fill(&mut self, socket: impl AsFd, wait: bool) -> io::Result<Filled> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let flags = if wait {
            RecvFlags::empty()
        } else {
            RecvFlags::DONTWAIT
        };
        let received = loop {
            match self.receive(&socket, flags) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Filled::WouldBlock),
                Err(error) => return Err(error.into()),
            }
        };
        if received == 0 {
            return Ok(Filled::End);
        }
        let direct = self.payload.as_mut().map_or(0, |payload| {
            let direct = received.min(payload.data.len() - payload.filled);
            payload.filled += direct;
            direct
        });
        self.end += received - direct;
        Ok(Filled::Bytes)
    }

    fn receive(&mut self, socket: impl AsFd, flags: RecvFlags) -> Result<usize, Errno> {
        let rest = &mut self.buffer[self.end..];
        let Some(payload) = &mut self.payload else {
            return recv(socket, rest, flags).map(|(received, _)| received);
        };
        let missing = &mut payload.data.as_mut_slice()[payload.filled..];
        let mut slices = [IoSliceMut::new(missing), IoSliceMut::new(rest)];
        recvmsg(
            socket,
            &mut slices,
            &mut RecvAncillaryBuffer::default(),
            flags,
        )
        .map(|message| message.bytes)
    }

    /// The next request that has arrived in full.
    pub(crate) fn next(&mut self, rules: &RequestRules) -> Result<Option<Item>, WireError> {
        let skipped = self.discard.min(self.end - self.start);
        self.discard -= skipped;
        self.start += skipped;
        if self.payload.is_some() {
            return Ok(self.finish_payload());
        }
        if self.discard > 0 {
            return Ok(None);
        }
        let Some((header, bytes)) = parse_request(&self.buffer[self.start..self.end])? else {
            return Ok(None);
        };
        self.start += bytes;
        match rules.check(&header) {
            Ok(()) if header.command.has_payload() => {
                let data = IoBuf::new(header.payload_bytes() as usize);
                self.payload = Some(Payload {
                    header,
                    data,
                    filled: 0,
                });
                Ok(self.finish_payload())
            }
            Ok(()) => Ok(Some(Item::Request(header, None))),
            Err(Refusal::Reply {
                error,
                why,
                discard_bytes,
            }) => {
                self.discard = discard_bytes as usize;
                Ok(Some(Item::Refused(header, error, why)))
            }
            Err(Refusal::Ignore { discard_bytes, .. }) => {
                self.discard = discard_bytes as usize;
                Ok(Some(Item::Ignored))
            }
            Err(Refusal::Drop(error)) => Err(error),
        }
    }

    /// Moves what the buffer has of the payload; the request if that completes it.
    fn finish_payload(&mut self) -> Option<Item> {
        let payload = self.payload.as_mut()?;
        let missing = &mut payload.data.as_mut_slice()[payload.filled..];
        let buffered = &self.buffer[self.start..self.end];
        let count = missing.len().min(buffered.len());
        missing[..count].copy_from_slice(&buffered[..count]);
        payload.filled += count;
        self.start += count;
        if payload.filled < payload.data.len() {
            return None;
        }
        self.payload
            .take()
            .map(|payload| Item::Request(payload.header, Some(payload.data)))
    }
}

/// Whether a request asks for nothing and can be answered without the cache.
pub(crate) fn is_empty(header: &RequestHeader) -> bool {
    header.length_bytes == 0 && !matches!(header.command, Command::Flush | Command::Disconnect)
}
