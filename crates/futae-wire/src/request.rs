//! Requests of the transmission phase: reading and writing their headers, and judging them.

use crate::bytes::{Reader, pack};
use crate::constants::*;
use crate::error::{ErrorNumber, WireError};
use crate::export::{ExportInfo, TransmissionFlags};
use crate::extension::DemotionTerms;
use crate::option::Negotiated;

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

    /// Reads a header. Nothing but the magic is judged; that is for [`RequestRules::check`].
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

/// Why a request is not carried out, and what to do instead.
#[derive(Debug)]
pub enum Refusal {
    /// Read and throw away `discard_bytes` of payload, then answer with `error`.
    Reply {
        /// The number to answer with.
        error: ErrorNumber,
        /// The reason, for the message of a structured error and for logs.
        why: &'static str,
        /// Payload that follows the header.
        discard_bytes: u32,
    },
    /// A demotion that cannot be believed: read and throw away `discard_bytes`, count it, and
    /// answer nothing.
    Ignore {
        /// The rule it breaks.
        why: &'static str,
        /// Payload that follows the header.
        discard_bytes: u32,
    },
    /// Close the connection: what follows cannot be trusted to be a request.
    Drop(WireError),
}

/// What one connection may ask of its export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRules {
    /// Size of the export, in bytes.
    pub size_bytes: u64,
    /// The flags sent to the client.
    pub flags: TransmissionFlags,
    /// Whether structured replies were negotiated.
    pub structured_replies: bool,
    /// Whether `base:allocation` was selected.
    pub base_allocation: bool,
    /// The terms of demotion, if negotiated.
    pub demotion: Option<DemotionTerms>,
}

impl RequestRules {
    /// The rules that follow from a handshake.
    pub fn new(negotiated: &Negotiated) -> Self {
        Self {
            size_bytes: negotiated.export.size_bytes,
            flags: negotiated.transmission_flags(),
            structured_replies: negotiated.structured_replies,
            base_allocation: negotiated.base_allocation,
            demotion: negotiated.demotion,
        }
    }

    /// The rules for a client that negotiated nothing.
    pub fn plain(export: &ExportInfo) -> Self {
        Self {
            size_bytes: export.size_bytes,
            flags: export.transmission_flags(false),
            structured_replies: false,
            base_allocation: false,
            demotion: None,
        }
    }

    /// Judges a request by its header alone. A request without refusal lies inside the export, has
    /// only flags that mean something, and if it carries or returns data, at most 32 MiB of it.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] says whether to answer, ignore or hang up.
    pub fn check(&self, request: &RequestHeader) -> Result<(), Refusal> {
        if request.command == Command::Disconnect {
            return Ok(());
        }
        self.check_payload(request)?;
        if request.command == Command::Demote {
            return self.check_demotion(request);
        }
        match self.fault(request) {
            None => Ok(()),
            Some((error, why)) => {
                let discard_bytes = request.payload_bytes();
                Err(Refusal::Reply {
                    error,
                    why,
                    discard_bytes,
                })
            }
        }
    }

    fn check_payload(&self, request: &RequestHeader) -> Result<(), Refusal> {
        if request.command == Command::Demote && self.demotion.is_none() {
            // Its payload must not be taken for requests.
            return Err(Refusal::Drop(WireError::NotNegotiated { what: "DEMOTE" }));
        }
        if request.payload_bytes() > MAX_PAYLOAD_BYTES {
            return Err(Refusal::Drop(WireError::PayloadTooLarge {
                command: request.command.name(),
                length_bytes: request.length_bytes,
                limit_bytes: MAX_PAYLOAD_BYTES,
            }));
        }
        Ok(())
    }

    fn check_demotion(&self, request: &RequestHeader) -> Result<(), Refusal> {
        let ignored = CommandFlags::FUA.0;
        let misfit = if request.flags.0 & !ignored != 0 {
            Some("unknown flag")
        } else {
            self.demotion.and_then(|terms| {
                terms.misfit(request.offset, request.length_bytes, self.size_bytes)
            })
        };
        let discard_bytes = request.payload_bytes();
        misfit.map_or(Ok(()), |why| Err(Refusal::Ignore { why, discard_bytes }))
    }

    /// The error that a request deserves, if any: knowledge of the command first, then flags,
    /// permission, range, size.
    fn fault(&self, request: &RequestHeader) -> Option<(ErrorNumber, &'static str)> {
        use ErrorNumber::{Invalid, NoSpace, NotPermitted, Overflow};
        use TransmissionFlags as F;
        let has = |flag| self.flags.contains(flag);
        let writes = request.command.writes();
        // A read-only export advertises none of the writing commands: say so, not "unknown".
        if writes && has(F::READ_ONLY) {
            return Some((NotPermitted, "the export is read-only"));
        }
        let (known, own_flags) = match request.command {
            Command::Read => (
                true,
                if has(F::SEND_DF) {
                    CommandFlags::DF.0
                } else {
                    0
                },
            ),
            Command::Write => (true, 0),
            Command::Flush => (has(F::SEND_FLUSH), 0),
            Command::Trim => (has(F::SEND_TRIM), 0),
            Command::Cache => (has(F::SEND_CACHE), 0),
            Command::WriteZeroes => {
                let fast = if has(F::SEND_FAST_ZERO) {
                    CommandFlags::FAST_ZERO.0
                } else {
                    0
                };
                (has(F::SEND_WRITE_ZEROES), CommandFlags::NO_HOLE.0 | fast)
            }
            Command::BlockStatus => (self.base_allocation, CommandFlags::REQ_ONE.0),
            Command::Disconnect | Command::Demote | Command::Unknown(_) => (false, 0),
        };
        if !known {
            return Some((Invalid, "the export does not offer this command"));
        }
        let fua = if has(F::SEND_FUA) {
            CommandFlags::FUA.0
        } else {
            0
        };
        if request.flags.0 & !(own_flags | fua) != 0 {
            return Some((Invalid, "a flag does not belong to this command"));
        }
        if request.command == Command::Flush {
            let clean = request.offset == 0 && request.length_bytes == 0;
            return (!clean).then_some((Invalid, "FLUSH has no offset and no length"));
        }
        let end = request.offset.checked_add(request.length_bytes.into());
        if end.is_none_or(|end| end > self.size_bytes) {
            let grows = matches!(request.command, Command::Write | Command::WriteZeroes);
            let error = if grows { NoSpace } else { Invalid };
            return Some((error, "the range ends beyond the export"));
        }
        if request.command == Command::BlockStatus && request.length_bytes == 0 {
            return Some((Invalid, "the status of no bytes cannot be told"));
        }
        if request.command == Command::Read && request.length_bytes > MAX_PAYLOAD_BYTES {
            let error = if self.structured_replies {
                Overflow
            } else {
                Invalid
            };
            return Some((error, "a read may ask for at most 32 MiB"));
        }
        None
    }
}
