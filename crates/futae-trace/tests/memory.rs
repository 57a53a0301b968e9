//! Large traces are read and written in bounded memory. One test alone in its process, since it is
//! the process whose memory the system counts.

use futae_trace::{
    Compression, Extras, Format, TraceOptions, TraceReader, TraceWriter, View, WriteOptions,
};
use std::error::Error;
use std::io::{self, Read, Write};
use std::path::Path;

/// oracleGeneral records of 64 blocks in turn, made as they are read.
struct Endless {
    left: u64,
    at: u64,
}

const RECORD_BYTES: usize = 24;

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = (buffer.len() / RECORD_BYTES) as u64;
        let records = room.min(self.left);
        if room == 0 && self.left > 0 {
            return Err(io::Error::other("a buffer smaller than a record"));
        }
        for out in buffer.chunks_exact_mut(RECORD_BYTES).take(records as usize) {
            let object = (self.at % 64).to_le_bytes();
            out[..4].copy_from_slice(&((self.at / 100_000) as u32).to_le_bytes());
            out[4..12].copy_from_slice(&object);
            out[12..16].copy_from_slice(&4096u32.to_le_bytes());
            out[16..].copy_from_slice(&(self.at + 65).to_le_bytes());
            self.at += 1;
        }
        self.left -= records;
        Ok(records as usize * RECORD_BYTES)
    }
}

/// The most memory that this process ever had, in KiB.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_trace_of_any_length_streams_through() -> Result<(), Box<dyn Error>> {
    // 240 MB in, 360 MB out.
    let records = 10_000_000;
    let endless = Endless {
        left: records,
        at: 0,
    };
    let endless = io::BufReader::with_capacity(RECORD_BYTES << 10, endless);
    let mut options = TraceOptions {
        format: Some(Format::OracleGeneral),
        ..TraceOptions::default()
    };
    let mut reader = TraceReader::new(Path::new("t"), endless, &options)?;
    let to = WriteOptions {
        format: Format::Csv,
        compression: Compression::None,
        view: View::Start,
        extras: Extras::default(),
    };
    let mut writer = TraceWriter::new(Path::new("t"), Counted(0), &to)?;
    while let Some(request) = reader.next() {
        writer.write(&request?, reader.volumes())?;
    }
    assert_eq!(writer.records(), records);
    writer.finish()?;

    // A line that never ends.
    options.format = Some(Format::Ids);
    let line = io::repeat(b'7').take(200 << 20);
    let errors = TraceReader::new(Path::new("t"), line, &options)?.filter_map(Result::err);
    assert!(
        errors
            .last()
            .is_some_and(|e| e.to_string().contains("longer than"))
    );
    let kib = peak_kib().expect("Linux tells how much memory was used");
    assert!(kib < 60 << 10, "{kib} KiB");
    Ok(())
}
