//! Alibaba cloud block storage: `device,R|W,offset,bytes,microseconds`, the offset in bytes.

use super::columns::Columns;
use super::fields::{KindCode, TimeUnit};

pub fn columns() -> Columns {
    Columns {
        time: Some((4, TimeUnit::Micros)),
        volume: vec![0],
        offset: Some((2, 1)),
        length: vec![(3, 1)],
        kind: Some((1, KindCode::Words)),
        ..Columns::default()
    }
}
