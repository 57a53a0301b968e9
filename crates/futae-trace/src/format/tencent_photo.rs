//! Tencent's photo cache: `time photo format specification bytes hit terminal response`, between blanks; reads.
//!
//! What is cached is a photo in a format and a specification, so the three together are the object. The time
//! is a date and a time of day in one number, and is not read.

use super::columns::Columns;
use super::line::Separator;

pub fn columns() -> Columns {
    Columns {
        separator: Separator::Blank,
        key: vec![1, 2, 3],
        length: vec![(4, 1)],
        ..Columns::default()
    }
}

/// Whether fields begin with a time, the hash of a photo, and three numbers.
pub fn is_record(fields: &[&str]) -> bool {
    let is_hash = |text: &str| text.len() >= 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let is_whole = |text: &str| text.parse::<u64>().is_ok();
    matches!(fields, [time, photo, format, specification, bytes, _, _, ..]
        if [time, format, specification, bytes].into_iter().all(|it| is_whole(it)) && is_hash(photo))
}
