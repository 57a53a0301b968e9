//! Finds doubts about the interpretation of a trace in the first bytes of the data.

use super::columns::Columns;
use super::context::REQUEST_BYTES_MAX;
use super::doubt::Doubt;
use super::fields::TimeUnit;
use super::formats::Format;
use super::line::{RECORDS_MIN, Separator, numbers};
use super::{disksim, oracle};

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
