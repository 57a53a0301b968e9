//! TRAGEN's synthetic traces: `seconds,object,KB`; reads.
//!
//! Three numbers between commas can mean anything, so the format is never guessed.

use super::columns::Columns;
use super::fields::TimeUnit;

pub fn columns() -> Columns {
    Columns {
        time: Some((0, TimeUnit::Seconds)),
        key: vec![1],
        length: vec![(2, 1024)],
        ..Columns::default()
    }
}
