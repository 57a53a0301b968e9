//! libCacheSim's oracleGeneral; its layout is with its [reader](crate::format).
//!
//! Times are seconds, counted from the first request's where that does not fit in 32 bits; sizes
//! are the requests' lengths, at least 1. The format knows neither writes nor volumes.

use super::record::{Encoder, Numbers, Record};
use super::sink::Sink;
use crate::format::{Format, TraceErrorKind};
use crate::numbering::Numbering;
use futae_policy::VolumeId;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

const RECORD_BYTES: usize = 24;
const OBJECT_AT: usize = 4;
const NEXT_AT: usize = 16;
const NEVER: i64 = -1;
/// This many records are in memory at a time.
const CHUNK_RECORDS: u64 = 16 << 10;

pub struct Oracle {
    sink: Sink,
    spool: BufWriter<File>,
    records: u64,
    numbers: Numbers,
    /// What is taken from every time.
    zero_seconds: u64,
}

impl Oracle {
    pub fn new(sink: Sink, directory: &Path) -> Result<Self, TraceErrorKind> {
        let file = tempfile::tempfile_in(directory)?;
        Ok(Self {
            sink,
            spool: BufWriter::with_capacity(256 << 10, file),
            records: 0,
            numbers: Numbers::new(Format::OracleGeneral),
            zero_seconds: 0,
        })
    }
}

impl Encoder for Oracle {
    fn write(&mut self, record: &Record<'_>) -> Result<(), TraceErrorKind> {
        let seconds = record.request.time_us.unwrap_or(0) / 1_000_000;
        if self.records == 0 && u32::try_from(seconds).is_err() {
            self.zero_seconds = seconds;
        }
        let seconds = seconds.saturating_sub(self.zero_seconds);
        let size = record.request.length_bytes.max(1);
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&u32::try_from(seconds).unwrap_or(u32::MAX).to_le_bytes());
        bytes[4..12].copy_from_slice(&self.numbers.of(record)?.to_le_bytes());
        bytes[12..16].copy_from_slice(&u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes());
        bytes[16..].copy_from_slice(&NEVER.to_le_bytes());
        self.spool.write_all(&bytes)?;
        self.records += 1;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Sink, TraceErrorKind> {
        self.spool.flush()?;
        let file = self.spool.get_mut();
        link(file, self.records)?;
        file.rewind()?;
        io::copy(file, &mut self.sink)?;
        Ok(self.sink)
    }
}

/// Writes into every record the position, counted from 1, of the next record of its object.
fn link(file: &mut File, records: u64) -> Result<(), TraceErrorKind> {
    let mut objects = Numbering::default();
    let mut positions: Vec<u64> = Vec::new();
    let mut chunk = Vec::new();
    let mut end = records;
    while end > 0 {
        let start = end.saturating_sub(CHUNK_RECORDS);
        chunk.resize((end - start) as usize * RECORD_BYTES, 0);
        file.seek(SeekFrom::Start(start * RECORD_BYTES as u64))?;
        file.read_exact(&mut chunk)?;
        for (record, position) in chunk.rchunks_exact_mut(RECORD_BYTES).zip((1..=end).rev()) {
            let mut object = [0; 8];
            object.copy_from_slice(&record[OBJECT_AT..OBJECT_AT + 8]);
            let number = objects
                .number(VolumeId(0), u64::from_le_bytes(object))
                .ok_or(TraceErrorKind::TooManyBlocks)?;
            match positions.get_mut(number as usize) {
                Some(next) => {
                    record[NEXT_AT..].copy_from_slice(&next.to_le_bytes());
                    *next = position;
                }
                None => positions.push(position),
            }
        }
        file.seek(SeekFrom::Start(start * RECORD_BYTES as u64))?;
        file.write_all(&chunk)?;
        end = start;
    }
    Ok(())
}
