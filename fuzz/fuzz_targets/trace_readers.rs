//! Arbitrary bytes as a trace file. The first byte chooses the format, or that it is to be told
//! from the data; the second how it is read. Compressed data is read as any other.

#![no_main]

use futae_trace::{
    Columns, Compression, DenseTrace, Format, Request, RequestReader, TraceOptions, TraceReader,
    TraceWriter, View, WriteOptions,
};
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;
use std::io::{Cursor, Result, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, Once};

/// What is read of an input at most: small files can hold any amount of compressed data.
const DATA_BYTES_MAX: u64 = 1 << 20;
const ACCESSES_MAX: u64 = 1 << 16;

fuzz_target!(|input: &[u8]| {
    // libFuzzer's hook ends the process at every panic, also at those that are caught, as those
    // of the Parquet library are; without it only panics that leave this function do.
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(std::panic::take_hook()));
    let [choice, flags, data @ ..] = input else {
        return;
    };
    let choice = usize::from(*choice) % (Format::ALL.len() + 2);
    if choice == Format::ALL.len() {
        let _ = String::from_utf8_lossy(data).parse::<Columns>();
        return;
    }
    let columns = "time=1:ms,volume=0,volume=2,offset=4:512,length=3:512,kind=5:read1";
    let options = TraceOptions {
        format: Format::ALL.get(choice).copied(),
        skip_bad: flags & 1 > 0,
        columns: columns.parse().ok().filter(|_| flags & 2 > 0),
        unit_bytes: if flags & 4 > 0 { 512 } else { 4096 },
        data_bytes_max: Some(DATA_BYTES_MAX),
        ..TraceOptions::default()
    };
    let open = || TraceReader::new(Path::new("t"), Cursor::new(data.to_vec()), &options);
    let (Ok(mut one_by_one), Ok(mut batched)) = (open(), open()) else {
        return;
    };
    let mut error = None;
    let mut requests = Vec::new();
    for next in one_by_one.by_ref() {
        match next {
            Ok(request) => requests.push(request),
            Err(e) => error = Some(e.to_string()),
        }
    }
    assert!(one_by_one.next().is_none());
    let mut batch = Vec::new();
    let outcome = batched.read_batch(&mut batch, usize::MAX);
    assert_eq!(outcome.err().map(|e| e.to_string()), error);
    assert_eq!(batch, requests);
    assert_eq!(batched.skipped(), one_by_one.skipped());
    number(&requests);
    write(&requests, one_by_one.volumes());
});

/// Blocks are numbered as they come.
fn number(requests: &[Request]) {
    for view in [View::Start, View::Blocks(4096), View::Blocks(3000)] {
        let accesses = |r: &Request| r.length_bytes / 3000 + 2;
        if requests.iter().map(accesses).sum::<u64>() > ACCESSES_MAX {
            return;
        }
        let mut numbers = HashMap::new();
        let mut expected = Vec::new();
        for request in requests {
            for block in view.blocks(request) {
                let next = numbers.len() as u32;
                expected.push(*numbers.entry((request.volume, block)).or_insert(next));
            }
        }
        let trace = DenseTrace::from_requests(requests, view).expect("few blocks");
        assert_eq!(trace.ids(), expected);
    }
}

#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Vec<u8>>>);

impl Write for Shelf {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.lock().expect("one thread").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What was read can be written and read again.
fn write(requests: &[Request], volumes: &[String]) {
    let options = WriteOptions {
        format: Format::Csv,
        compression: Compression::None,
        view: View::Start,
    };
    let shelf = Shelf::default();
    let path = Path::new("t");
    let mut writer = TraceWriter::new(path, shelf.clone(), &options).expect("memory");
    for request in requests {
        writer.write(request, volumes).expect("memory");
    }
    writer.finish().expect("memory");
    let data = std::mem::take(&mut *shelf.0.lock().expect("one thread"));
    let reader = TraceReader::new(path, Cursor::new(data), &TraceOptions::default());
    let again: Vec<Request> = reader
        .expect("a header")
        .map(|request| request.expect("a request"))
        .collect();
    // Bad records may have named volumes too: then the numbers are others.
    let mut renumbered = HashMap::new();
    assert_eq!(again.len(), requests.len());
    for (found, expected) in again.iter().zip(requests) {
        let number = renumbered.entry(expected.volume).or_insert(found.volume);
        assert_eq!(*number, found.volume);
        let volume = found.volume;
        assert_eq!(*found, Request { volume, ..*expected });
    }
}
