//! The interface of formats: decoding requests.

use super::TraceErrorKind;
use super::context::Context;
use super::line::Comments;
use crate::Request;

/// Facts about a trace whose records name objects instead of positions on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Whether its objects have sizes.
    pub has_sizes: bool,
}

/// Decodes requests from the lines of a text.
pub trait LineDecoder: Send {
    /// Facts about objects, if records name objects.
    fn keys(&self) -> Option<Keys> {
        None
    }

    /// Which lines are comments. The decoder does not get them.
    fn comments(&self) -> Comments {
        Comments::Anywhere
    }

    /// Whether a line may hold more than one request.
    fn repeats(&self) -> bool {
        false
    }

    /// Further requests of the line that was decoded last, one at a time.
    fn further(&mut self, _context: &mut Context) -> Result<Option<Request>, TraceErrorKind> {
        Ok(None)
    }

    /// The request of a line, which has no line end and is not blank; `None` if the line validly has none.
    fn decode(
        &mut self,
        line: &str,
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind>;
}

/// Decodes requests from binary records.
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

    /// The request of a record; `None` if the record validly has none.
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

    /// Whether records so far had differing sizes that their requests do not include.
    fn ignores_sizes(&self) -> bool {
        false
    }

    /// If every record is valid, and a read of volume 0 of the same length: appends the start
    /// sectors of these requests, and returns their length in bytes.
    fn decode_starts(
        &mut self,
        _records: &[u8],
        _context: &mut Context,
        _starts: &mut Vec<u64>,
    ) -> Option<u64> {
        None
    }
}

/// Decodes requests from the rows of a file that is not read sequentially.
pub trait TableDecoder: Send {
    /// Facts about objects, if rows name objects.
    fn keys(&self) -> Option<Keys> {
        None
    }

    /// Pairs of columns whose names mean the same. The second of each is not read unless a map says so.
    fn rivals(&self) -> Vec<[String; 2]> {
        Vec::new()
    }

    /// Whether there is no further row.
    fn at_end(&mut self) -> Result<bool, TraceErrorKind>;

    /// Where in the file the next row can be found.
    fn byte(&self) -> u64;

    /// The request of the next row.
    fn decode(&mut self, context: &mut Context) -> Result<Option<Request>, TraceErrorKind>;
}

/// Decodes the data of a format.
pub enum Decoder {
    Lines(Box<dyn LineDecoder>),
    Records(Box<dyn RecordDecoder>),
    Table(Box<dyn TableDecoder>),
}

impl Decoder {
    /// Facts about objects, if records name objects.
    pub fn keys(&self) -> Option<Keys> {
        match self {
            Self::Lines(decoder) => decoder.keys(),
            Self::Records(_) => None,
            Self::Table(decoder) => decoder.keys(),
        }
    }
}
