//! Replies of the transmission phase: headers for a server to send before data that it never
//! copies, and a parser for the client.
//!
//! A client that did not negotiate structured replies gets [`simple`] for everything. One that did
//! must get chunks for READ and BLOCK_STATUS, and may get either for the rest. A READ of no bytes
//! is answered with [`done`] alone, since a content chunk may not be empty.

use crate::bytes::{Reader, pack};
use crate::constants::*;
use crate::error::{ErrorNumber, WireError};

/// A run of bytes in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, not zero.
    pub length_bytes: u32,
    /// State bits; for `base:allocation`, [`STATE_HOLE`] and [`STATE_ZERO`].
    pub state: u32,
}

/// A simple reply: 16 bytes. After one to a READ without error its data follow.
pub fn simple(cookie: u64, error: Option<ErrorNumber>) -> [u8; SIMPLE_REPLY_BYTES] {
    pack(&[
        &SIMPLE_REPLY_MAGIC.to_be_bytes(),
        &error.map_or(0, ErrorNumber::code).to_be_bytes(),
        &cookie.to_be_bytes(),
    ])
}

fn chunk(cookie: u64, kind: u16, length_bytes: u32, last: bool) -> [u8; CHUNK_HEADER_BYTES] {
    pack(&[
        &STRUCTURED_REPLY_MAGIC.to_be_bytes(),
        &(if last { REPLY_FLAG_DONE } else { 0 }).to_be_bytes(),
        &kind.to_be_bytes(),
        &cookie.to_be_bytes(),
        &length_bytes.to_be_bytes(),
    ])
}

/// Header of a chunk of data; `data_bytes` of data follow, from 1 to [`MAX_PAYLOAD_BYTES`]. Set
/// `last` only if reading cannot fail any more.
pub fn data(cookie: u64, offset: u64, data_bytes: u32, last: bool) -> [u8; 28] {
    let length = data_bytes.saturating_add(8);
    pack(&[
        &chunk(cookie, REPLY_TYPE_OFFSET_DATA, length, last),
        &offset.to_be_bytes(),
    ])
}

/// A chunk that says that `hole_bytes`, at least 1, read as zeroes.
pub fn hole(cookie: u64, offset: u64, hole_bytes: u32, last: bool) -> [u8; 32] {
    let header = chunk(cookie, REPLY_TYPE_OFFSET_HOLE, 12, last);
    pack(&[&header, &offset.to_be_bytes(), &hole_bytes.to_be_bytes()])
}

/// A chunk that ends a reply, and alone means success without data.
pub fn done(cookie: u64) -> [u8; CHUNK_HEADER_BYTES] {
    chunk(cookie, REPLY_TYPE_NONE, 0, true)
}

/// The longest start of `message` that fits a string of the protocol.
fn clipped(message: &str) -> &str {
    let mut end = message.len().min(MAX_STRING_BYTES);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

/// Appends a final chunk that says that the whole request failed, with a message for people, cut
/// at 4096 bytes.
pub fn append_error(out: &mut Vec<u8>, cookie: u64, error: ErrorNumber, message: &str) {
    let message = clipped(message);
    let length = 6 + message.len() as u32;
    out.extend_from_slice(&chunk(cookie, REPLY_TYPE_ERROR, length, true));
    out.extend_from_slice(&error.code().to_be_bytes());
    out.extend_from_slice(&(message.len() as u16).to_be_bytes());
    out.extend_from_slice(message.as_bytes());
}

/// Appends a chunk that says that the request failed at `offset`; what was sent before that offset
/// is good.
pub fn append_error_at(
    out: &mut Vec<u8>,
    cookie: u64,
    error: ErrorNumber,
    message: &str,
    offset: u64,
    last: bool,
) {
    let message = clipped(message);
    let length = 14 + message.len() as u32;
    out.extend_from_slice(&chunk(cookie, REPLY_TYPE_ERROR_OFFSET, length, last));
    out.extend_from_slice(&error.code().to_be_bytes());
    out.extend_from_slice(&(message.len() as u16).to_be_bytes());
    out.extend_from_slice(message.as_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
}

/// Appends a chunk with the extents of a metadata context, at least one. More than
/// [`MAX_EXTENTS`] are left off, as the specification allows.
pub fn append_block_status(
    out: &mut Vec<u8>,
    cookie: u64,
    context_id: u32,
    extents: &[Extent],
    last: bool,
) {
    let extents = &extents[..extents.len().min(MAX_EXTENTS)];
    let length = 4 + 8 * extents.len() as u32;
    out.extend_from_slice(&chunk(cookie, REPLY_TYPE_BLOCK_STATUS, length, last));
    out.extend_from_slice(&context_id.to_be_bytes());
    for extent in extents {
        out.extend_from_slice(&extent.length_bytes.to_be_bytes());
        out.extend_from_slice(&extent.state.to_be_bytes());
    }
}

/// One message from a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A simple reply. If it answers a READ without error, as many bytes as were asked for follow.
    Simple {
        /// The request's cookie.
        cookie: u64,
        /// The failure, if any.
        error: Option<ErrorNumber>,
    },
    /// The start of a chunk of data; `data_bytes` follow. The caller knows the request and must
    /// see that the range lies inside it.
    Data {
        /// The request's cookie.
        cookie: u64,
        /// First byte in the export.
        offset: u64,
        /// Length, from 1 to [`MAX_PAYLOAD_BYTES`].
        data_bytes: u32,
        /// Whether the reply ends after the data.
        last: bool,
    },
    /// A range that reads as zeroes.
    Hole {
        /// The request's cookie.
        cookie: u64,
        /// First byte in the export.
        offset: u64,
        /// Length, at least 1.
        hole_bytes: u32,
        /// Whether the reply ends here.
        last: bool,
    },
    /// The end of a reply.
    Done {
        /// The request's cookie.
        cookie: u64,
    },
    /// The request failed, all of it or from `offset` on.
    Error {
        /// The request's cookie.
        cookie: u64,
        /// The failure.
        error: ErrorNumber,
        /// The server's words, UTF-8 if it keeps the rules.
        message: &'a [u8],
        /// Where it failed, if told.
        offset: Option<u64>,
        /// Whether the reply ends here.
        last: bool,
    },
    /// The state of a range in one metadata context.
    BlockStatus {
        /// The request's cookie.
        cookie: u64,
        /// The context.
        context_id: u32,
        /// The extents, from the request's offset on.
        extents: Extents<'a>,
        /// Whether the reply ends here.
        last: bool,
    },
}

/// The extents of a block status chunk, read as they are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extents<'a> {
    bytes: &'a [u8],
}

impl Iterator for Extents<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let mut fields = Reader::new(self.bytes);
        let extent = Extent {
            length_bytes: fields.u32()?,
            state: fields.u32()?,
        };
        self.bytes = fields.rest();
        Some(extent)
    }
}

/// Bytes an error chunk may have beyond its message, fields of unknown error types included.
const ERROR_EXTRA_BYTES: usize = 1024;

/// Reads a reply off the front of what has arrived: the reply and how many bytes it took, or
/// `None` if it is not complete. Data of a READ are left to the caller. Nothing is allocated, and
/// the caller never needs to hold more than 8 MiB and a few bytes for one reply.
///
/// # Errors
///
/// [`WireError::BadMagic`] or [`WireError::BadField`], as soon as the header tells; the stream is
/// of no further use.
pub fn parse_reply(buffer: &[u8]) -> Result<Option<(Reply<'_>, usize)>, WireError> {
    let mut fields = Reader::new(buffer);
    match fields.u32() {
        None => Ok(None),
        Some(SIMPLE_REPLY_MAGIC) => Ok(simple_reply(fields).map(|r| (r, SIMPLE_REPLY_BYTES))),
        Some(STRUCTURED_REPLY_MAGIC) => structured_reply(fields),
        Some(found) => Err(WireError::BadMagic {
            field: "reply magic",
            expected: SIMPLE_REPLY_MAGIC.into(),
            found: found.into(),
        }),
    }
}

fn simple_reply(mut fields: Reader<'_>) -> Option<Reply<'static>> {
    let error = ErrorNumber::from_code(fields.u32()?);
    Some(Reply::Simple {
        error,
        cookie: fields.u64()?,
    })
}

/// A chunk's header after its magic.
struct Chunk {
    last: bool,
    kind: u16,
    cookie: u64,
    length: usize,
}

fn structured_reply(mut fields: Reader<'_>) -> Result<Option<(Reply<'_>, usize)>, WireError> {
    let Some(chunk) = chunk_header(&mut fields) else {
        return Ok(None);
    };
    chunk.check()?;
    // Of a chunk of data only the offset is read here.
    let wanted = if chunk.kind == REPLY_TYPE_OFFSET_DATA {
        8
    } else {
        chunk.length
    };
    let Some(payload) = fields.take(wanted) else {
        return Ok(None);
    };
    let reply = chunk
        .read(payload)
        .ok_or(chunk.bad("payload", "its parts do not add up"))?;
    Ok(Some((reply, CHUNK_HEADER_BYTES + wanted)))
}

fn chunk_header(fields: &mut Reader<'_>) -> Option<Chunk> {
    let last = fields.u16()? & REPLY_FLAG_DONE != 0;
    let (kind, cookie, length) = (fields.u16()?, fields.u64()?, fields.u32()?);
    Some(Chunk {
        last,
        kind,
        cookie,
        length: usize::try_from(length).ok()?,
    })
}

impl Chunk {
    fn is_error(&self) -> bool {
        self.kind & REPLY_TYPE_FLAG_ERROR != 0
    }

    fn bad(&self, field: &'static str, wanted: &'static str) -> WireError {
        let found = match field {
            "type" => u64::from(self.kind),
            _ => self.length as u64,
        };
        WireError::BadField {
            message: "reply chunk",
            field,
            found,
            wanted,
        }
    }

    /// Judges the header before any payload is waited for.
    fn check(&self) -> Result<(), WireError> {
        let length = self.length;
        let (right, wanted) = match self.kind {
            REPLY_TYPE_NONE => (length == 0 && self.last, "NONE is empty and ends the reply"),
            REPLY_TYPE_OFFSET_DATA => {
                let most = 8 + MAX_PAYLOAD_BYTES as usize;
                (
                    (9..=most).contains(&length),
                    "data are from 1 byte to 32 MiB, and 8 of offset",
                )
            }
            REPLY_TYPE_OFFSET_HOLE => (length == 12, "a hole has 12 bytes"),
            REPLY_TYPE_BLOCK_STATUS => {
                let whole = length >= 12 && (length - 4).is_multiple_of(8);
                let most = 4 + 8 * MAX_EXTENTS;
                (
                    whole && length <= most,
                    "block status has 4 bytes and 1 to 2^20 times 8",
                )
            }
            _ if self.is_error() => {
                let least = if self.kind == REPLY_TYPE_ERROR_OFFSET {
                    14
                } else {
                    6
                };
                let most = MAX_STRING_BYTES + ERROR_EXTRA_BYTES;
                (
                    (least..=most).contains(&length),
                    "an error has 6 or 14 bytes and a message",
                )
            }
            _ => return Err(self.bad("type", "not a chunk type of the specification")),
        };
        if right {
            Ok(())
        } else {
            Err(self.bad("length", wanted))
        }
    }

    /// Reads the payload; `None` if its parts contradict the header or the specification.
    fn read<'a>(&self, payload: &'a [u8]) -> Option<Reply<'a>> {
        let Self { last, cookie, .. } = *self;
        let mut fields = Reader::new(payload);
        Some(match self.kind {
            REPLY_TYPE_NONE => Reply::Done { cookie },
            REPLY_TYPE_OFFSET_DATA => {
                let data_bytes = u32::try_from(self.length - 8).ok()?;
                Reply::Data {
                    cookie,
                    offset: fields.u64()?,
                    data_bytes,
                    last,
                }
            }
            REPLY_TYPE_OFFSET_HOLE => {
                let (offset, hole_bytes) = (fields.u64()?, fields.u32()?);
                (hole_bytes != 0).then_some(Reply::Hole {
                    cookie,
                    offset,
                    hole_bytes,
                    last,
                })?
            }
            REPLY_TYPE_BLOCK_STATUS => {
                let context_id = fields.u32()?;
                let extents = Extents {
                    bytes: fields.rest(),
                };
                let sound = { extents }.all(|extent| extent.length_bytes != 0);
                sound.then_some(Reply::BlockStatus {
                    cookie,
                    context_id,
                    extents,
                    last,
                })?
            }
            kind => {
                let error = ErrorNumber::from_code(fields.u32()?)?;
                let length = fields.u16()?;
                let message = fields.take(length.into())?;
                let at = kind == REPLY_TYPE_ERROR_OFFSET;
                let offset = if at { Some(fields.u64()?) } else { None };
                Reply::Error {
                    cookie,
                    error,
                    message,
                    offset,
                    last,
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: u16, length: usize) -> Result<(), (&'static str, u64)> {
        let chunk = Chunk {
            last: true,
            kind,
            cookie: 1,
            length,
        };
        chunk.check().map_err(|error| match error {
            WireError::BadField { field, found, .. } => (field, found),
            other => panic!("{other}"),
        })
    }

    #[test]
    fn kinds_of_chunks_that_nobody_knows_are_errors_or_refused() {
        let unknown_error = REPLY_TYPE_FLAG_ERROR | 99;
        assert_eq!(check(unknown_error, 6), Ok(()));
        assert_eq!(check(unknown_error, 5), Err(("length", 5)));
        assert_eq!(check(REPLY_TYPE_ERROR_OFFSET, 13), Err(("length", 13)));
        assert_eq!(check(99, 6), Err(("type", 99)));
    }

    #[test]
    fn block_status_has_at_most_so_many_extents() {
        let most = 4 + 8 * MAX_EXTENTS;
        assert_eq!(check(REPLY_TYPE_BLOCK_STATUS, most), Ok(()));
        for length in [4, 16, most + 8] {
            let refused = Err(("length", length as u64));
            assert_eq!(check(REPLY_TYPE_BLOCK_STATUS, length), refused);
        }
    }
}
