//! What `blktrace` writes: the kernel's `blk_io_trace` records of one CPU, in the byte order of
//! that machine, each followed by as many bytes as it says. Records of version 8, `blk_io_trace2`,
//! have 64 bits for the action.
//!
//! A request is counted once, when it is queued (Q); flushes and discards carry no data and are
//! left out. The file of each CPU is a trace of its own; to see the requests of all in one order,
//! let `blkparse` merge them and read its text.

use super::TraceErrorKind;
use super::context::{Context, Raw};
use super::decoder::RecordDecoder;
use crate::{Request, RequestKind};

/// The upper three bytes of the magic number; the lowest is the version.
const MAGIC: u32 = 0x0065_6174;
/// What is common to all requests that are queued, in the lower 16 bits of an action.
const QUEUED: u32 = 1;
/// A bit beside them: the number of a cgroup follows the record.
const OF_CGROUP: u32 = 1 << 8;
/// Categories of actions, from bit 16 on: `BLK_TC_READ`, `BLK_TC_WRITE` and `BLK_TC_DISCARD`.
const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << (16 + 1);
const DISCARD: u32 = 1 << (16 + 13);
const SECTOR_BYTES: u64 = 512;

/// Where the fields are that are not in the same place in all versions.
struct Layout {
    version: u32,
    record_bytes: usize,
    /// The lower half of the action, which has all that is read here: in little-endian records, and in big-endian ones.
    action_at: [usize; 2],
    device_at: usize,
    tail_at: usize,
}

const VERSION_7: Layout = Layout {
    version: 7,
    record_bytes: 48,
    action_at: [28, 28],
    device_at: 36,
    tail_at: 46,
};

/// Of newer kernels, for tools that ask for it.
const VERSION_8: Layout = Layout {
    version: 8,
    record_bytes: 64,
    action_at: [32, 36],
    device_at: 40,
    tail_at: 50,
};

pub struct Blktrace {
    big_endian: bool,
    layout: Layout,
}

impl Blktrace {
    pub fn new(head: &[u8]) -> Self {
        let big_endian = head.starts_with(&MAGIC.to_be_bytes()[1..]);
        let version = head.get(if big_endian { 3 } else { 0 });
        Self {
            big_endian,
            layout: match version {
                Some(8) => VERSION_8,
                _ => VERSION_7,
            },
        }
    }

    /// Whether a record of any version begins so.
    fn is_record(&self, record: &[u8]) -> bool {
        self.u32(record, 0) >> 8 == MAGIC
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
    head.len() >= decoder.layout.record_bytes && decoder.is_record(head)
}

impl RecordDecoder for Blktrace {
    fn record_bytes(&self) -> usize {
        self.layout.record_bytes
    }

    fn has_tails(&self) -> bool {
        true
    }

    fn tail_bytes(&self, record: &[u8]) -> usize {
        let at = self.layout.tail_at;
        let [a, b] = [record[at], record[at + 1]];
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
        let layout = &self.layout;
        if !self.is_record(record) {
            return Err(TraceErrorKind::NotARecord { format: "blktrace" });
        }
        let (found, wanted) = (self.u32(record, 0) & 0xff, layout.version);
        if found != wanted {
            return Err(TraceErrorKind::BlktraceVersion { found, wanted });
        }
        let action = self.u32(record, layout.action_at[usize::from(self.big_endian)]);
        let bytes = u64::from(self.u32(record, 24));
        let is_queued = action & 0xffff & !OF_CGROUP == QUEUED;
        if !is_queued || action & DISCARD != 0 || bytes == 0 {
            return Ok(None);
        }
        let kind = match (action & READ != 0, action & WRITE != 0) {
            (_, true) => RequestKind::Write,
            (true, false) => RequestKind::Read,
            (false, false) => return Ok(None),
        };
        let device = self.u32(record, layout.device_at);
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
