//! DiskSim's ASCII format: `time device address length flags`, in sectors of 512 bytes; the lowest
//! flag is set for a read.
//!
//! DiskSim's times are milliseconds with a fraction. Its imitators write whole numbers and mean
//! nanoseconds (MQSim, SSDsim); where they mean something else, name the columns. A time of 0 may be
//! without a fraction in both, so all times at the beginning of the trace decide.

use super::columns::Columns;
use super::fields::{KindCode, TimeUnit};
use super::line::{Fields, Separator, plain_lines};

pub fn columns(head: &[u8]) -> Columns {
    Columns {
        separator: Separator::Blank,
        time: Some((0, time_unit(head))),
        volume: vec![1],
        offset: Some((2, 512)),
        length: vec![(3, 512)],
        kind: Some((4, KindCode::ReadIsOdd)),
        ..Columns::default()
    }
}

/// The unit of the times of a trace that begins so.
pub fn time_unit(head: &[u8]) -> TimeUnit {
    let text = String::from_utf8_lossy(head);
    let has_fraction = |line| {
        let time = Fields::up_to(1, line, Separator::Blank);
        let parts = time.all().first().and_then(|time| time.split_once('.'));
        parts.is_some_and(|(whole, _)| whole.parse::<u64>().is_ok())
    };
    match plain_lines(&text).any(has_fraction) {
        true => TimeUnit::Millis,
        false => TimeUnit::Nanos,
    }
}
