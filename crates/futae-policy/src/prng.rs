//! A seeded random generator within the project, so that an upgraded crate can never change a
//! figure.

/// The increment of splitmix64.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// One step of splitmix64 (Steele, Lea and Flood, 2014) from the state `z`: every bit of the result depends on every bit
/// of `z`, and different states have different results.
#[inline]
#[must_use]
pub fn mixed(z: u64) -> u64 {
    let z = z.wrapping_add(GAMMA);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// xoshiro256** (Blackman and Vigna, 2018), seeded by splitmix64. Not for cryptography.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    /// The generator for `seed`; equal seeds give equal sequences on every machine.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut s = seed;
        let mut next = || {
            let bits = mixed(s);
            s = s.wrapping_add(GAMMA);
            bits
        };
        Self {
            state: [next(), next(), next(), next()],
        }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// A number in `0..limit`. `limit` must not be 0. The bias is below `limit / 2^64`.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        debug_assert!(limit > 0);
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// A number in `0.0..1.0`, with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::Prng;

    #[test]
    fn the_sequence_never_changes() {
        let mut prng = Prng::new(1);
        let first: Vec<u64> = (0..3).map(|_| prng.bits()).collect();
        // xoshiro256** seeded with splitmix64(1), from the authors' reference code.
        assert_eq!(
            first,
            [
                0xB3F2_AF6D_0FC7_10C5,
                0x853B_5596_4736_4CEA,
                0x92F8_9756_082A_4514
            ]
        );
    }

    #[test]
    fn numbers_stay_below_their_limit_and_reach_all_of_it() {
        let mut prng = Prng::new(7);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[prng.below(10) as usize] += 1;
            assert!((0.0..1.0).contains(&prng.unit()));
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
    }
}
