//! Compressed traces. If the first byte of an input is odd, what follows is a compressed trace as it
//! may be found, damaged or made to do harm; otherwise it is a trace, which is compressed in the way
//! that the byte says, and must be read as if it had not been.

use crate::seeds;
use futae_trace::{
    Compression, Extras, Format, Request, TraceError, TraceOptions, TraceReader, TraceWriter, View,
    WriteOptions,
};
use std::io::Cursor;
use std::path::Path;

/// What is read of an input at most, after decompression.
const DATA_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a trace of 64-bit numbers.
const RECORD_BYTES: usize = 8;
const ALL: [Compression; 4] = [
    Compression::Gzip,
    Compression::Zstd,
    Compression::Xz,
    Compression::Bzip2,
];

/// Compressed traces, whole and twice in a row, and plain ones.
pub fn seeds() -> Vec<Vec<u8>> {
    let requests: Vec<Request> = seeds::requests()
        .into_iter()
        .map(|request| Request {
            volume: futae_policy::VolumeId(0),
            ..request
        })
        .collect();
    let compressed = ALL.map(|how| seeds::written(Format::Csv, how, &requests));
    // Two streams in one file, too.
    let twice = compressed.iter().map(|data| [&data[..], data].concat());
    let as_found = twice.chain(compressed.clone());
    let mut inputs: Vec<_> = as_found.map(|data| [&[1][..], &data].concat()).collect();
    inputs.extend((0..4).map(|how| [&[2 * how][..], &[7; 40]].concat()));
    inputs
}

fn read(data: Vec<u8>, format: Option<Format>) -> Result<Vec<Request>, TraceError> {
    let options = TraceOptions {
        format,
        data_bytes_max: Some(DATA_BYTES_MAX),
        ..TraceOptions::default()
    };
    TraceReader::new(Path::new("t"), Cursor::new(data), &options)?.collect()
}

/// One input.
pub fn run(input: &[u8]) {
    let [how, data @ ..] = input else {
        return;
    };
    if how % 2 == 1 {
        // Any of these is right; none may panic, take all memory, or never end.
        let _ = read(data.to_vec(), Some(Format::Le64));
        let _ = read(data.to_vec(), None);
        return;
    }
    let options = WriteOptions {
        format: Format::Le64,
        compression: ALL[usize::from(how / 2) % ALL.len()],
        view: View::Blocks(4096),
        extras: Extras::default(),
    };
    let whole = data.len() / RECORD_BYTES * RECORD_BYTES;
    // Numbers whose places in bytes can be told.
    let mut plain = data[..whole].to_vec();
    plain
        .iter_mut()
        .skip(RECORD_BYTES - 2)
        .step_by(RECORD_BYTES)
        .for_each(|byte| *byte = 0);
    plain
        .iter_mut()
        .skip(RECORD_BYTES - 1)
        .step_by(RECORD_BYTES)
        .for_each(|byte| *byte = 0);
    // A trace without requests is an error, compressed or not.
    if plain.is_empty() {
        return;
    }
    // What looks compressed already would be read as such.
    if Compression::of(&plain) != Compression::None {
        return;
    }
    let requests = read(plain, Some(Format::Le64)).expect("whole records");
    let shelf = seeds::Shelf::default();
    let writer = TraceWriter::new(Path::new("t"), shelf.clone(), &options);
    let mut writer = writer.expect("memory");
    for request in &requests {
        writer.write(request, &[]).expect("numbers that fit");
    }
    writer.finish().expect("memory");
    let again = read(shelf.take(), Some(Format::Le64)).expect("what was written");
    assert_eq!(again, requests);
}
