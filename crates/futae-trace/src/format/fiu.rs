//! FIU's traces: `nanoseconds pid process sector sectors R|W major minor hashes`, between blanks.
//!
//! A sector is 512 bytes, and a volume is a device by its numbers. The hashes of the data are not read.

use super::columns::Columns;
use super::fields::{KindCode, TimeUnit};
use super::line::Separator;

pub fn columns() -> Columns {
    Columns {
        separator: Separator::Blank,
        time: Some((0, TimeUnit::Nanos)),
        volume: vec![6, 7],
        offset: Some((3, 512)),
        length: vec![(4, 512)],
        kind: Some((5, KindCode::Words)),
        ..Columns::default()
    }
}

/// Whether fields are those of a record.
pub fn is_record(fields: &[&str]) -> bool {
    let is_whole = |text: &&str| text.parse::<u64>().is_ok();
    matches!(fields, [time, pid, _, sector, sectors, "R" | "W", major, minor, ..]
        if [time, pid, sector, sectors, major, minor].into_iter().all(is_whole))
}
