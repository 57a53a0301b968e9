//! SYSTOR '17: `Timestamp,Response,IOType,LUN,Offset,Size` with a line of these names first;
//! seconds and bytes. Requests are not sorted by time.

use super::columns::Columns;
use super::fields::{KindCode, TimeUnit};

pub fn columns() -> Columns {
    Columns {
        time: Some((0, TimeUnit::Seconds)),
        volume: vec![3],
        offset: Some((4, 1)),
        length: vec![(5, 1)],
        kind: Some((2, KindCode::Words)),
        latency: Some((1, TimeUnit::Seconds)),
        ..Columns::default()
    }
}
