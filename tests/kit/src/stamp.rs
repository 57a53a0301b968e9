//! Blocks that say which one and which version they are, in every eight bytes, so that a torn,
//! stale or misplaced block is seen. It is here because this crate is compiled with optimisation and the end-to-end tests are
//! not: they check every block that they read.

/// Bytes of a block that is stamped.
pub const BLOCK: usize = 4096;

/// What a block says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its number.
    pub block: u64,
    /// How often it was written.
    pub version: u64,
}

impl Stamp {
    /// Writes the stamp over a whole block.
    pub fn fill(self, block: &mut [u8]) {
        for (at, word) in (0..).zip(block.chunks_exact_mut(8)) {
            word.copy_from_slice(&self.word(at).to_le_bytes());
        }
    }

    /// What a whole block says of itself; none if its parts disagree.
    #[must_use]
    pub fn read(block: &[u8]) -> Option<Self> {
        assert_eq!(block.len(), BLOCK, "a whole block");
        let mut words = block.chunks_exact(8).map(|word| {
            let word: [u8; 8] = word.try_into().expect("eight bytes");
            u64::from_le_bytes(word)
        });
        let (number, version) = (words.next()?, words.next()?);
        let stamp = Self {
            block: number,
            version,
        };
        let agrees = (2..).zip(words).all(|(at, word)| word == stamp.word(at));
        agrees.then_some(stamp)
    }

    fn word(self, at: u64) -> u64 {
        match at {
            0 => self.block,
            1 => self.version,
            _ => (self.block << 32 ^ self.version ^ at << 56).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_two_versions_is_torn() {
        let (mut old, mut new) = (vec![0; BLOCK], vec![0; BLOCK]);
        let stamp = |version| Stamp { block: 7, version };
        stamp(1).fill(&mut old);
        stamp(2).fill(&mut new);
        assert_eq!(Stamp::read(&new), Some(stamp(2)));
        for half in [16, 512, BLOCK / 2, BLOCK - 8] {
            let torn = [&new[..half], &old[half..]].concat();
            assert_eq!(Stamp::read(&torn), None, "the first {half} bytes are new");
        }
    }
}
