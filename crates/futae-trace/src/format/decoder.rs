//! What every format does: it takes requests out of its data.

use super::TraceErrorKind;
use super::context::Context;
use crate::Request;

/// What is known of a trace whose records name objects, not places on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Whether its objects have sizes.
    pub has_sizes: bool,
}

/// Takes requests out of the lines of a text.
pub trait LineDecoder: Send {
    /// Where records name objects, what else they say.
    fn keys(&self) -> Option<Keys> {
        None
    }

    /// Whether a line may hold more than one request.
    fn repeats(&self) -> bool {
        false
    }

    /// Further requests of the line that was decoded last, one at a time.
    fn further(&mut self, _context: &mut Context) -> Result<Option<Request>, TraceErrorKind> {
        Ok(None)
    }

    /// The request of a line; none if the line has none and should not.
    fn decode(
        &mut self,
        line: &str,
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind>;
}

/// Takes requests out of binary records.
pub trait RecordDecoder: Send {
    /// Bytes of a record.
    fn record_bytes(&self) -> usize;

    /// Whether a record may be followed by bytes that belong to it.
    fn has_tails(&self) -> bool {
        false
    }

    /// How many bytes follow this record and belong to it.
    fn tail_bytes(&self, _record: &[u8]) -> usize {
        0
    }

    /// The request of a record; none if the record has none and should not.
    fn decode(
        &mut self,
        record: &[u8],
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind>;

    /// Appends the requests of records that follow each other, without tails, up to the first bad
    /// one, and returns how many records were good.
    fn decode_run(
        &mut self,
        records: &[u8],
        context: &mut Context,
        requests: &mut Vec<Request>,
    ) -> usize {
        for (good, record) in records.chunks_exact(self.record_bytes()).enumerate() {
            match self.decode(record, context) {
                Ok(request) => requests.extend(request),
                Err(_) => return good,
            }
        }
        records.len() / self.record_bytes()
    }

    /// Whether records so far had sizes that differ, and that are in no request.
    fn ignores_sizes(&self) -> bool {
        false
    }

    /// Where every record is a good one, and a read of volume 0 of the same length: appends the
    /// sectors where the requests of these records begin, and returns their length in bytes.
    fn decode_starts(
        &mut self,
        _records: &[u8],
        _context: &mut Context,
        _starts: &mut Vec<u64>,
    ) -> Option<u64> {
        None
    }
}

/// Takes requests out of the rows of a file that cannot be read from its beginning to its end.
pub trait TableDecoder: Send {
    /// Where rows name objects, what else they say.
    fn keys(&self) -> Option<Keys> {
        None
    }

    /// Whether there is no further row.
    fn at_end(&mut self) -> Result<bool, TraceErrorKind>;

    /// Where in the file the next row can be found.
    fn byte(&self) -> u64;

    /// The request of the next row.
    fn decode(&mut self, context: &mut Context) -> Result<Option<Request>, TraceErrorKind>;
}

/// Takes requests out of a format's data.
pub enum Decoder {
    Lines(Box<dyn LineDecoder>),
    Records(Box<dyn RecordDecoder>),
    Table(Box<dyn TableDecoder>),
}

impl Decoder {
    /// Where records name objects, what else they say.
    pub fn keys(&self) -> Option<Keys> {
        match self {
            Self::Lines(decoder) => decoder.keys(),
            Self::Records(_) => None,
            Self::Table(decoder) => decoder.keys(),
        }
    }
}
