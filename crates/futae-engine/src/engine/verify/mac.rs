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

    #[test]
    fn a_hash_depends_on_every_bit_the_length_the_key_and_the_place() {
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
        let of =
            |volume, index, generation, era| mac.at(&keys.place(volume, index, generation, era));
        let here = of(1, 2, 3, 4);
        assert!(here.is(of(1, 2, 3, 4)));
        for other in [
            of(2, 2, 3, 4),
            of(1, 3, 3, 4),
            of(1, 2, 4, 4),
            of(1, 2, 3, 5),
        ] {
            assert!(!here.is(other));
        }
    }
}
