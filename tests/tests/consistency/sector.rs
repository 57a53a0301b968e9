//! Sectors that say whose they are, so that a stale, torn or foreign one is recognised wherever it turns up.

use std::ops::Range;

/// Bytes of a sector: what is never torn.
pub const SECTOR: usize = 512;

const MAGIC: &[u8; 8] = b"futaesec";
const WORDS_AT: usize = 32;
const SUM_AT: usize = SECTOR - 4;

/// The writer of the first content of an image.
pub const FACTORY: u32 = 0;
/// The writer that writes to an image while no server runs.
pub const OUTSIDER: u32 = u32::MAX - 1;
/// The writer of forged bytes.
pub const FORGER: u32 = u32::MAX;

/// The volume of content that many blocks of all volumes have.
const COMMON: u32 = u32::MAX;
/// Sectors after which it repeats itself: those of the smallest block.
const COMMON_SECTORS: u64 = 8;

/// What a sector says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The volume that it was written to.
    pub volume: u32,
    /// The connection that wrote it.
    pub writer: u32,
    /// Its number in the volume.
    pub sector: u64,
    /// The number of the operation that wrote it; 0 in a new image.
    pub version: u64,
}

impl Label {
    /// Of a sector in a block that is equal to others: only its place in the block shows.
    pub fn common(pattern: u64, sector: u64) -> Self {
        Self {
            volume: COMMON,
            writer: FACTORY,
            sector: sector % COMMON_SECTORS,
            version: pattern,
        }
    }

    /// Whether other blocks have the same.
    pub fn is_common(&self) -> bool {
        self.volume == COMMON
    }

    /// Writes the label, filler that depends on it, and a checksum over a whole sector.
    pub fn fill(self, out: &mut [u8]) {
        assert_eq!(out.len(), SECTOR, "a whole sector");
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&self.volume.to_le_bytes());
        out[12..16].copy_from_slice(&self.writer.to_le_bytes());
        out[16..24].copy_from_slice(&self.sector.to_le_bytes());
        out[24..WORDS_AT].copy_from_slice(&self.version.to_le_bytes());
        let mut word = (self.version << 32 ^ self.sector).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for part in out[WORDS_AT..SUM_AT].chunks_mut(8) {
            word = word.rotate_left(23).wrapping_add(0x2545_F491_4F6C_DD1D);
            part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
        }
        let sum = crc32fast::hash(&out[..SUM_AT]);
        out[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
    }

    /// The label of a whole sector; none if it is damaged or was never written by [`fill`](Self::fill).
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let is_whole = bytes.len() == SECTOR
            && bytes.starts_with(MAGIC)
            && half(SUM_AT) == Some(crc32fast::hash(&bytes[..SUM_AT]));
        if !is_whole {
            return None;
        }
        Some(Self {
            volume: half(8)?,
            writer: half(12)?,
            sector: number(16)?,
            version: number(24)?,
        })
    }
}

/// A sector in words, for messages.
pub fn describe(bytes: &[u8]) -> String {
    if bytes.iter().all(|&byte| byte == 0) {
        return "zeroes".to_owned();
    }
    match Label::read(bytes) {
        Some(label) if label.writer == FORGER => format!("FORGED bytes ({label:?})"),
        Some(label) => format!("{label:?}"),
        None => format!(
            "no whole sector (it begins with {:02x?})",
            &bytes[..bytes.len().min(32)]
        ),
    }
}

/// The sectors of a range: each with its part of the sector and its part of the range.
pub fn pieces(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> {
    let begin = offset as usize;
    let end = begin + length;
    (begin / SECTOR..end.div_ceil(SECTOR)).map(move |sector| {
        let from = begin.max(sector * SECTOR);
        let to = end.min((sector + 1) * SECTOR);
        let inside = from - sector * SECTOR..to - sector * SECTOR;
        (sector, inside, from - begin..to - begin)
    })
}
