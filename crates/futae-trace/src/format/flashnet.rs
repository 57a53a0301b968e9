//! FlashNet's replay logs: `milliseconds,latency,1|0,bytes,offset,submitted,bytes done`; 1 is a
//! read. The times go in steps of a second and sometimes back.

use super::columns::Columns;
use super::fields::{KindCode, TimeUnit};

pub fn columns() -> Columns {
    Columns {
        time: Some((0, TimeUnit::Millis)),
        offset: Some((4, 1)),
        length: vec![(3, 1)],
        kind: Some((2, KindCode::ReadIs1)),
        ..Columns::default()
    }
}
