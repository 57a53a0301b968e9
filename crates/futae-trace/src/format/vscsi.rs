//! VMware vscsiStats, little-endian, without a header.
//!
//! Version 1, 32 bytes: u32 serial, u32 bytes, u32 segments, u16 command, u16 version, u64 sector,
//! u64 microseconds. Version 2, 40 bytes: u16 command, u16 version, u32 serial, u32 bytes,
//! u32 segments, u64 sector, u64 microseconds, u64 response time. The upper byte of the version
//! is 1 or 2; the command is SCSI's, of which reads and writes are requests.

use super::TraceErrorKind;
use super::context::{Context, Raw};
use super::decoder::RecordDecoder;
use super::oracle::le;
use crate::{Request, RequestKind};
use futae_policy::VolumeId;

const VERSION_1_BYTES: usize = 32;
const VERSION_2_BYTES: usize = 40;
const SECTOR_BYTES: u64 = 512;

pub struct Version1;
pub struct Version2;

struct Fields {
    version: u64,
    command: u64,
    bytes: u64,
    sector: u64,
    time_us: u64,
    /// How long the command took; version 1 does not say.
    response_us: Option<u64>,
}

fn version_1(record: &[u8]) -> Fields {
    Fields {
        bytes: le::<4>(record, 4),
        command: le::<2>(record, 12),
        version: le::<2>(record, 14) >> 8,
        sector: le::<8>(record, 16),
        time_us: le::<8>(record, 24),
        response_us: None,
    }
}

fn version_2(record: &[u8]) -> Fields {
    Fields {
        command: le::<2>(record, 0),
        version: le::<2>(record, 2) >> 8,
        bytes: le::<4>(record, 8),
        sector: le::<8>(record, 16),
        time_us: le::<8>(record, 24),
        response_us: Some(le::<8>(record, 32)),
    }
}

fn request(
    fields: &Fields,
    version: u64,
    context: &mut Context,
) -> Result<Option<Request>, TraceErrorKind> {
    if fields.version != version {
        let format = if version == 1 {
            "vscsi version 1"
        } else {
            "vscsi version 2"
        };
        return Err(TraceErrorKind::NotARecord { format });
    }
    let kind = match fields.command {
        // READ and WRITE of 6, 10, 12 and 16 bytes.
        0x08 | 0x28 | 0xa8 | 0x88 => RequestKind::Read,
        0x0a | 0x2a | 0xaa | 0x8a => RequestKind::Write,
        _ => return Ok(None),
    };
    let offset_bytes = fields
        .sector
        .checked_mul(SECTOR_BYTES)
        .ok_or(TraceErrorKind::OutOfRange)?;
    let raw = Raw {
        volume: VolumeId(0),
        offset_bytes,
        length_bytes: fields.bytes,
        kind,
        time_us: Some(fields.time_us),
    };
    let request = context.request(raw)?;
    if let Some(us) = fields.response_us {
        context.note_latency(us);
    }
    Ok(Some(request))
}

impl RecordDecoder for Version1 {
    fn record_bytes(&self) -> usize {
        VERSION_1_BYTES
    }

    fn decode(
        &mut self,
        record: &[u8],
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind> {
        request(&version_1(record), 1, context)
    }
}

impl RecordDecoder for Version2 {
    fn record_bytes(&self) -> usize {
        VERSION_2_BYTES
    }

    fn decode(
        &mut self,
        record: &[u8],
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind> {
        request(&version_2(record), 2, context)
    }
}

/// The version that every record of the head has.
pub fn version(head: &[u8]) -> Option<u64> {
    let all = |bytes, read: fn(&[u8]) -> Fields, version| {
        let mut records = head.chunks_exact(bytes).map(read).take(64).peekable();
        records.peek().is_some() && records.all(|fields| fields.version == version)
    };
    if all(VERSION_1_BYTES, version_1, 1) {
        return Some(1);
    }
    all(VERSION_2_BYTES, version_2, 2).then_some(2)
}
