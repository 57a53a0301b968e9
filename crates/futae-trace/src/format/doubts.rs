//! Finds doubts about the interpretation of a trace in the first bytes of the data.

use super::columns::Columns;
use super::context::REQUEST_BYTES_MAX;
use super::doubt::Doubt;
use super::fields::TimeUnit;
use super::formats::Format;
use super::line::{Fields, Separator};
use super::{disksim, oracle};

/// This many records are needed before a pattern in all of them means anything.
const RECORDS_MIN: usize = 2;

/// Doubts from the first bytes of the data.
pub fn doubts(
    format: Format,
    columns: Option<&Columns>,
    head: &[u8],
    block_bytes: u64,
) -> Vec<Doubt> {
    let doubt = match (format, columns) {
        (Format::DiskSim, _) => sectors(head),
        (Format::Csv, Some(columns)) => offsets(columns, head, block_bytes),
        (Format::OracleGeneral, _) => (!oracle::is_plausible(head)).then_some(Doubt::NotOracle),
        _ => None,
    };
    doubt.into_iter().collect()
}

/// Whether each record names one block by its number, in a format that could say more: all lengths of a `.lis` file are 1
/// where its starts are page numbers.
pub fn names_blocks(format: Format, head: &[u8]) -> bool {
    let lengths = || numbers(head, Separator::Blank, &[1]).map(|fields| fields[0]);
    format == Format::Arc && lengths().count() >= RECORDS_MIN && lengths().all(|length| length == 1)
}

fn sectors(head: &[u8]) -> Option<Doubt> {
    let records = || numbers(head, Separator::Blank, &[2, 3]);
    let in_bytes = |fields: [u64; 2]| {
        let [offset, length] = fields;
        offset % 512 == 0 && length % 512 == 0 && length > 0 && length <= REQUEST_BYTES_MAX
    };
    let has_many = records().count() >= RECORDS_MIN;
    let time = match disksim::time_unit(head) {
        TimeUnit::Millis => "ms",
        _ => "ns",
    };
    (has_many && records().all(|fields| in_bytes([fields[0], fields[1]])))
        .then_some(Doubt::SectorsMayBeBytes { time })
}

fn offsets(columns: &Columns, head: &[u8], block_bytes: u64) -> Option<Doubt> {
    let (column, unit) = columns.offset?;
    let columns_read = [column];
    let offsets = || numbers(head, columns.separator, &columns_read).map(|fields| fields[0]);
    let differ = || {
        let mut blocks: Vec<(u64, u64)> = offsets()
            .map(|offset| offset.saturating_mul(unit))
            .map(|offset| (offset / block_bytes, offset % block_bytes))
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.windows(2).any(|pair| pair[0].0 == pair[1].0)
    };
    (columns.length.is_empty() && block_bytes > 0 && differ())
        .then_some(Doubt::OffsetsMayBeKeys { block_bytes })
}

/// The numbers in these columns of whole lines, without lines that lack one of them.
fn numbers<'a>(
    head: &'a [u8],
    separator: Separator,
    columns: &'a [usize],
) -> impl Iterator<Item = Vec<u64>> + 'a {
    // The last line may be cut off.
    let lines = head.split(|&byte| byte == b'\n').rev().skip(1);
    let needed = columns.iter().max().map_or(0, |last| last + 1);
    lines.filter_map(move |line| {
        let line = str::from_utf8(line).ok()?;
        let fields = Fields::up_to(needed, line, separator);
        let number = |&column: &usize| fields.all().get(column)?.parse().ok();
        columns.iter().map(number).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_place_of_sectors_are_doubted() {
        let bytes = b"0 0 4096 8192 1\n7 0 1048576 4096 0\n";
        let expected = Doubt::SectorsMayBeBytes { time: "ns" };
        assert_eq!(doubts(Format::DiskSim, None, bytes, 4096), [expected]);
        let sectors = b"0 0 4096 8 1\n7 0 1048576 16 0\n";
        assert_eq!(doubts(Format::DiskSim, None, sectors, 4096), []);
    }

    #[test]
    fn a_list_of_pages_names_blocks_and_one_of_extents_does_not() {
        assert!(names_blocks(Format::Arc, b"1 1 0 0\n2 1 0 0\n"));
        assert!(!names_blocks(Format::Arc, b"1 1 0 0\n64 8 0 0\n"));
        assert!(!names_blocks(Format::Ids, b"1 1 0 0\n2 1 0 0\n"));
    }

    #[test]
    fn offsets_that_merge_are_doubted_where_there_are_no_lengths() {
        let doubts = |map: &str, head: &[u8]| {
            let columns: Columns = map.parse().unwrap_or_else(|e| panic!("{e}"));
            doubts(Format::Csv, Some(&columns), head, 4096)
        };
        let keys = b"0,17\n1,18\n2,4711\n";
        let expected = Doubt::OffsetsMayBeKeys { block_bytes: 4096 };
        assert_eq!(doubts("time=0,offset=1", keys), [expected]);
        assert_eq!(doubts("time=0,offset=1,length=0", keys), []);
        assert_eq!(doubts("offset=1:4096", keys), []);
        assert_eq!(doubts("offset=1", b"0,0\n1,4096\n2,4096\n"), []);
    }
}
