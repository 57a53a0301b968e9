//! Meta's key-value cache, as CacheLib's traces have it: CSV whose first line names `key`, `op`, `op_count`, `size`
//! and `key_size`, and in newer ones `op_time` and `ttl`.
//!
//! A record stands for `op_count` requests in a row. An object's size is that of its key and its value.

use super::TraceErrorKind;
use super::column_decoder::ColumnDecoder;
use super::columns::Columns;
use super::context::Context;
use super::decoder::{Keys, LineDecoder};
use super::fields::{self, KindCode, TimeUnit};
use super::line::{Comments, Fields, Separator, plain_lines};
use crate::Request;

/// More requests of one record are taken for damage.
const COUNT_MAX: u64 = 1 << 24;

/// Where the columns are.
pub struct CacheLib {
    records: ColumnDecoder,
    count: usize,
    /// The request of the last record, and how often it is still to come.
    last: Option<(Request, u64)>,
    first: bool,
}

impl CacheLib {
    /// None if the first line does not name the columns.
    pub fn new(head: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(head);
        let names = Fields::split(plain_lines(&text).next()?, Separator::Comma);
        let find = |name: &str| {
            names
                .all()
                .iter()
                .position(|it| it.eq_ignore_ascii_case(name))
        };
        let columns = Columns {
            time: find("op_time").map(|column| (column, TimeUnit::Seconds)),
            key: vec![find("key")?],
            length: vec![(find("key_size")?, 1), (find("size")?, 1)],
            kind: Some((find("op")?, KindCode::Words)),
            ttl: find("ttl"),
            ..Columns::default()
        };
        Some(Self {
            records: ColumnDecoder::new(columns),
            count: find("op_count")?,
            last: None,
            first: true,
        })
    }
}

impl LineDecoder for CacheLib {
    fn keys(&self) -> Option<Keys> {
        self.records.keys()
    }

    fn comments(&self) -> Comments {
        self.records.comments()
    }

    fn repeats(&self) -> bool {
        true
    }

    fn decode(
        &mut self,
        line: &str,
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind> {
        if std::mem::take(&mut self.first) {
            return Ok(None);
        }
        let fields = Fields::split(line, Separator::Comma);
        let count = fields::number(fields.get(self.count, "op_count")?)?;
        if count == 0 || count > COUNT_MAX {
            return Err(TraceErrorKind::Field {
                text: count.to_string(),
                expected: "a number of operations from 1 to 2^24",
            });
        }
        let request = self.records.decode(line, context)?;
        self.last = request.map(|request| (request, count - 1));
        Ok(request)
    }

    fn further(&mut self, context: &mut Context) -> Result<Option<Request>, TraceErrorKind> {
        let Some((request, left)) = &mut self.last else {
            return Ok(None);
        };
        match left.checked_sub(1) {
            Some(less) => *left = less,
            None => return Ok(None),
        }
        context.repeat_life();
        Ok(Some(*request))
    }
}
