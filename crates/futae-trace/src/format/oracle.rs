//! libCacheSim's oracleGeneral, packed and little-endian: u32 seconds, u64 object, u32 size,
//! i64 position of the object's next request (none: -1 or the largest).
//!
//! An object is one block whatever its size, since its number need not be an address. The next
//! request is not read: a policy that needs the future looks at the whole trace.

use super::TraceErrorKind;
use super::context::Context;
use super::decoder::RecordDecoder;
use crate::Request;

pub const RECORD_BYTES: usize = 24;

/// The number at `at` in a record that is long enough.
#[inline]
pub fn le<const N: usize>(record: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(&record[at..at + N]);
    u64::from_le_bytes(bytes)
}

/// Takes objects out of the records, and notes whether their sizes differ.
#[derive(Default)]
pub struct Oracle {
    /// The first size, and whether there is another.
    size: Option<u32>,
    sizes_differ: bool,
}

impl Oracle {
    #[inline]
    fn note_sizes(&mut self, records: &[u8]) {
        let mut sizes = records
            .chunks_exact(RECORD_BYTES)
            .map(|record| le::<4>(record, 12) as u32);
        if self.sizes_differ {
            return;
        }
        if self.size.is_none() {
            self.size = sizes.next();
        }
        self.sizes_differ = sizes.any(|size| Some(size) != self.size);
    }
}

/// The object, and when it is asked for.
#[inline]
fn fields(record: &[u8]) -> (u64, Option<u64>) {
    (le::<8>(record, 4), Some(le::<4>(record, 0) * 1_000_000))
}

impl RecordDecoder for Oracle {
    fn record_bytes(&self) -> usize {
        RECORD_BYTES
    }

    #[inline]
    fn decode(
        &mut self,
        record: &[u8],
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind> {
        self.note_sizes(record);
        let (object, time_us) = fields(record);
        context.key(object, time_us).map(Some)
    }

    fn ignores_sizes(&self) -> bool {
        self.sizes_differ
    }

    fn decode_run(
        &mut self,
        records: &[u8],
        context: &mut Context,
        requests: &mut Vec<Request>,
    ) -> usize {
        self.note_sizes(records);
        context.keys(records.chunks_exact(RECORD_BYTES), fields, requests)
    }

    fn decode_starts(
        &mut self,
        records: &[u8],
        context: &mut Context,
        starts: &mut Vec<u64>,
    ) -> Option<u64> {
        self.note_sizes(records);
        let objects = records.chunks_exact(RECORD_BYTES);
        context.key_starts(objects.map(|record| fields(record).0), starts)
    }
}

/// As [`Oracle`], but an object's size is the length of its requests.
pub struct Sized;

impl RecordDecoder for Sized {
    fn record_bytes(&self) -> usize {
        RECORD_BYTES
    }

    #[inline]
    fn decode(
        &mut self,
        record: &[u8],
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind> {
        let (object, time_us) = fields(record);
        let mut request = context.key(object, time_us)?;
        request.length_bytes = le::<4>(record, 12);
        Ok(Some(request))
    }
}

/// Whether at least half of the first records can be oracleGeneral's: a next request is a position that some trace could
/// have, or none. Of random bytes hardly one record has such a number.
pub fn is_plausible(head: &[u8]) -> bool {
    let records = head.chunks_exact(RECORD_BYTES).take(64);
    let can_be = |record: &&[u8]| {
        let next = le::<8>(record, 16).cast_signed();
        next == -1 || next == i64::MAX || (0..1 << 40).contains(&next)
    };
    2 * records.clone().filter(can_be).count() >= records.count()
}

/// Whether the data can be oracleGeneral: times do not go back, sizes are not absurd, and every
/// next request lies ahead.
pub fn looks_like(head: &[u8]) -> bool {
    let records: Vec<&[u8]> = head.chunks_exact(RECORD_BYTES).take(64).collect();
    let ordered = records
        .windows(2)
        .all(|pair| le::<4>(pair[0], 0) <= le::<4>(pair[1], 0));
    let plausible = records.iter().zip(1..).all(|(record, position)| {
        let (size, next) = (le::<4>(record, 12), le::<8>(record, 16).cast_signed());
        size < 1 << 30 && (next == -1 || next > position)
    });
    let linked = records
        .iter()
        .filter(|r| (1..1 << 40).contains(&le::<8>(r, 16)))
        .count();
    !records.is_empty()
        && ordered
        && plausible
        && (linked > 0 || records.iter().all(|r| le::<8>(r, 16) >= 1 << 62))
}
