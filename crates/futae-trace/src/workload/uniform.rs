//! Uniform: every block is equally likely.

use super::generator::Source;
use futae_policy::Prng;

#[derive(Clone)]
pub struct Draw {
    blocks: u64,
    prng: Prng,
}

impl Draw {
    pub fn new(blocks: u64, prng: Prng) -> Self {
        Self { blocks, prng }
    }
}

impl Source for Draw {
    #[inline]
    fn draw(&mut self) -> u64 {
        self.prng.below(self.blocks)
    }
}
