//! Arbitrary bytes as a trace file of a format, as one whose format is to be told from the data, or as a map of
//! columns. The first byte of an input says how it is read.

use crate::formats;
use crate::seeds::Shelf;
use futae_trace::{
    Columns, Compression, DenseTrace, Extras, Format, Request, RequestReader, TraceOptions,
    TraceReader, TraceWriter, View, WriteOptions,
};
use std::collections::HashMap;
use std::io::Cursor;
use std::path::Path;
use std::str::FromStr;

/// What is read of an input at most: small files can hold any amount of compressed data.
const DATA_BYTES_MAX: u64 = 1 << 20;
const ACCESSES_MAX: u64 = 1 << 16;
/// A record of some formats is for up to 2^24 requests, and a few bytes for hours of reading.
const REQUESTS_MAX: usize = 1 << 18;
const COLUMNS: &str = "time=1:ms,volume=0,volume=2,offset=4:512,length=3:512,kind=5:read1";

/// Flags that say what is done with what was read.
const NUMBER: u8 = 8;
const WRITE: u8 = 16;

/// What an input is taken for.
#[derive(Clone, Copy, Debug)]
pub enum Subject {
    /// Maps of columns.
    Columns,
    /// A trace whose format is to be told from the data.
    Any,
    /// A trace of this format.
    One(Format),
}

impl Subject {
    /// All of them, with their names.
    pub fn all() -> impl Iterator<Item = (&'static str, Self)> {
        let formats = Format::ALL
            .into_iter()
            .map(|format| (format.name(), Self::One(format)));
        [("any", Self::Any), ("columns", Self::Columns)]
            .into_iter()
            .chain(formats)
    }
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::all().find(|(its_name, _)| *its_name == name);
        found
            .map(|(_, subject)| subject)
            .ok_or_else(|| format!("no format is called '{name}'"))
    }
}

/// Small valid traces, to be read in two ways.
pub fn seeds(subject: Subject) -> Vec<Vec<u8>> {
    let traces: Vec<Vec<u8>> = match subject {
        Subject::Columns => vec![COLUMNS.into(), b"separator=blank,offset=2:512".to_vec()],
        Subject::Any => Format::ALL
            .into_iter()
            .flat_map(formats::of_format)
            .collect(),
        Subject::One(format) => formats::of_format(format),
    };
    let flagged = |flags: u8| {
        traces
            .iter()
            .map(move |trace| [&[flags][..], trace].concat())
    };
    flagged(0).chain(flagged(NUMBER | WRITE)).collect()
}

/// One input.
pub fn run(subject: Subject, input: &[u8]) {
    let [flags, data @ ..] = input else {
        return;
    };
    let format = match subject {
        Subject::Columns => {
            let _ = String::from_utf8_lossy(data).parse::<Columns>();
            return;
        }
        Subject::Any => None,
        Subject::One(format) => Some(format),
    };
    let options = TraceOptions {
        format,
        skip_bad: flags & 1 > 0,
        columns: COLUMNS.parse().ok().filter(|_| flags & 2 > 0),
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
    for next in one_by_one.by_ref().take(REQUESTS_MAX) {
        match next {
            Ok(request) => requests.push(request),
            Err(e) => error = Some(e.to_string()),
        }
    }
    let mut batch = Vec::new();
    let outcome = batched.read_batch(&mut batch, REQUESTS_MAX);
    assert_eq!(outcome.err().map(|e| e.to_string()), error);
    assert_eq!(batch, requests);
    if requests.len() == REQUESTS_MAX {
        return;
    }
    assert!(one_by_one.next().is_none());
    assert_eq!(batched.skipped(), one_by_one.skipped());
    // Both take many times as long as reading.
    if flags & NUMBER > 0 {
        number(&requests);
    }
    if flags & WRITE > 0 {
        write(&requests, one_by_one.volumes());
    }
}

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

/// What was read can be written and read again.
fn write(requests: &[Request], volumes: &[String]) {
    // A trace without requests cannot be read again, and a table holds no object of more than 1 GiB.
    if requests.is_empty() || requests.iter().any(|it| it.length_bytes > 1 << 30) {
        return;
    }
    let options = WriteOptions {
        format: Format::Csv,
        compression: Compression::None,
        view: View::Start,
        extras: Extras::default(),
    };
    let shelf = Shelf::default();
    let path = Path::new("t");
    let mut writer = TraceWriter::new(path, shelf.clone(), &options).expect("memory");
    for request in requests {
        writer.write(request, volumes).expect("memory");
    }
    writer.finish().expect("memory");
    let reader = TraceReader::new(path, Cursor::new(shelf.take()), &TraceOptions::default());
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
        assert_eq!(
            *found,
            Request {
                volume,
                ..*expected
            }
        );
    }
}
