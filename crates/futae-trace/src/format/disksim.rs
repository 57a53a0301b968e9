//! DiskSim's ASCII format: `time device address length flags`, in sectors of 512 bytes; the lowest
//! flag is set for a read.
//!
//! DiskSim's times are milliseconds with a fraction. Its imitators write whole numbers and mean
//! nanoseconds (MQSim, SSDsim); where they mean something else, name the columns.

use super::columns::Columns;
use super::fields::{KindCode, TimeUnit};
use super::line::Separator;

pub fn columns(head: &[u8]) -> Columns {
    let first = head
        .split(|b| b.is_ascii_whitespace())
        .find(|field| !field.is_empty());
    let millis = first.is_some_and(|time| time.contains(&b'.'));
    Columns {
        separator: Separator::Blank,
        time: Some((
            0,
            if millis {
                TimeUnit::Millis
            } else {
                TimeUnit::Nanos
            },
        )),
        volume: vec![1],
        offset: Some((2, 512)),
        length: vec![(3, 512)],
        kind: Some((4, KindCode::ReadIsOdd)),
        ..Columns::default()
    }
}
