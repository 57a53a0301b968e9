//! Small valid traces for fuzzing to begin with: what gets past magic numbers and headers.

use futae_policy::VolumeId;
use futae_trace::{
    Compression, Extras, Format, Request, RequestKind, TraceWriter, View, WriteOptions,
};
use std::io::{Result, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Takes what is written, to be looked at afterwards.
#[derive(Clone, Default)]
pub struct Shelf(Arc<Mutex<Vec<u8>>>);

impl Shelf {
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().expect("one thread"))
    }
}

impl Write for Shelf {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.lock().expect("one thread").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Requests of every kind.
pub fn requests() -> Vec<Request> {
    let request = |number: u64| Request {
        guest: 0,
        volume: VolumeId((number % 3) as u16),
        offset_bytes: number * number % 17 * 4096,
        length_bytes: 512 << (number % 5),
        kind: match number % 4 {
            0 => RequestKind::Write,
            _ => RequestKind::Read,
        },
        time_us: (!number.is_multiple_of(7)).then_some(number * 1000),
    };
    (0..20).map(request).collect()
}

/// The requests as a trace of one of the formats that can be written.
pub fn written(format: Format, compression: Compression, requests: &[Request]) -> Vec<u8> {
    let options = WriteOptions {
        format,
        compression,
        view: View::Blocks(4096),
        extras: Extras::default(),
    };
    let shelf = Shelf::default();
    let mut writer = TraceWriter::new(Path::new("t"), shelf.clone(), &options).expect("memory");
    for request in requests {
        writer.write(request, &[]).expect("memory");
    }
    writer.finish().expect("memory");
    shelf.take()
}
