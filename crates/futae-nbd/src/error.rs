//! What can go wrong on the wire, and the error numbers that a reply may carry.

use std::io;

use thiserror::Error;

/// Why bytes could not be understood or a session could not go on.
///
/// Unless a variant says otherwise, the connection is out of step and must be closed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WireError {
    /// A magic number was not where it belongs: the peer speaks something else, or the two
    /// sides lost count of bytes.
    #[error(
        "{field}: expected {expected:#x}, found {found:#x}; the peer does not speak NBD here, close the connection"
    )]
    BadMagic {
        /// Which magic.
        field: &'static str,
        /// What the specification prescribes.
        expected: u64,
        /// What arrived.
        found: u64,
    },
    /// The server greeted in the oldstyle protocol.
    #[error("the server speaks oldstyle NBD; use a server with fixed newstyle (any since 2011)")]
    OldStyleServer,
    /// The client set handshake flags that were not offered.
    #[error(
        "client flags {found:#x} contain a flag that was not offered; the specification demands closing the connection"
    )]
    UnknownClientFlags {
        /// All flags of the client.
        found: u32,
    },
    /// An option or option reply announced more data than [`crate::constants::MAX_OPTION_BYTES`].
    #[error(
        "option {option:#x}: {length_bytes} bytes of data, more than the {limit_bytes} allowed"
    )]
    OptionTooLarge {
        /// The option's number.
        option: u32,
        /// The announced length.
        length_bytes: u32,
        /// The limit.
        limit_bytes: usize,
    },
    /// The handshake went on for too many options or replies.
    #[error("more than {limit} options or option replies without choosing an export")]
    TooManyOptions {
        /// The limit.
        limit: u32,
    },
    /// The client chose an export that does not exist, by the option that has no error reply.
    #[error(
        "no export is named {name:?}; list the exports, or use a client with OPT_GO to be told"
    )]
    UnknownExport {
        /// The name asked for, shortened if absurd.
        name: String,
    },
    /// An export was asked for in the clear, in the way that has no error reply.
    #[error("the client requested an export without TLS, which this server requires")]
    TlsRequired,
    /// The handshake had already ended, or failed, when more input came.
    #[error("the handshake is over; feed further bytes to the transmission parser")]
    HandshakeOver,
    /// A request announced a payload too large to read and throw away.
    #[error("{command} payload of {length_bytes} bytes, more than the {limit_bytes} allowed")]
    PayloadTooLarge {
        /// The request's type.
        command: &'static str,
        /// The announced length.
        length_bytes: u32,
        /// The limit.
        limit_bytes: u32,
    },
    /// The peer used something that was not agreed on in the handshake.
    #[error("{what} was used but not negotiated")]
    NotNegotiated {
        /// What was used.
        what: &'static str,
    },
    /// A message of the peer is not as the specification wants it.
    #[error("{message}: {field} is {found}; {wanted}")]
    BadField {
        /// The message.
        message: &'static str,
        /// The field of the message.
        field: &'static str,
        /// Its value.
        found: u64,
        /// What it should have been.
        wanted: &'static str,
    },
    /// The server refused an option that the client cannot do without. The session ended politely.
    #[error("the server refused {option}: {reason}{}{text}", if text.is_empty() { "" } else { ": " })]
    Refused {
        /// The option's name.
        option: &'static str,
        /// The number of the option reply, for matching.
        reply: u32,
        /// What that number means and what to do.
        reason: &'static str,
        /// The server's own words, possibly empty.
        text: String,
    },
    /// An export's description is wrong on the server's own side.
    #[error("export {name:?}: {field} {wanted}")]
    BadExport {
        /// The export's name.
        name: String,
        /// The field.
        field: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// An address could not be understood.
    #[error("{uri:?}: {problem}")]
    BadUri {
        /// The address.
        uri: String,
        /// What is wrong with it and how to mend it.
        problem: String,
    },
    /// The client's stream failed.
    #[error("while negotiating: {doing}")]
    Io {
        /// What was being read or written.
        doing: &'static str,
        /// The stream's error.
        source: io::Error,
    },
}

/// The error numbers that the NBD specification allows in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
#[repr(u32)]
pub enum ErrorNumber {
    /// `NBD_EPERM`: not permitted, such as a write to a read-only export.
    #[error("operation not permitted")]
    NotPermitted = 1,
    /// `NBD_EIO`: the store failed.
    #[error("input/output error")]
    InputOutput = 5,
    /// `NBD_ENOMEM`: out of memory.
    #[error("out of memory")]
    OutOfMemory = 12,
    /// `NBD_EINVAL`: the request makes no sense.
    #[error("invalid argument")]
    Invalid = 22,
    /// `NBD_ENOSPC`: no space, or a write beyond the end of the export.
    #[error("no space left on device")]
    NoSpace = 28,
    /// `NBD_EOVERFLOW`: longer than the server answers in one reply.
    #[error("value too large")]
    Overflow = 75,
    /// `NBD_ENOTSUP`: zeroing would not be fast.
    #[error("operation not supported")]
    NotSupported = 95,
    /// `NBD_ESHUTDOWN`: the server is shutting down.
    #[error("server is shutting down")]
    ShuttingDown = 108,
}

impl ErrorNumber {
    /// The number on the wire; never zero.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Reads a number off the wire: `None` for success. A number that the specification does not
    /// know counts as `Invalid`, as it asks.
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => return None,
            1 => Self::NotPermitted,
            5 => Self::InputOutput,
            12 => Self::OutOfMemory,
            28 => Self::NoSpace,
            75 => Self::Overflow,
            95 => Self::NotSupported,
            108 => Self::ShuttingDown,
            _ => Self::Invalid,
        })
    }

    /// The number for a store's error. `NotSupported` is kept for fast zeroing, so an unsupported
    /// operation of the store is `Invalid`; anything unknown is `InputOutput`.
    pub fn from_io(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => Self::NotPermitted,
            Kind::OutOfMemory => Self::OutOfMemory,
            Kind::InvalidInput | Kind::Unsupported => Self::Invalid,
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => Self::NoSpace,
            _ => Self::InputOutput,
        }
    }
}

/// Shortens a name from the peer for an error message.
pub(crate) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(200)]).into_owned()
}
