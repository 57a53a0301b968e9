//! Open CAS's Telemetry Framework, as `iotrace` records it: protobuf events, each after its length, one file a queue.
//!
//! A trace is a folder of such files, so it is read from a tar of them, in the order of time; one file is read, too.
//! Events of a request are field 2: address and length in sectors of 512 bytes, a device, and 1 for a read or 2 for a
//! write. Discards, flushes without data, completions and files are passed over. All events are in memory, 48 bytes each.

use super::TraceErrorKind;
use super::context::{Context, Raw};
use super::decoder::TableDecoder;
use crate::{Request, RequestKind};
use std::io::Read;

/// The longest event that is believed.
const EVENT_BYTES_MAX: u64 = 64 << 10;

/// A request, as it was recorded.
#[derive(Clone, Copy, Debug)]
struct Event {
    time_ns: u64,
    /// The number of the event in its trace: the order of events of the same time.
    number: u64,
    sector: u64,
    sectors: u64,
    device: u64,
    is_write: bool,
}

/// The requests of a trace in the order of time.
pub struct Octf {
    events: std::vec::IntoIter<Event>,
}

impl Octf {
    /// Reads all of it.
    pub fn new(mut data: impl Read) -> Result<Self, TraceErrorKind> {
        let mut head = [0; 512];
        let mut got = 0;
        while got < head.len() {
            match data.read(&mut head[got..])? {
                0 => break,
                bytes => got += bytes,
            }
        }
        let is_tar = is_tar(&head[..got]);
        let mut data = head[..got].chain(data);
        let mut events = Vec::new();
        if is_tar {
            add_tar(data, &mut events)?;
        } else {
            let mut bytes = Vec::new();
            data.read_to_end(&mut bytes)?;
            add_file(&bytes, "the file", &mut events)?;
        }
        events.sort_by_key(|event| (event.time_ns, event.number));
        Ok(Self {
            events: events.into_iter(),
        })
    }
}

fn add_tar(data: impl Read, events: &mut Vec<Event>) -> Result<(), TraceErrorKind> {
    let mut archive = tar::Archive::new(data);
    let mut files = 0;
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !is_trace(&name) || !entry.header().entry_type().is_file() {
            continue;
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        add_file(&bytes, &name, events)?;
        files += 1;
    }
    match files {
        0 => Err(TraceErrorKind::Archive(
            "the archive holds no file named octf.trace.N; one trace of Open CAS can be read from an archive".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Whether a file is that of a queue: `octf.trace.7`.
fn is_trace(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    let queue = file.strip_prefix("octf.trace.");
    queue.is_some_and(|queue| !queue.is_empty() && queue.bytes().all(|b| b.is_ascii_digit()))
}

fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar")
}

/// Whether data begins as an archive, or as an event with a header in it.
pub fn looks_like(head: &[u8]) -> bool {
    if is_tar(head) {
        return true;
    }
    let event = |head: &[u8]| {
        let (length, rest) = varint(head)?;
        let event = rest.get(..usize::try_from(length).ok()?)?;
        let header = Fields(event).next()?.ok()?;
        let (1, Value::Bytes(header)) = header else {
            return None;
        };
        let mut fields = Fields(header);
        let is_number = |field: Option<_>, wanted| matches!(field, Some(Ok((number, Value::Number(_)))) if number == wanted);
        // The number of an event and its time, and what happened.
        let is_header = is_number(fields.next(), 1) && is_number(fields.next(), 2);
        (is_header && fields.next().is_none() && event.len() > header.len() + 2).then_some(())
    };
    event(head).is_some()
}

fn bad(name: &str, at: usize, what: &str) -> TraceErrorKind {
    TraceErrorKind::Archive(format!("{name} is damaged at byte {at}: {what}"))
}

fn add_file(bytes: &[u8], name: &str, events: &mut Vec<Event>) -> Result<(), TraceErrorKind> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let cut = || bad(name, at, "an event is cut off, or its length is wrong");
        let (length, after) = varint(rest).ok_or_else(cut)?;
        if length > EVENT_BYTES_MAX || length > after.len() as u64 {
            return Err(cut());
        }
        let (event, later) = after.split_at(length as usize);
        let event = request(event).ok_or_else(|| bad(name, at, "it is no event"))?;
        events.extend(event);
        rest = later;
    }
    Ok(())
}

/// The request of an event, if it is one; none of both if it is no event.
#[expect(
    clippy::option_option,
    reason = "an event that is no request is no error"
)]
fn request(event: &[u8]) -> Option<Option<Event>> {
    let mut found = Event {
        time_ns: 0,
        number: 0,
        sector: 0,
        sectors: 0,
        device: 0,
        is_write: false,
    };
    let (mut has_header, mut operation) = (false, 0);
    for field in Fields(event) {
        match field.ok()? {
            (1, Value::Bytes(header)) => {
                has_header = true;
                for field in Fields(header) {
                    match field.ok()? {
                        (1, Value::Number(number)) => found.number = number,
                        (2, Value::Number(time)) => found.time_ns = time,
                        _ => {}
                    }
                }
            }
            (2, Value::Bytes(io)) => {
                for field in Fields(io) {
                    match field.ok()? {
                        (1, Value::Number(sector)) => found.sector = sector,
                        (2, Value::Number(sectors)) => found.sectors = sectors,
                        (4, Value::Number(device)) => found.device = device,
                        (5, Value::Number(kind)) => operation = kind,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    found.is_write = operation == 2;
    let is_request = found.sectors > 0 && matches!(operation, 1 | 2);
    has_header.then_some(is_request.then_some(found))
}

/// A value in a message.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a protobuf message, by number; an error, and the end, where it is none.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), ()>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = field(self.0);
        self.0 = field.as_ref().map_or(&[], |field| field.2);
        Some(field.map(|(number, value, _)| (number, value)).ok_or(()))
    }
}

/// The first field of a message, and what follows it.
fn field(message: &[u8]) -> Option<(u64, Value<'_>, &[u8])> {
    let (key, rest) = varint(message)?;
    let fixed = |bytes: usize| Some((Value::Bytes(rest.get(..bytes)?), rest.get(bytes..)?));
    let (value, rest) = match key & 7 {
        0 => {
            let (number, rest) = varint(rest)?;
            (Value::Number(number), rest)
        }
        1 => fixed(8)?,
        2 => {
            let (length, rest) = varint(rest)?;
            let length = usize::try_from(length).ok()?;
            (Value::Bytes(rest.get(..length)?), rest.get(length..)?)
        }
        5 => fixed(4)?,
        _ => return None,
    };
    Some((key >> 3, value, rest))
}

/// A number in as many bytes as it needs, and what follows it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (at, &byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 127) << (7 * at);
        if byte < 128 {
            return Some((number, &bytes[at + 1..]));
        }
    }
    None
}

impl TableDecoder for Octf {
    fn at_end(&mut self) -> Result<bool, TraceErrorKind> {
        Ok(self.events.len() == 0)
    }

    fn byte(&self) -> u64 {
        0
    }

    fn decode(&mut self, context: &mut Context) -> Result<Option<Request>, TraceErrorKind> {
        let Some(event) = self.events.next() else {
            return Ok(None);
        };
        let bytes = |sectors: u64| sectors.checked_mul(512).ok_or(TraceErrorKind::OutOfRange);
        let raw = Raw {
            volume: context.volume(&event.device.to_string())?,
            offset_bytes: bytes(event.sector)?,
            length_bytes: bytes(event.sectors)?,
            kind: match event.is_write {
                true => RequestKind::Write,
                false => RequestKind::Read,
            },
            time_us: Some(event.time_ns / 1000),
        };
        context.request(raw).map(Some)
    }
}
