//! The ARC paper's `.lis` files: `start length ignored number`, in blocks of 512 bytes; reads.

use super::columns::Columns;
use super::line::Separator;

pub fn columns() -> Columns {
    Columns {
        separator: Separator::Blank,
        offset: Some((0, 512)),
        length: vec![(1, 512)],
        ..Columns::default()
    }
}
