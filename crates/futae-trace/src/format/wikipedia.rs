//! Wikipedia's CDN, 2019: `seconds hash [image type] bytes first byte`, between tabs or blanks; reads.
//!
//! The files of `upload` have the type of the image, those of `text` do not. A first line names the columns, but
//! the days after the first may lack it: then the number of columns decides.

use super::columns::Columns;
use super::fields::TimeUnit;
use super::line::{Fields, Separator, plain_lines};

pub fn columns(head: &[u8]) -> Columns {
    let text = String::from_utf8_lossy(head);
    let first = plain_lines(&text).next().unwrap_or_default();
    let fields = Fields::split(first, Separator::Blank);
    let named = fields
        .all()
        .iter()
        .position(|&name| name == "response_size");
    let size = named.unwrap_or(match fields.all().len() {
        5.. => 3,
        _ => 2,
    });
    Columns {
        separator: Separator::Blank,
        time: Some((0, TimeUnit::Seconds)),
        key: vec![1],
        length: vec![(size, 1)],
        ..Columns::default()
    }
}

/// Whether a line names the columns.
pub fn is_header(line: &str) -> bool {
    let mut names = line.split_ascii_whitespace();
    names.next() == Some("relative_unix") && names.any(|name| name == "response_size")
}
