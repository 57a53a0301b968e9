//! Metadata contexts in the handshake: only `base:allocation` exists here.

use crate::answer::{Answer, CUT, name};
use crate::bytes::Reader;
use crate::constants::{BASE_ALLOCATION, MAX_QUERIES, REP_ERR_INVALID, REP_ERR_TOO_BIG};

/// A well-formed `OPT_LIST_META_CONTEXT` or `OPT_SET_META_CONTEXT`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MetaQuery<'a> {
    pub(crate) export: &'a str,
    /// How many queries there were.
    pub(crate) count: u32,
    /// Whether one of them is `base:allocation` itself.
    pub(crate) exact: bool,
    /// Whether one of them is the wildcard `base:`.
    pub(crate) wildcard: bool,
}

impl<'a> MetaQuery<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Answer<Self> {
        let mut fields = Reader::new(data);
        let export = name(fields.counted().ok_or(CUT)?)?;
        let count = fields.u32().ok_or(CUT)?;
        if count > MAX_QUERIES {
            return Err((REP_ERR_TOO_BIG, "too many metadata queries"));
        }
        let mut query = Self {
            export,
            count,
            exact: false,
            wildcard: false,
        };
        for _ in 0..count {
            let asked = fields.counted().ok_or(CUT)?;
            query.exact |= asked == BASE_ALLOCATION.as_bytes();
            query.wildcard |= asked == b"base:";
        }
        if !fields.is_empty() {
            return Err((REP_ERR_INVALID, "bytes after the last metadata query"));
        }
        Ok(query)
    }
}
