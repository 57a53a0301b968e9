//! The hashes of the blocks in a buffer, computed without the lock.

use super::mac::{Keys, Mac};

/// Hashes of adjacent blocks.
#[derive(Debug, Default)]
pub struct Macs {
    /// The generation of the store when the operation began that carried the data.
    pub generation: u64,
    /// The index of the first block.
    first: u64,
    /// The hash of a buffer of one block, the most frequent case.
    one: Option<Mac>,
    more: Vec<Mac>,
}

impl Macs {
    /// Hashes every block of `block_bytes` in data that lies at `offset` of a volume. A partial
    /// block at the start is left out. A shorter one at the end is taken for the last block of its
    /// volume, which [`of`](Self::of) checks.
    pub fn make(keys: &Keys, block_bytes: u64, offset: u64, data: &[u8]) -> Self {
        let first = offset.div_ceil(block_bytes);
        // A multiple of a power of two, and smaller than it.
        let skipped = offset.wrapping_neg() & (block_bytes - 1);
        let whole = data.get(skipped as usize..).unwrap_or_default();
        let mut blocks = whole
            .chunks(block_bytes as usize)
            .map(|block| keys.mac(block));
        Self {
            generation: 0,
            first,
            one: blocks.next(),
            more: blocks.collect(),
        }
    }

    /// The hash of block `index`.
    pub fn of(&self, index: u64) -> Option<Mac> {
        match index.checked_sub(self.first)? {
            0 => self.one,
            more => self.more.get(usize::try_from(more - 1).ok()?).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_of_a_buffer_has_its_hash() {
        let keys = Keys::draw().expect("keys");
        let data: Vec<u8> = (0..10_000_u32).map(|at| (at % 251) as u8).collect();
        let macs = Macs::make(&keys, 4096, 2 * 4096, &data);
        let is = |index, from, to| macs.of(index) == Some(keys.mac(&data[from..to]));
        assert!(is(2, 0, 4096) && is(3, 4096, 8192) && is(4, 8192, 10_000));
        assert!(macs.of(1).is_none() && macs.of(5).is_none());
        let later = Macs::make(&keys, 4096, 2 * 4096 - 100, &data);
        assert!(later.of(1).is_none());
        assert_eq!(later.of(2), Some(keys.mac(&data[100..4196])));
        let last = Macs::make(&keys, 4096, u64::MAX - 5, &data);
        assert!(
            last.of(0).is_none(),
            "what a client sends is not in range yet"
        );
        let none = Macs::make(&keys, 4096, 5, &data[..4000]);
        assert!(none.of(0).is_none() && none.of(1).is_none());
    }
}
