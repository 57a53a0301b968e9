//! Storage Performance Council: `unit,address,bytes,R|W,seconds`, the address in sectors of 512
//! bytes and each unit a volume of its own. Further fields are optional and are not read.

use super::columns::Columns;
use super::fields::{KindCode, TimeUnit};

pub fn columns() -> Columns {
    Columns {
        time: Some((4, TimeUnit::Seconds)),
        volume: vec![0],
        offset: Some((1, 512)),
        length: vec![(2, 1)],
        kind: Some((3, KindCode::Words)),
        ..Columns::default()
    }
}
