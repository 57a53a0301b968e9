//! A seeded permutation of `0..count` that needs little memory.

use futae_policy::Prng;

const ROUNDS: usize = 3;
/// Up to this many places are written into a table, which is faster than computing them.
const TABLE_MAX: u64 = 1 << 20;

/// Scatters ranks over blocks. Numbers of as many bits as `count` needs are permuted by rounds of
/// exclusive-or, multiplication by an odd number and a shifted exclusive-or, each of which can be
/// undone; a result outside `0..count` is permuted again until it is inside, which keeps the whole
/// one-to-one.
#[derive(Clone, Debug)]
pub struct Scatter {
    count: u64,
    mask: u64,
    shift: u32,
    keys: [(u64, u64); ROUNDS],
    /// Every place, or empty where there are too many.
    table: Vec<u32>,
}

impl Scatter {
    pub fn new(count: u64, prng: &mut Prng) -> Self {
        let bits = u64::BITS - (count - 1).leading_zeros();
        let mask = (1u64 << bits) - 1;
        let keys = std::array::from_fn(|_| (prng.bits() & mask, prng.bits() | 1));
        let mut scatter = Self {
            count,
            mask,
            shift: (bits / 2).max(1),
            keys,
            table: Vec::new(),
        };
        if count <= TABLE_MAX {
            scatter.table = (0..count)
                .map(|rank| scatter.computed(rank) as u32)
                .collect();
        }
        scatter
    }

    /// Where `rank` goes; both are below `count`.
    #[inline]
    pub fn place(&self, rank: u64) -> u64 {
        match self.table.get(rank as usize) {
            Some(&place) => u64::from(place),
            None => self.computed(rank),
        }
    }

    fn computed(&self, rank: u64) -> u64 {
        let mut x = rank;
        loop {
            for (add, multiply) in self.keys {
                x = (x ^ add).wrapping_mul(multiply) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.count {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Prng, Scatter};

    #[test]
    fn every_place_is_taken_once() {
        for count in (1..200).chain([1000, 1024, 1025, 20_480, (1 << 20) + 1]) {
            let scatter = Scatter::new(count, &mut Prng::new(count));
            let mut taken = vec![false; count as usize];
            for rank in 0..count {
                let place = scatter.place(rank) as usize;
                assert!(!taken[place], "{count}: {place} twice");
                taken[place] = true;
            }
        }
    }

    #[test]
    fn neighbours_and_seeds_are_torn_apart() {
        let count = 100_000;
        let [a, b] = [1, 2].map(|seed| Scatter::new(count, &mut Prng::new(seed)));
        let near = |x: u64, y: u64| x.abs_diff(y) < 1000;
        let neighbours = (1..count)
            .filter(|&r| near(a.place(r), a.place(r - 1)))
            .count();
        let same = (0..count).filter(|&r| near(a.place(r), b.place(r))).count();
        // Two places at random are that near with a probability of 2 %.
        assert!((1000..3000).contains(&neighbours), "{neighbours}");
        assert!((1000..3000).contains(&same), "{same}");
    }
}
