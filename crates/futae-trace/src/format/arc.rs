//! The ARC paper's `.lis` files: `start length ignored number`, in blocks of 512 bytes; reads. Where all lengths are 1,
//! starts are numbers of pages, each of which is a block.

use super::TraceErrorKind;
use super::columns::Columns;
use super::context::Context;
use super::decoder::LineDecoder;
use super::fields::number;
use super::line::{Fields, RECORDS_MIN, Separator, numbers};
use crate::Request;

pub fn columns() -> Columns {
    Columns {
        separator: Separator::Blank,
        offset: Some((0, 512)),
        length: vec![(1, 512)],
        ..Columns::default()
    }
}

/// Whether each record names one block by its number, though the format could say more.
pub fn names_blocks(head: &[u8]) -> bool {
    let lengths = || numbers(head, Separator::Blank, &[1]).map(|fields| fields[0]);
    lengths().count() >= RECORDS_MIN && lengths().all(|length| length == 1)
}

/// A list of pages.
pub struct Pages;

impl LineDecoder for Pages {
    fn decode(
        &mut self,
        line: &str,
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind> {
        let fields = Fields::split(line, Separator::Blank);
        let length = fields.get(1, "length")?;
        if length != "1" {
            return Err(TraceErrorKind::NotAPage {
                length: length.chars().take(60).collect(),
            });
        }
        context
            .key(number(fields.get(0, "start")?)?, None)
            .map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::names_blocks;

    #[test]
    fn a_list_of_pages_names_blocks_and_one_of_extents_does_not() {
        assert!(names_blocks(b"1 1 0 0\n2 1 0 0\n"));
        assert!(!names_blocks(b"1 1 0 0\n64 8 0 0\n"));
        assert!(!names_blocks(b"1 1 0 0\n2 "));
    }
}
