//! Which requests a connection may make, and what becomes of the others.

use crate::constants::MAX_PAYLOAD_BYTES;
use crate::error::{ErrorNumber, WireError};
use crate::export::{ExportInfo, TransmissionFlags};
use crate::extension::DemotionTerms;
use crate::option::Negotiated;
use crate::request::{Command, CommandFlags, RequestHeader};

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
        } else if self.flags.contains(TransmissionFlags::READ_ONLY) {
            // Who may not write may not change what others read in another way.
            Some("the export is read-only")
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
