//! What `blktrace` writes: the kernel's `blk_io_trace` records of one CPU, in the byte order of
//! that machine, each followed by as many bytes as it says.
//!
//! A request is counted once, when it is queued (Q); flushes and discards carry no data and are
//! left out. The file of each CPU is a trace of its own; to see the requests of all in one order,
//! let `blkparse` merge them and read its text.

use super::TraceErrorKind;
use super::context::{Context, Raw};
use super::decoder::RecordDecoder;
use crate::{Request, RequestKind};

const RECORD_BYTES: usize = 48;
/// The upper three bytes of the magic number; the lowest is the version.
const MAGIC: u32 = 0x0065_6174;
const QUEUED: u32 = 1;
const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const DISCARD: u32 = 1 << 23;
const SECTOR_BYTES: u64 = 512;

pub struct Blktrace {
    big_endian: bool,
}

impl Blktrace {
    pub fn new(head: &[u8]) -> Self {
        Self {
            big_endian: head.starts_with(&MAGIC.to_be_bytes()[1..]),
        }
    }

    fn u32(&self, record: &[u8], at: usize) -> u32 {
        let bytes = [record[at], record[at + 1], record[at + 2], record[at + 3]];
        if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    }

    fn u64(&self, record: &[u8], at: usize) -> u64 {
        let halves = [self.u32(record, at), self.u32(record, at + 4)].map(u64::from);
        if self.big_endian {
            halves[0] << 32 | halves[1]
        } else {
            halves[1] << 32 | halves[0]
        }
    }
}

/// Whether the data begins with a record.
pub fn looks_like(head: &[u8]) -> bool {
    let decoder = Blktrace::new(head);
    head.len() >= RECORD_BYTES && decoder.u32(head, 0) >> 8 == MAGIC
}

impl RecordDecoder for Blktrace {
    fn record_bytes(&self) -> usize {
        RECORD_BYTES
    }

    fn has_tails(&self) -> bool {
        true
    }

    fn tail_bytes(&self, record: &[u8]) -> usize {
        let [a, b] = [record[46], record[47]];
        usize::from(if self.big_endian {
            u16::from_be_bytes([a, b])
        } else {
            u16::from_le_bytes([a, b])
        })
    }

    fn decode(
        &mut self,
        record: &[u8],
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind> {
        if self.u32(record, 0) >> 8 != MAGIC {
            return Err(TraceErrorKind::NotARecord { format: "blktrace" });
        }
        let action = self.u32(record, 28);
        let bytes = u64::from(self.u32(record, 24));
        if action & 0xffff != QUEUED || action & DISCARD != 0 || bytes == 0 {
            return Ok(None);
        }
        let kind = match (action & READ != 0, action & WRITE != 0) {
            (_, true) => RequestKind::Write,
            (true, false) => RequestKind::Read,
            (false, false) => return Ok(None),
        };
        let device = self.u32(record, 36);
        let sector = self.u64(record, 16);
        let raw = Raw {
            volume: context.volume(&format!("{},{}", device >> 20, device & 0xf_ffff))?,
            offset_bytes: sector
                .checked_mul(SECTOR_BYTES)
                .ok_or(TraceErrorKind::OutOfRange)?,
            length_bytes: bytes,
            kind,
            time_us: Some(self.u64(record, 8) / 1000),
        };
        context.request(raw).map(Some)
    }
}
