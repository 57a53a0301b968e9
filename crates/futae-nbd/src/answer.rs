//! Answers to options: replies appended to the output, or one error reply.

use crate::constants::*;

/// Success, or the error reply and its message.
pub(crate) type Answer<T = ()> = Result<T, (u32, &'static str)>;

/// The error reply to data that are cut short.
pub(crate) const CUT: (u32, &str) = (REP_ERR_INVALID, "the option's data end too soon");

/// A name from a client: UTF-8 without NUL, at most 4096 bytes.
pub(crate) fn name(bytes: &[u8]) -> Answer<&str> {
    if bytes.len() > MAX_STRING_BYTES {
        return Err((REP_ERR_TOO_BIG, "a name may have at most 4096 bytes"));
    }
    match std::str::from_utf8(bytes) {
        Ok(name) if !name.contains('\0') => Ok(name),
        _ => Err((REP_ERR_INVALID, "a name must be UTF-8 without NUL")),
    }
}

/// Checks that an option which takes no data has none.
pub(crate) fn no_data(data: &[u8]) -> Answer {
    if data.is_empty() {
        Ok(())
    } else {
        Err((REP_ERR_INVALID, "the option takes no data"))
    }
}

/// Appends replies to one option.
pub(crate) struct Answers<'a> {
    pub(crate) option: u32,
    pub(crate) out: &'a mut Vec<u8>,
}

impl Answers<'_> {
    pub(crate) fn put(&mut self, reply: u32, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.out
            .extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        for field in [self.option, reply, length as u32] {
            self.out.extend_from_slice(&field.to_be_bytes());
        }
        for part in parts {
            self.out.extend_from_slice(part);
        }
    }

    pub(crate) fn info(&mut self, kind: u16, parts: &[&[u8]]) {
        let kind = kind.to_be_bytes();
        let mut all = vec![&kind[..]];
        all.extend_from_slice(parts);
        self.put(REP_INFO, &all);
    }

    pub(crate) fn ack(&mut self) {
        self.put(REP_ACK, &[]);
    }
}
