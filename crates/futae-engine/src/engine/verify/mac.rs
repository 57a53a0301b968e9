//! The keyed hash: HighwayHash with 128 bits, from the crate `highway`.
//!
//! A guest chooses the data that is hashed, so with a fast unkeyed hash it could prepare two pages
//! with the same hash. HighwayHash is designed as a pseudo-random function under its key. It was
//! the fastest keyed hash measured: a little faster than AEGIS-128L as a MAC, several times as fast
//! as keyed BLAKE3. The crate `highway` has no dependencies, chooses AVX2, SSE 4.1 or NEON at run
//! time, and falls back to portable code. The crate `aegis` compiles a C library, or is built with
//! AES in software. The keys are drawn from the operating system for each cache and never leave it.
//! No client sees a hash: a client learns at most whether a page was accepted.

use crate::SetupError;
use bytemuck::Zeroable;
use highway::{HighwayHash, HighwayHasher, Key};
use std::io;

/// The keyed hash of some data.
#[derive(Clone, Copy, Debug, Zeroable)]
#[cfg_attr(test, derive(PartialEq))]
pub struct Mac([u64; 2]);

impl Mac {
    /// The hash combined with a place: equal data at two places has different hashes in the table,
    /// so an entry found under another block's tag never matches.
    pub fn at(self, place: &Place) -> Self {
        Self([self.0[0] ^ place.mask[0], self.0[1] ^ place.mask[1]])
    }

    /// Two numbers that cannot be predicted without the key.
    pub fn halves(self) -> (u64, u64) {
        (self.0[0], self.0[1])
    }

    /// Compares two hashes in constant time.
    pub fn is(self, other: Self) -> bool {
        (self.0[0] ^ other.0[0]) | (self.0[1] ^ other.0[1]) == 0
    }
}

/// Where the entry of a block is, which cannot be predicted without the key.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Chooses the set.
    pub set: u32,
    /// Distinguishes the blocks of a set; never 0.
    pub tag: u32,
    mask: [u64; 2],
}

/// The secrets of one cache.
#[derive(Clone)]
pub struct Keys {
    data: Key,
    place: Key,
}

impl Keys {
    /// Draws keys from the operating system.
    pub fn draw() -> Result<Self, SetupError> {
        Ok(Self {
            data: draw_key()?,
            place: draw_key()?,
        })
    }

    /// Restores keys that were drawn before.
    pub fn from_words(words: [u64; 8]) -> Self {
        let [a, b, c, d, e, f, g, h] = words;
        Self {
            data: Key([a, b, c, d]),
            place: Key([e, f, g, h]),
        }
    }

    /// The keys, to be stored in memory that only this cache and its successors read.
    pub fn words(&self) -> [u64; 8] {
        let ([a, b, c, d], [e, f, g, h]) = (self.data.0, self.place.0);
        [a, b, c, d, e, f, g, h]
    }

    /// The hash of a block's data.
    pub fn mac(&self, data: &[u8]) -> Mac {
        Mac(HighwayHasher::new(self.data).hash128(data))
    }

    /// The place of block `index` of volume `volume` under a generation of its store. `era` counts
    /// how often all hashes of the volume were discarded.
    pub fn place(&self, volume: u16, index: u64, generation: u64, era: u64) -> Place {
        let mut name = [0; 26];
        name[..8].copy_from_slice(&index.to_le_bytes());
        name[8..16].copy_from_slice(&generation.to_le_bytes());
        name[16..24].copy_from_slice(&era.to_le_bytes());
        name[24..].copy_from_slice(&volume.to_le_bytes());
        let [place, _, mask @ ..] = HighwayHasher::new(self.place).hash256(&name);
        Place {
            set: place as u32,
            tag: ((place >> 32) as u32).max(1),
            mask,
        }
    }
}

fn draw_key() -> Result<Key, SetupError> {
    let mut bytes = [0; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(some) => filled += some,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(SetupError::Key(io::Error::from(error))),
        }
    }
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes
            .iter()
            .rev()
            .fold(0, |all, &byte| all << 8 | u64::from(byte));
    }
    Ok(Key(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_hash_depends_on_every_bit_the_length_and_the_key() {
        let (keys, others) = (Keys::draw().expect("keys"), Keys::draw().expect("keys"));
        let data = vec![7; 4096];
        let mac = keys.mac(&data);
        assert!(mac.is(keys.mac(&data)));
        assert!(!mac.is(others.mac(&data)), "another key");
        assert!(!mac.is(keys.mac(&data[..4095])), "another length");
        for bit in 0..4096 * 8 {
            let mut other = data.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!mac.is(keys.mac(&other)), "bit {bit}");
        }
    }

    #[test]
    fn hashes_are_equal_only_if_every_bit_is() {
        let mac = Mac([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
        assert!(mac.is(mac));
        for bit in 0..64 {
            // If both halves differ in the same bit, the differences must not cancel.
            for change in [[1 << bit, 0], [0, 1 << bit], [1 << bit, 1 << bit]] {
                let other = Mac([mac.0[0] ^ change[0], mac.0[1] ^ change[1]]);
                assert!(!mac.is(other) && !other.is(mac), "{change:x?}");
            }
        }
    }

    #[test]
    fn a_hash_has_another_form_at_each_place_and_is_found_from_it() {
        let keys = Keys::draw().expect("keys");
        let mac = keys.mac(&[7; 4096]);
        let place = |volume, index, generation, era| keys.place(volume, index, generation, era);
        let here = place(1, 2, 3, 4);
        assert!(mac.at(&here).is(mac.at(&place(1, 2, 3, 4))));
        assert!(mac.at(&here).at(&here).is(mac));
        for other in [
            place(2, 2, 3, 4),
            place(1, 3, 3, 4),
            place(1, 2, 4, 4),
            place(1, 2, 3, 5),
        ] {
            assert!(!mac.at(&here).is(mac.at(&other)));
        }
    }

    #[test]
    fn blocks_are_spread_over_sets_and_tags() {
        let keys = Keys::draw().expect("keys");
        let places = || (0..1000).map(|index| keys.place(0, index, 0, 0));
        let sets: BTreeSet<_> = places().map(|place| place.set).collect();
        let tags: BTreeSet<_> = places().map(|place| place.tag).collect();
        assert!(sets.len() > 990 && tags.len() > 990);
        assert!(!tags.contains(&0), "no entry has this tag");
    }

    #[test]
    fn every_bit_of_a_key_is_drawn() {
        let draws: Vec<_> = (0..100)
            .map(|_| Keys::draw().expect("keys").words())
            .collect();
        for word in 0..8 {
            let ones = draws.iter().fold(0, |ones, words| ones | words[word]);
            let zeros = draws.iter().fold(0, |zeros, words| zeros | !words[word]);
            assert_eq!((ones, zeros), (u64::MAX, u64::MAX), "word {word}");
        }
    }

    #[test]
    fn restored_keys_make_the_same_hashes_and_places() {
        let keys = Keys::draw().expect("keys");
        let restored = Keys::from_words(keys.words());
        assert_eq!(keys.mac(b"data"), restored.mac(b"data"));
        let [one, other] = [&keys, &restored].map(|keys| keys.place(1, 2, 3, 4));
        assert_eq!((one.set, one.tag), (other.set, other.tag));
        assert_eq!(Mac([0; 2]).at(&one), Mac([0; 2]).at(&other));
    }

    #[test]
    fn both_halves_of_a_hash_depend_on_the_data() {
        let keys = Keys::draw().expect("keys");
        let [one, other] = [keys.mac(b"one").halves(), keys.mac(b"other").halves()];
        assert!(one.0 != other.0 && one.1 != other.1 && one.0 != one.1);
    }
}
