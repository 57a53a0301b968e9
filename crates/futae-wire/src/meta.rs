//! Metadata contexts in the handshake: only `base:allocation` exists here.

use crate::bytes::Reader;
use crate::constants::{BASE_ALLOCATION, MAX_QUERIES, MAX_STRING_BYTES};

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

/// What is wrong with an option's data, by the error reply it deserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Malformed {
    Invalid(&'static str),
    TooBig(&'static str),
}

/// A name from a client: UTF-8 without NUL, at most 4096 bytes.
pub(crate) fn name(bytes: &[u8]) -> Result<&str, Malformed> {
    if bytes.len() > MAX_STRING_BYTES {
        return Err(Malformed::TooBig("a name may have at most 4096 bytes"));
    }
    match std::str::from_utf8(bytes) {
        Ok(name) if !name.contains('\0') => Ok(name),
        _ => Err(Malformed::Invalid("a name must be UTF-8 without NUL")),
    }
}

impl<'a> MetaQuery<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        const CUT: Malformed = Malformed::Invalid("the option's data end too soon");
        let mut fields = Reader::new(data);
        let export = name(fields.counted().ok_or(CUT)?)?;
        let count = fields.u32().ok_or(CUT)?;
        if count > MAX_QUERIES {
            return Err(Malformed::TooBig("too many metadata queries"));
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
            return Err(Malformed::Invalid("bytes after the last metadata query"));
        }
        Ok(query)
    }
}
