//! Normal: requests gather around the middle of the region.
//!
//! The position is normally distributed with its mean at half the size and a standard deviation
//! that is a share of the size; a position outside the region is drawn again. Deviates come from
//! Marsaglia's polar method.

use super::generator::Source;
use super::parse::Raw;
use super::piece::Problem;
use super::region::Region;
use futae_policy::Prng;

/// `normal(sigma):SIZE`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The standard deviation as a share of the size.
    pub sigma: f64,
    pub region: Region,
}

impl Spec {
    pub fn parse(raw: &Raw<'_>) -> Result<Self, Problem> {
        raw.plain_at_most(1)?;
        let sigma = raw.plain.first().ok_or_else(|| {
            raw.missing("its standard deviation as a share of the size, as in `normal(0.25):2GiB`")
        })?;
        let expected = "a standard deviation above 0 and up to 4 times the size";
        let sigma = sigma.number(expected, |&s: &f64| s > 0.0 && s <= 4.0)?;
        Ok(Self {
            sigma,
            region: raw.region()?,
        })
    }
}

#[derive(Clone)]
pub struct Draw {
    blocks: f64,
    sigma_blocks: f64,
    /// The polar method makes two deviates at a time.
    spare: Option<f64>,
    prng: Prng,
}

impl Draw {
    pub fn new(blocks: u64, sigma: f64, prng: Prng) -> Self {
        let blocks = blocks as f64;
        Self {
            blocks,
            sigma_blocks: sigma * blocks,
            spare: None,
            prng,
        }
    }

    fn deviate(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let x = 2.0 * self.prng.unit() - 1.0;
            let y = 2.0 * self.prng.unit() - 1.0;
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let scale = (-2.0 * libm::log(square) / square).sqrt();
                self.spare = Some(y * scale);
                return x * scale;
            }
        }
    }
}

impl Source for Draw {
    #[inline]
    fn draw(&mut self) -> u64 {
        loop {
            let position = self.blocks * 0.5 + self.sigma_blocks * self.deviate();
            if position >= 0.0 && position < self.blocks {
                return position as u64;
            }
        }
    }
}
