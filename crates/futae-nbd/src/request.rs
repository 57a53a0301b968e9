//! Requests of the transmission phase: reading and writing their headers.

use crate::bytes::{Reader, pack};
use crate::constants::*;
use crate::error::WireError;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// Read a range.
    Read,
    /// Write the payload to a range.
    Write,
    /// End the session; no reply.
    Disconnect,
    /// Make answered writes durable.
    Flush,
    /// The range is no longer needed.
    Trim,
    /// The client will want this range: a prefetch hint, and futae's eviction notice.
    Cache,
    /// Write zeroes to a range.
    WriteZeroes,
    /// Describe a range.
    BlockStatus,
    /// An evicted block with its data, only after the extension was negotiated; no reply.
    Demote,
    /// A type this crate does not know.
    Unknown(u16),
}

impl Command {
    /// The command of a type on the wire.
    pub const fn from_code(code: u16) -> Self {
        match code {
            CMD_READ => Self::Read,
            CMD_WRITE => Self::Write,
            CMD_DISC => Self::Disconnect,
            CMD_FLUSH => Self::Flush,
            CMD_TRIM => Self::Trim,
            CMD_CACHE => Self::Cache,
            CMD_WRITE_ZEROES => Self::WriteZeroes,
            CMD_BLOCK_STATUS => Self::BlockStatus,
            CMD_DEMOTE => Self::Demote,
            other => Self::Unknown(other),
        }
    }

    /// The type on the wire.
    pub const fn code(self) -> u16 {
        match self {
            Self::Read => CMD_READ,
            Self::Write => CMD_WRITE,
            Self::Disconnect => CMD_DISC,
            Self::Flush => CMD_FLUSH,
            Self::Trim => CMD_TRIM,
            Self::Cache => CMD_CACHE,
            Self::WriteZeroes => CMD_WRITE_ZEROES,
            Self::BlockStatus => CMD_BLOCK_STATUS,
            Self::Demote => CMD_DEMOTE,
            Self::Unknown(code) => code,
        }
    }

    /// The name in the specification, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Disconnect => "DISC",
            Self::Flush => "FLUSH",
            Self::Trim => "TRIM",
            Self::Cache => "CACHE",
            Self::WriteZeroes => "WRITE_ZEROES",
            Self::BlockStatus => "BLOCK_STATUS",
            Self::Demote => "DEMOTE",
            Self::Unknown(_) => "unknown command",
        }
    }

    /// Whether it changes what the volume holds.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Trim | Self::WriteZeroes)
    }

    /// Whether its header is followed by `length_bytes` of payload.
    pub const fn has_payload(self) -> bool {
        matches!(self, Self::Write | Self::Demote)
    }
}

/// The 16 flags of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct CommandFlags(pub u16);

impl CommandFlags {
    /// No flags.
    pub const NONE: Self = Self(0);
    /// Answer only when durable.
    pub const FUA: Self = Self(1);
    /// WRITE_ZEROES must not punch a hole.
    pub const NO_HOLE: Self = Self(1 << 1);
    /// READ must be answered by one content chunk.
    pub const DF: Self = Self(1 << 2);
    /// BLOCK_STATUS must be answered by one extent.
    pub const REQ_ONE: Self = Self(1 << 3);
    /// WRITE_ZEROES must fail at once rather than be slow.
    pub const FAST_ZERO: Self = Self(1 << 4);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and those of `other`.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The header of a request: 28 bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// Modifiers.
    pub flags: CommandFlags,
    /// What is asked.
    pub command: Command,
    /// Returned in the reply. After demotion was negotiated: the client's sequence number.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range, in bytes.
    pub length_bytes: u32,
}

impl RequestHeader {
    /// A request without flags.
    pub const fn new(command: Command, cookie: u64, offset: u64, length_bytes: u32) -> Self {
        Self {
            flags: CommandFlags::NONE,
            command,
            cookie,
            offset,
            length_bytes,
        }
    }

    /// The header on the wire.
    pub fn encode(&self) -> [u8; REQUEST_HEADER_BYTES] {
        pack(&[
            &REQUEST_MAGIC.to_be_bytes(),
            &self.flags.0.to_be_bytes(),
            &self.command.code().to_be_bytes(),
            &self.cookie.to_be_bytes(),
            &self.offset.to_be_bytes(),
            &self.length_bytes.to_be_bytes(),
        ])
    }

    /// Reads a header. Nothing but the magic is judged; that is for [`crate::RequestRules::check`].
    ///
    /// # Errors
    ///
    /// [`WireError::BadMagic`]: the stream is out of step, close the connection.
    pub fn parse(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Result<Self, WireError> {
        check_magic(bytes)?;
        let [_, _, _, _, f0, f1, t0, t1, rest @ ..] = *bytes;
        let mut fields = Reader::new(&rest);
        let (cookie, offset, length) = (fields.u64(), fields.u64(), fields.u32());
        Ok(Self {
            flags: CommandFlags(u16::from_be_bytes([f0, f1])),
            command: Command::from_code(u16::from_be_bytes([t0, t1])),
            cookie: cookie.unwrap_or_default(),
            offset: offset.unwrap_or_default(),
            length_bytes: length.unwrap_or_default(),
        })
    }

    /// Bytes of payload that follow the header.
    pub const fn payload_bytes(&self) -> u32 {
        if self.command.has_payload() {
            self.length_bytes
        } else {
            0
        }
    }
}

fn check_magic(bytes: &[u8]) -> Result<(), WireError> {
    match Reader::new(bytes).u32() {
        Some(found) if found != REQUEST_MAGIC => Err(WireError::BadMagic {
            field: "request magic",
            expected: REQUEST_MAGIC.into(),
            found: found.into(),
        }),
        _ => Ok(()),
    }
}

/// Reads a header off the front of what has arrived: the header and its length in bytes, or
/// `None` if it is not complete. The payload, if any, is left to the caller, who can receive it
/// straight into its own buffer.
///
/// # Errors
///
/// [`WireError::BadMagic`], as soon as four bytes tell.
pub fn parse_request(buffer: &[u8]) -> Result<Option<(RequestHeader, usize)>, WireError> {
    match buffer.first_chunk() {
        Some(header) => Ok(Some((RequestHeader::parse(header)?, REQUEST_HEADER_BYTES))),
        None => check_magic(buffer).map(|()| None),
    }
}
