//! Incoming requests: one system call receives as many as have arrived, and long payloads go
//! straight into the buffer that the cache will use.

use crate::kept_clients::Unread;
use crate::wire::Wire;
use futae_engine::IoBuf;
use futae_nbd::{
    Command, ErrorNumber, Refusal, RequestHeader, RequestRules, WireError, parse_request,
};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io::{self, IoSliceMut};

/// Initial size of the read-ahead buffer. A client that sends more at a time gets a longer buffer.
const BUFFER_BYTES: usize = 8 * 1024;

/// The result of one [`Intake::fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// The number of bytes received.
    Bytes(usize),
    WouldBlock,
    End,
}

/// One request, or how to handle it otherwise.
#[derive(Debug)]
pub(crate) enum Item {
    /// To be carried out, with a payload if the command has one.
    Request(RequestHeader, Option<IoBuf>),
    /// To be answered with an error.
    Refused(RequestHeader, ErrorNumber, &'static str),
    /// A demotion that violates the rules of form: no answer.
    Ignored,
}

/// How much of a request has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// Its header, and it has a payload: it may be received.
    Header,
    /// Its payload, whose header was admitted: it may be carried out.
    Payload,
    /// All of it, without a payload: it may be carried out.
    Whole,
}

struct Payload {
    header: RequestHeader,
    data: IoBuf,
    filled: usize,
}

impl Payload {
    fn is_incomplete(&self) -> bool {
        self.filled < self.data.len()
    }
}

/// The receiving side of a connection in the transmission phase.
pub(crate) struct Intake {
    buffer: Vec<u8>,
    /// The largest size of the buffer.
    most: usize,
    start: usize,
    end: usize,
    /// The last receive filled the buffer: more bytes may be waiting.
    was_full: bool,
    payload: Option<Payload>,
    discard: usize,
}

impl Intake {
    /// An intake that starts with the bytes received along with the handshake, and reads at most
    /// `most` bytes ahead.
    pub(crate) fn new(received: &[u8], most: usize) -> Self {
        let mut buffer = vec![0; BUFFER_BYTES.min(most).max(received.len())];
        buffer[..received.len()].copy_from_slice(received);
        Self {
            buffer,
            most,
            start: 0,
            end: received.len(),
            was_full: false,
            payload: None,
            discard: 0,
        }
    }

    /// Receives once, without waiting. Call it only after [`Self::next`] found nothing.
    pub(crate) fn fill(&mut self, wire: &mut Wire<'_>) -> io::Result<Filled> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        // It began with the payload that another intake had left unread.
        if self.buffer.len() > self.most && self.end <= self.most {
            self.buffer.truncate(self.most);
            self.buffer.shrink_to_fit();
        }
        let was_full = std::mem::take(&mut self.was_full);
        if was_full && self.buffer.len() < self.most {
            self.buffer
                .resize((2 * self.buffer.len()).min(self.most), 0);
        }
        let received = loop {
            match self.receive(wire) {
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
        self.was_full = self.end == self.buffer.len();
        Ok(Filled::Bytes(received))
    }

    fn receive(&mut self, wire: &mut Wire<'_>) -> Result<usize, Errno> {
        let flags = RecvFlags::DONTWAIT;
        let rest = &mut self.buffer[self.end..];
        let Some(payload) = &mut self.payload else {
            return wire.receive(&mut [IoSliceMut::new(rest)], flags);
        };
        let missing = &mut payload.data.as_mut_slice()[payload.filled..];
        let mut slices = [IoSliceMut::new(missing), IoSliceMut::new(rest)];
        wire.receive(&mut slices, flags)
    }

    /// An intake that starts with what another has left unread.
    pub(crate) fn after(unread: &Unread, most: usize) -> Self {
        Self {
            discard: unread.skip_bytes,
            ..Self::new(&unread.bytes, most)
        }
    }

    /// What has been received and not returned as a request.
    pub(crate) fn into_unread(self) -> Unread {
        let mut bytes = Vec::new();
        if let Some(payload) = &self.payload {
            bytes.extend_from_slice(&payload.header.encode());
            bytes.extend_from_slice(&payload.data.as_slice()[..payload.filled]);
        }
        bytes.extend_from_slice(&self.buffer[self.start..self.end]);
        Unread {
            bytes,
            skip_bytes: self.discard,
        }
    }

    /// Abandons the request whose payload is coming, for which memory was reserved.
    pub(crate) fn give_up(&mut self) -> Option<RequestHeader> {
        self.payload.take().map(|payload| payload.header)
    }

    /// Whether a part of a payload has not been received.
    pub(crate) fn is_in_payload(&self) -> bool {
        self.payload.as_ref().is_some_and(Payload::is_incomplete)
    }

    /// The next request that has arrived in full. Calls `admits` before memory is reserved for a
    /// payload, and before a request is returned; a request that it refuses stays for a later call.
    pub(crate) fn next(
        &mut self,
        rules: &RequestRules,
        mut admits: impl FnMut(&RequestHeader, Arrived) -> bool,
    ) -> Result<Option<Item>, WireError> {
        let skipped = self.discard.min(self.end - self.start);
        self.discard -= skipped;
        self.start += skipped;
        if self.payload.is_some() {
            return Ok(self.finish_payload(admits));
        }
        if self.discard > 0 {
            return Ok(None);
        }
        let Some((header, bytes)) = parse_request(&self.buffer[self.start..self.end])? else {
            return Ok(None);
        };
        let checked = rules.check(&header);
        let arrived = if header.command.has_payload() {
            Arrived::Header
        } else {
            Arrived::Whole
        };
        if checked.is_ok() && !admits(&header, arrived) {
            return Ok(None);
        }
        self.start += bytes;
        match checked {
            Ok(()) if header.command.has_payload() => {
                let data = IoBuf::new(header.payload_bytes() as usize);
                self.payload = Some(Payload {
                    header,
                    data,
                    filled: 0,
                });
                Ok(self.finish_payload(admits))
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

    /// Moves buffered bytes into the payload; returns the request if that completes it and it is
    /// admitted.
    fn finish_payload(
        &mut self,
        mut admits: impl FnMut(&RequestHeader, Arrived) -> bool,
    ) -> Option<Item> {
        let payload = self.payload.as_mut()?;
        let missing = &mut payload.data.as_mut_slice()[payload.filled..];
        let buffered = &self.buffer[self.start..self.end];
        let count = missing.len().min(buffered.len());
        missing[..count].copy_from_slice(&buffered[..count]);
        payload.filled += count;
        self.start += count;
        if payload.is_incomplete() || !admits(&payload.header, Arrived::Payload) {
            return None;
        }
        self.payload
            .take()
            .map(|payload| Item::Request(payload.header, Some(payload.data)))
    }
}

/// Whether a request has zero length and can be answered without the cache.
pub(crate) fn is_empty(header: &RequestHeader) -> bool {
    header.length_bytes == 0 && !matches!(header.command, Command::Flush | Command::Disconnect)
}
