//! Tencent cloud block storage: `seconds,offset,size,0|1,volume`, in sectors of 512 bytes; 0 is a
//! read. Requests are not sorted by time, and each volume has its own address space.

use super::columns::Columns;
use super::fields::{KindCode, TimeUnit};

pub fn columns() -> Columns {
    Columns {
        time: Some((0, TimeUnit::Seconds)),
        volume: vec![4],
        offset: Some((1, 512)),
        length: vec![(2, 512)],
        kind: Some((3, KindCode::ReadIs0)),
        ..Columns::default()
    }
}
