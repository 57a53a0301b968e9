//! Sizes as they are written on every command line: `4KiB`, `1.5GiB`, `512`, `1000blocks`, `10%`.

mod error;

pub use error::SizeError;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The smallest block of a live cache.
pub const BLOCK_BYTES_MIN: u64 = 4 << 10;
/// The largest block.
pub const BLOCK_BYTES_MAX: u64 = 256 << 20;
/// The smallest block of a simulation: a disk sector.
pub const SIMULATED_BLOCK_BYTES_MIN: u64 = 512;

const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
const BLOCKS: &str = "blocks";

/// An amount of data, before the block size is known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Size {
    /// This many bytes.
    Bytes(u64),
    /// This many blocks, whatever a block is.
    Blocks(u64),
    /// A share of what a trace or workload touches in all, above 0 and at most 100 percent.
    Percent(f64),
}

impl Size {
    /// The size in bytes, for blocks of `block_bytes`.
    pub fn bytes(self, block_bytes: u64) -> Result<u64, SizeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Blocks(blocks) => {
                blocks
                    .checked_mul(block_bytes)
                    .ok_or_else(|| SizeError::TooLarge {
                        text: self.to_string(),
                    })
            }
            Self::Percent(_) => Err(SizeError::NoFootprint {
                size: self.to_string(),
            }),
        }
    }

    /// The size in blocks of `block_bytes`; an error unless it is a whole number of them.
    pub fn blocks(self, block_bytes: u64) -> Result<u64, SizeError> {
        match self {
            Self::Blocks(blocks) => Ok(blocks),
            Self::Bytes(bytes) if block_bytes > 0 && bytes % block_bytes == 0 => {
                Ok(bytes / block_bytes)
            }
            Self::Bytes(_) => Err(SizeError::NotBlocks {
                size: self.to_string(),
                block_bytes,
            }),
            Self::Percent(_) => Err(SizeError::NoFootprint {
                size: self.to_string(),
            }),
        }
    }

    /// As [`Size::blocks`], with percentages taken of `footprint_blocks`, rounded down but at
    /// least one block.
    pub fn blocks_of(self, block_bytes: u64, footprint_blocks: u64) -> Result<u64, SizeError> {
        match self {
            Self::Percent(percent) => {
                Ok(((footprint_blocks as f64 * percent / 100.0) as u64).max(1))
            }
            _ => self.blocks(block_bytes),
        }
    }
}

/// Reads a block size: a power of two in `min_bytes..=max_bytes`, in bytes or with a unit.
pub fn parse_block_bytes(text: &str, min_bytes: u64, max_bytes: u64) -> Result<u64, SizeError> {
    match text.parse()? {
        Size::Bytes(bytes)
            if bytes.is_power_of_two() && (min_bytes..=max_bytes).contains(&bytes) =>
        {
            Ok(bytes)
        }
        _ => Err(SizeError::BlockSize {
            text: text.trim().to_owned(),
            min_bytes,
            max_bytes,
        }),
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let text = text.trim();
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let number = Decimal::read(digits).ok_or_else(|| malformed(text, digits, unit))?;
        match unit {
            "" => number.times(1, text, "bytes").map(Self::Bytes),
            BLOCKS => number.times(1, text, BLOCKS).map(Self::Blocks),
            "%" => match digits.parse::<f64>() {
                Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Self::Percent(percent)),
                _ => Err(SizeError::PercentRange {
                    text: text.to_owned(),
                }),
            },
            _ => {
                let (_, bits) = UNITS
                    .into_iter()
                    .find(|(name, _)| *name == unit)
                    .ok_or_else(|| malformed(text, digits, unit))?;
                number.times(1 << bits, text, "bytes").map(Self::Bytes)
            }
        }
    }
}

fn malformed(text: &str, digits: &str, unit: &str) -> SizeError {
    let first = unit
        .trim_start()
        .chars()
        .next()
        .map(|c| c.to_ascii_uppercase());
    let near = match first {
        _ if Decimal::read(digits).is_none() => None,
        Some('B') if unit.trim().len() > 1 => Some(BLOCKS),
        Some('B') => Some(""),
        Some(c) => UNITS
            .into_iter()
            .map(|(name, _)| name)
            .find(|name| name.starts_with(c)),
        None => None,
    };
    let near = near.map(|unit| format!("{digits}{unit}"));
    SizeError::Malformed {
        text: text.to_owned(),
        near,
    }
}

/// An unsigned decimal number, kept exactly: `digits / 10^places`.
struct Decimal {
    digits: u128,
    places: u32,
}

impl Decimal {
    fn read(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        // 2^-40 of a TiB, one byte, has 40 places; a fraction that exact is nobody's size.
        let places = u32::try_from(fraction.len())
            .ok()
            .filter(|&places| places <= 15)?;
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        // Too many digits are kept as a number that `times` finds too large.
        let digits = if digits.is_empty() {
            0
        } else {
            digits.parse().unwrap_or(u128::MAX)
        };
        Some(Self { digits, places })
    }

    fn times(&self, factor: u128, text: &str, of: &'static str) -> Result<u64, SizeError> {
        let too_large = || SizeError::TooLarge {
            text: text.to_owned(),
        };
        let scale = 10u128.pow(self.places);
        let product = self.digits.checked_mul(factor).ok_or_else(too_large)?;
        if product % scale != 0 {
            return Err(SizeError::NotWhole {
                text: text.to_owned(),
                of,
            });
        }
        u64::try_from(product / scale).map_err(|_| too_large())
    }
}

impl fmt::Display for Size {
    /// The shortest exact form: `192MiB`, `1.5GiB`, `1000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Blocks(blocks) => write!(f, "{blocks}{BLOCKS}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Bytes(bytes) => f.write_str(&shortest(bytes)),
        }
    }
}

/// The shortest way to write `bytes` exactly; among equals the largest unit.
fn shortest(bytes: u64) -> String {
    let plain = bytes.to_string();
    if bytes == 0 {
        return plain;
    }
    let with_unit = UNITS.into_iter().filter_map(|(name, bits)| {
        let thousandths = u128::from(bytes) * 1000;
        let unit = 1u128 << bits;
        (u128::from(bytes) >= unit && thousandths % unit == 0).then(|| {
            let (whole, rest) = (thousandths / unit / 1000, thousandths / unit % 1000);
            let fraction = format!(".{rest:03}");
            format!(
                "{whole}{}{name}",
                fraction.trim_end_matches('0').trim_end_matches('.')
            )
        })
    });
    with_unit
        .chain([plain.clone()])
        .min_by_key(String::len)
        .unwrap_or(plain)
}

impl TryFrom<String> for Size {
    type Error = SizeError;

    fn try_from(text: String) -> Result<Self, SizeError> {
        text.parse()
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.to_string()
    }
}

#[cfg(test)]
mod tests;
