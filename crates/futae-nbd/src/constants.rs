//! The numbers of the protocol, named as the NBD specification names them without their prefix.
//! All integers on the wire are big-endian.

/// First magic of every server greeting, ASCII `NBDMAGIC`.
pub const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second magic of a newstyle greeting and first magic of every option, ASCII `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Second magic of an oldstyle greeting, which futae does not speak.
pub const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// First magic of every option reply.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First magic of every transmission request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First magic of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First magic of a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag of the server: it speaks fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1;
/// Handshake flag of the server: it can leave out the 124 zeroes after `OPT_EXPORT_NAME`.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;
/// Client's answer to [`FLAG_FIXED_NEWSTYLE`].
pub const FLAG_C_FIXED_NEWSTYLE: u32 = 1;
/// Client's answer to [`FLAG_NO_ZEROES`].
pub const FLAG_C_NO_ZEROES: u32 = 1 << 1;

/// Option: choose an export and start transmission, without any way to answer an error.
pub const OPT_EXPORT_NAME: u32 = 1;
/// Option: end the session politely.
pub const OPT_ABORT: u32 = 2;
/// Option: name every export.
pub const OPT_LIST: u32 = 3;
/// Option: upgrade to TLS.
pub const OPT_STARTTLS: u32 = 5;
/// Option: describe an export.
pub const OPT_INFO: u32 = 6;
/// Option: describe an export and start transmission.
pub const OPT_GO: u32 = 7;
/// Option: answer with structured replies from here on.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// Option: name the metadata contexts of an export.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// Option: select metadata contexts for `CMD_BLOCK_STATUS`.
pub const OPT_SET_META_CONTEXT: u32 = 10;
/// Option of futae: agree on demotion (ASCII `FUT`, then 1). See `docs/reference/wire.md`.
pub const OPT_FUTAE_DEMOTION: u32 = 0x4655_5401;
/// Option of futae, since version 2: which volume an export is. See `docs/reference/wire.md`.
pub const OPT_FUTAE_IDENTITY: u32 = 0x4655_5402;
/// The version of the extension that this crate speaks; demotion is as in version 1.
pub const EXTENSION_VERSION: u16 = 2;

/// Option reply: accepted, and the end of this option's replies.
pub const REP_ACK: u32 = 1;
/// Option reply: one export's name and description.
pub const REP_SERVER: u32 = 2;
/// Option reply: one piece of information on an export.
pub const REP_INFO: u32 = 3;
/// Option reply: one metadata context.
pub const REP_META_CONTEXT: u32 = 4;
/// Option reply of futae: the server's terms for demotion.
pub const REP_FUTAE_DEMOTION: u32 = 0x4655_5401;
/// Option reply of futae: which volume an export is.
pub const REP_FUTAE_IDENTITY: u32 = 0x4655_5402;
/// The bit that marks an option reply as an error.
pub const REP_FLAG_ERROR: u32 = 1 << 31;
/// Option error: the server does not know the option.
pub const REP_ERR_UNSUP: u32 = REP_FLAG_ERROR | 1;
/// Option error: the operator forbids it.
pub const REP_ERR_POLICY: u32 = REP_FLAG_ERROR | 2;
/// Option error: malformed, or sent at the wrong moment.
pub const REP_ERR_INVALID: u32 = REP_FLAG_ERROR | 3;
/// Option error: not on this platform.
pub const REP_ERR_PLATFORM: u32 = REP_FLAG_ERROR | 4;
/// Option error: TLS must come first.
pub const REP_ERR_TLS_REQD: u32 = REP_FLAG_ERROR | 5;
/// Option error: no such export.
pub const REP_ERR_UNKNOWN: u32 = REP_FLAG_ERROR | 6;
/// Option error: the server is shutting down.
pub const REP_ERR_SHUTDOWN: u32 = REP_FLAG_ERROR | 7;
/// Option error: the client must ask for [`INFO_BLOCK_SIZE`].
pub const REP_ERR_BLOCK_SIZE_REQD: u32 = REP_FLAG_ERROR | 8;
/// Option error: the request or its answer is too large.
pub const REP_ERR_TOO_BIG: u32 = REP_FLAG_ERROR | 9;

/// Information: size and transmission flags; always sent.
pub const INFO_EXPORT: u16 = 0;
/// Information: the canonical name.
pub const INFO_NAME: u16 = 1;
/// Information: a description for people.
pub const INFO_DESCRIPTION: u16 = 2;
/// Information: minimum and preferred block, maximum payload.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Request type: read.
pub const CMD_READ: u16 = 0;
/// Request type: write; its payload follows the header.
pub const CMD_WRITE: u16 = 1;
/// Request type: disconnect; no reply.
pub const CMD_DISC: u16 = 2;
/// Request type: make answered writes durable.
pub const CMD_FLUSH: u16 = 3;
/// Request type: the range is no longer needed.
pub const CMD_TRIM: u16 = 4;
/// Request type: the client plans to read the range; futae's eviction notice.
pub const CMD_CACHE: u16 = 5;
/// Request type: write zeroes, without a payload.
pub const CMD_WRITE_ZEROES: u16 = 6;
/// Request type: describe the range in the selected metadata contexts.
pub const CMD_BLOCK_STATUS: u16 = 7;
/// Request type of futae: an evicted block with its data (ASCII `FU`); no reply.
pub const CMD_DEMOTE: u16 = 0x4655;

/// Chunk flag: the last chunk of its reply.
pub const REPLY_FLAG_DONE: u16 = 1;
/// Chunk type: nothing, only the end of a reply.
pub const REPLY_TYPE_NONE: u16 = 0;
/// Chunk type: data at an offset.
pub const REPLY_TYPE_OFFSET_DATA: u16 = 1;
/// Chunk type: a range that reads as zeroes.
pub const REPLY_TYPE_OFFSET_HOLE: u16 = 2;
/// Chunk type: extents of one metadata context.
pub const REPLY_TYPE_BLOCK_STATUS: u16 = 5;
/// The bit that marks a chunk type as an error.
pub const REPLY_TYPE_FLAG_ERROR: u16 = 1 << 15;
/// Chunk type: the request failed.
pub const REPLY_TYPE_ERROR: u16 = REPLY_TYPE_FLAG_ERROR | 1;
/// Chunk type: the request failed at an offset.
pub const REPLY_TYPE_ERROR_OFFSET: u16 = REPLY_TYPE_FLAG_ERROR | 2;

/// Name of the one metadata context of the specification.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The identifier that futae's server gives to [`BASE_ALLOCATION`].
pub const BASE_ALLOCATION_ID: u32 = 1;
/// `base:allocation` status bit: not allocated in the store.
pub const STATE_HOLE: u32 = 1;
/// `base:allocation` status bit: reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;

/// TCP port that IANA reserves for NBD.
pub const DEFAULT_PORT: u16 = 10809;

/// Longest string of the protocol, in bytes: names, descriptions, error messages.
pub const MAX_STRING_BYTES: usize = 4096;
/// Longest data of one option or option reply that futae reads, in bytes; longer ends the
/// connection, on either side.
pub const MAX_OPTION_BYTES: usize = 64 * 1024;
/// Most options in one handshake; a client that goes on haggling is cut off.
pub const MAX_OPTIONS: u32 = 256;
/// Most metadata queries in one option; more are answered with `REP_ERR_TOO_BIG`.
pub const MAX_QUERIES: u32 = 256;
/// Smallest unit a client may address, in bytes.
pub const MIN_BLOCK_BYTES: u32 = 1;
/// Longest payload of a READ, WRITE or DEMOTE, in bytes.
pub const MAX_PAYLOAD_BYTES: u32 = 32 * 1024 * 1024;
/// Most extents in one block status chunk.
pub const MAX_EXTENTS: usize = 1 << 20;

/// Length of the server's greeting, in bytes.
pub const GREETING_BYTES: usize = 18;
/// Length of an option's header, in bytes.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Length of an option reply's header, in bytes.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Length of a request's header, in bytes.
pub const REQUEST_HEADER_BYTES: usize = 28;
/// Length of a simple reply, without data, in bytes.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Length of a structured chunk's header, in bytes.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Zeroes after the answer to `OPT_EXPORT_NAME`, in bytes, unless both sides agreed to omit them.
pub const EXPORT_NAME_ZEROES: usize = 124;
