//! Evicted pages with their data, as an agent writes them to a channel disk.
//!
//! A batch is one write at the beginning of the disk: a block of 4 KiB with the head, then the pages in the
//! order of their records. All numbers are little-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..16 | [`MAGIC`] |
//! | 16..20 | version, 1 |
//! | 20..24 | number of pages |
//! | 24..32 | the agent's run, as in its hello |
//! | 32..40 | number of the batch in this run |
//! | 40..64 | zeroes |
//! | 64.. | a record of 16 bytes for each page: major and minor number of the device, first sector |
//!
//! A reader that finds [`MAGIC`] at the beginning of a disk of [`CHANNEL_BYTES`] knows that it is a channel.
//! What a batch says is a hint from a machine that may be hostile: nothing here is trusted, and the data
//! enters a cache only if the cache can verify it.

use crate::device::DeviceId;
use crate::{PAGE_BYTES, SECTOR_BYTES};

/// What a channel disk and every batch begin with.
pub const MAGIC: [u8; 16] = *b"futae-evictions\n";
/// Size of a channel disk.
pub const CHANNEL_BYTES: u64 = 4 << 20;
/// Pages of a batch, at most.
pub const PAGES_MAX: usize = 240;
/// Bytes of the head.
pub const HEAD_BYTES: usize = PAGE_BYTES as usize;

const VERSION: u32 = 1;
const RECORDS_AT: usize = 64;
const RECORD_BYTES: usize = 16;

/// Where an evicted page lay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictedPage {
    /// The disk.
    pub device: DeviceId,
    /// Its first sector on that disk.
    pub sector: u64,
}

/// The head of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictedPages {
    /// The agent's run.
    pub run: u64,
    /// The number of the batch in this run.
    pub sequence: u64,
    /// The pages, in the order of their data.
    pub pages: Vec<EvictedPage>,
}

/// Why bytes are no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBatch {
    /// They do not begin with [`MAGIC`].
    Magic,
    /// They are of a version that is not known.
    Version(u32),
    /// They are not as many as they say, or more pages than [`PAGES_MAX`].
    Length,
}

impl EvictedPages {
    /// The head, in `head`, the data of at most [`PAGES_MAX`] pages behind which the caller has put.
    pub fn encode(&self, head: &mut [u8; HEAD_BYTES]) {
        head.fill(0);
        let count = self.pages.len().min(PAGES_MAX);
        head[..16].copy_from_slice(&MAGIC);
        head[16..20].copy_from_slice(&VERSION.to_le_bytes());
        head[20..24].copy_from_slice(&(count as u32).to_le_bytes());
        head[24..32].copy_from_slice(&self.run.to_le_bytes());
        head[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        let records = head[RECORDS_AT..].chunks_exact_mut(RECORD_BYTES);
        for (record, page) in records.zip(&self.pages[..count]) {
            record[..4].copy_from_slice(&page.device.major.to_le_bytes());
            record[4..8].copy_from_slice(&page.device.minor.to_le_bytes());
            record[8..].copy_from_slice(&page.sector.to_le_bytes());
        }
    }

    /// The batch in bytes that were written in one piece. Its pages' data are behind [`HEAD_BYTES`].
    ///
    /// # Errors
    ///
    /// If they are not a batch, whole.
    pub fn decode(bytes: &[u8]) -> Result<Self, NoBatch> {
        if !bytes.starts_with(&MAGIC) {
            return Err(NoBatch::Magic);
        }
        let head = bytes.get(..HEAD_BYTES).ok_or(NoBatch::Length)?;
        match short(head, 16) {
            VERSION => {}
            other => return Err(NoBatch::Version(other)),
        }
        let count = short(head, 20) as usize;
        if count > PAGES_MAX || bytes.len() != HEAD_BYTES + count * PAGE_BYTES as usize {
            return Err(NoBatch::Length);
        }
        let records = head[RECORDS_AT..].chunks_exact(RECORD_BYTES).take(count);
        let page = |record: &[u8]| EvictedPage {
            device: DeviceId {
                major: short(record, 0),
                minor: short(record, 4),
            },
            sector: long(record, 8),
        };
        Ok(Self {
            run: long(head, 24),
            sequence: long(head, 32),
            pages: records.map(page).collect(),
        })
    }

    /// The bytes of a disk at which page `at` begins, if there are such.
    #[must_use]
    pub fn offset_bytes(&self, at: usize) -> Option<u64> {
        self.pages.get(at)?.sector.checked_mul(SECTOR_BYTES)
    }
}

/// The four bytes at `at`; zeroes where there are none.
fn short(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk());
    four.map_or(0, |four| u32::from_le_bytes(*four))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..).and_then(|rest| rest.first_chunk());
    eight.map_or(0, |eight| u64::from_le_bytes(*eight))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(count: usize) -> (EvictedPages, Vec<u8>) {
        let page = |at: usize| EvictedPage {
            device: DeviceId {
                major: 254,
                minor: at as u32 * 16,
            },
            sector: at as u64 * 8 + (1 << 40),
        };
        let batch = EvictedPages {
            run: 0x0123_4567_89AB_CDEF,
            sequence: 7,
            pages: (0..count).map(page).collect(),
        };
        let mut bytes = vec![0; HEAD_BYTES + count * PAGE_BYTES as usize];
        let head = bytes.first_chunk_mut().expect("a head");
        batch.encode(head);
        (batch, bytes)
    }

    #[test]
    fn a_batch_is_read_as_written() {
        for count in [0, 1, PAGES_MAX] {
            let (batch, bytes) = batch(count);
            assert_eq!(EvictedPages::decode(&bytes), Ok(batch));
        }
    }

    #[test]
    fn what_is_not_whole_is_no_batch() {
        let (_, bytes) = batch(3);
        for length in 0..bytes.len() {
            assert!(EvictedPages::decode(&bytes[..length]).is_err(), "{length}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(EvictedPages::decode(&longer), Err(NoBatch::Length));
        let mut other = bytes.clone();
        other[16] = 2;
        assert_eq!(EvictedPages::decode(&other), Err(NoBatch::Version(2)));
        other[0] ^= 1;
        assert_eq!(EvictedPages::decode(&other), Err(NoBatch::Magic));
        let mut many = bytes;
        many[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(EvictedPages::decode(&many), Err(NoBatch::Length));
    }

    #[test]
    fn a_sector_beyond_all_disks_has_no_offset() {
        let (mut batch, _) = batch(1);
        assert_eq!(batch.offset_bytes(0), Some(512 << 40));
        assert_eq!(batch.offset_bytes(1), None);
        batch.pages[0].sector = u64::MAX;
        assert_eq!(batch.offset_bytes(0), None);
    }
}
