//! Alibaba cloud block storage: `device,R|W,offset,bytes,microseconds`, the offset in bytes.

use super::columns::Columns;
use super::fields::{KindCode, TimeUnit};

pub fn columns() -> Columns {
    Columns {
        blanks: false,
        time: Some((4, TimeUnit::Micros)),
        volume: vec![0],
        offset: (2, 1),
        length: Some((3, 1)),
        kind: Some((1, KindCode::Words)),
    }
}
