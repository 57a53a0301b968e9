//! Microsoft Research Cambridge: `FILETIME,host,disk,Read|Write,offset,bytes,response time`.
//!
//! A volume is a disk of a host. Offset and size are in bytes.

use super::columns::Columns;
use super::fields::{KindCode, TimeUnit};

pub fn columns() -> Columns {
    Columns {
        time: Some((0, TimeUnit::FileTime)),
        volume: vec![1, 2],
        offset: Some((4, 1)),
        length: vec![(5, 1)],
        kind: Some((3, KindCode::Words)),
        latency: Some((6, TimeUnit::FileTime)),
        ..Columns::default()
    }
}
