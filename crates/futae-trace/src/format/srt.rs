//! HP Labs' SRT: the disk requests of HP-UX that its kernel traced, in binary, after a header of text.
//!
//! The header begins with `$$TR_IOREC` and ends with a form feed. It describes the disks. A record is big-endian, and
//! begins with its size in bytes, its version and type, and the time when the request was queued. Versions 1 to 4 are as
//! DiskSim 4.0 has them, which calls the format hpl (`disksim_hptrace.h` and `disksim_iotrace.c`). They number sectors of
//! the disk, whose size the header tells. Version 7, as HP's DataSeries describes (`srt2ds.cpp`) and has as a sample, names
//! bytes.

use super::TraceErrorKind;
use super::compression::Source;
use super::context::{Context, Raw};
use super::decoder::TableDecoder;
use super::srt_header::Header;
use crate::{Request, RequestKind};
use std::io::{BufRead, BufReader, Read};

/// What a header begins with; the version follows.
const MARK: &[u8] = b"$$TR_IOREC";
/// The longest header that is believed.
const HEADER_BYTES_MAX: u64 = 1 << 20;
/// The part that all records begin with.
const HEAD_BYTES: usize = 16;
/// The longest record that is believed.
const RECORD_BYTES_MAX: usize = 4096;
/// The type of a request, and that of one whose tracing went wrong, which is left out.
const REQUEST: u32 = 1;
const SUSPECT: u32 = 4;
/// The flag of a read.
const READ: u32 = 1;

/// Takes requests out of records.
pub struct Srt {
    data: BufReader<Source>,
    header: Header,
    byte: u64,
    record: Vec<u8>,
}

/// Whether data begins with the header of a trace.
pub fn looks_like(head: &[u8]) -> bool {
    head.starts_with(MARK)
}

impl Srt {
    /// Reads the header, if there is one: DiskSim's hpl2 has none.
    pub fn new(data: Source, has_header: bool) -> Result<Self, TraceErrorKind> {
        let mut data = BufReader::new(data);
        let mut text = Vec::new();
        if has_header {
            data.by_ref()
                .take(HEADER_BYTES_MAX)
                .read_until(b'\x0C', &mut text)?;
            if text.last() != Some(&b'\x0C') {
                return Err(damaged("the header of the SRT trace has no end"));
            }
        }
        Ok(Self {
            data,
            header: Header::of(&String::from_utf8_lossy(&text)),
            byte: text.len() as u64,
            record: Vec::new(),
        })
    }

    fn fill(&mut self, bytes: usize) -> Result<(), TraceErrorKind> {
        let wanted = bytes - self.record.len();
        let mut data = self.data.by_ref().take(wanted as u64);
        self.byte += data.read_to_end(&mut self.record)? as u64;
        if self.record.len() < bytes {
            return Err(TraceErrorKind::Truncated {
                found: self.record.len(),
                wanted: bytes,
            });
        }
        Ok(())
    }

    /// The 32-bit number that is `at` in the record, counted in such numbers.
    fn word(&self, at: usize) -> u32 {
        let bytes = self.record.get(at * 4..at * 4 + 4);
        bytes.map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn request(&self, version: u32, context: &mut Context) -> Result<Request, TraceErrorKind> {
        let (seconds, micros) = (self.word(2), self.word(3));
        let device = self.word(8);
        let offset_bytes = match version {
            7 => u64::from(self.word(16)) << 32 | u64::from(self.word(17)),
            _ => u64::from(self.word(7)) * self.header.sector_bytes(device)?,
        };
        let volume = context.volume(&self.header.disk(device))?;
        context.request(Raw {
            volume,
            offset_bytes,
            length_bytes: u64::from(self.word(6)),
            kind: match self.word(11) & READ {
                0 => RequestKind::Write,
                _ => RequestKind::Read,
            },
            time_us: Some(u64::from(seconds) * 1_000_000 + u64::from(micros)),
        })
    }
}

impl TableDecoder for Srt {
    fn at_end(&mut self) -> Result<bool, TraceErrorKind> {
        Ok(self.data.fill_buf()?.is_empty())
    }

    fn byte(&self) -> u64 {
        self.byte
    }

    fn decode(&mut self, context: &mut Context) -> Result<Option<Request>, TraceErrorKind> {
        self.record.clear();
        self.fill(HEAD_BYTES)?;
        let (size, id) = (self.word(0) as usize, self.word(1));
        let (version, kind) = (id >> 16, id & 0xFFFF);
        if !(HEAD_BYTES..=RECORD_BYTES_MAX).contains(&size) {
            let message = format!(
                "a record of SRT is said to have {size} bytes, so the next cannot be found"
            );
            return Err(damaged(message));
        }
        self.fill(size)?;
        let bytes = match version {
            1..=3 => 52,
            4 => 56,
            7 => 88,
            _ => {
                return Err(damaged(format!(
                    "records of SRT 1.{version} are not read, only those of 1.1 to 1.4 and 1.7; convert them to a table of text, such as by \
                     srt2ds and ds2txt of DataSeries, and name its columns by --columns"
                )));
            }
        };
        match kind {
            REQUEST if size == bytes => self.request(version, context).map(Some),
            SUSPECT => Ok(None),
            REQUEST => Err(TraceErrorKind::Field {
                text: format!("{size} bytes"),
                expected: "the length of a request in this version of SRT",
            }),
            _ => Err(TraceErrorKind::Field {
                text: format!("type {kind}"),
                expected: "1, that of a request in SRT, or 4",
            }),
        }
    }
}

/// After this nothing more can be read.
fn damaged(message: impl Into<String>) -> TraceErrorKind {
    TraceErrorKind::Archive(message.into())
}
