//! The memory that a client and its device share.

/// Entries of the ring.
pub const RING: u16 = 256;
/// Bytes of a sector.
pub const SECTOR: u64 = 512;

/// Where everything is in the shared memory.
pub const TABLE: u64 = 0;
pub const AVAILABLE: u64 = 0x2000;
pub const USED: u64 = 0x4000;
pub const HEADERS: u64 = 0x6000;
pub const STATUS: u64 = 0x8000;
pub const DATA: u64 = 0x10000;
