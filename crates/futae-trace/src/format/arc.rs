//! The ARC paper's `.lis` files: `start length ignored number`, in blocks of 512 bytes; reads.

use super::columns::Columns;

pub fn columns() -> Columns {
    Columns {
        blanks: true,
        time: None,
        volume: Vec::new(),
        offset: (0, 512),
        length: Some((1, 512)),
        kind: None,
    }
}
