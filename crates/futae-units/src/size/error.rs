//! What can be wrong with a size.

use super::Size;

/// What is wrong with a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The text is not a number with a unit.
    #[error(
        "`{text}` is not a size: sizes are a number and KiB, MiB, GiB, TiB, `blocks` or `%`, or \
         plain bytes, for example 1.5GiB{}", suggest(.near.as_deref())
    )]
    Malformed {
        /// What was written.
        text: String,
        /// What was probably meant.
        near: Option<String>,
    },
    /// A fraction that leaves part of a byte or block.
    #[error("`{text}` is not a whole number of {of}")]
    NotWhole {
        /// What was written.
        text: String,
        /// Bytes or blocks.
        of: &'static str,
    },
    /// Beyond what 64 bits count.
    #[error("`{text}` is too large: the limit is 16 EiB")]
    TooLarge {
        /// What was written.
        text: String,
    },
    /// A share outside 0–100 %.
    #[error("`{text}` is not a share above 0% and up to 100%")]
    PercentRange {
        /// What was written.
        text: String,
    },
    /// A number of bytes that blocks do not divide.
    #[error(
        "{size} is not a multiple of the block size {}{}",
        Size::Bytes(*.block_bytes), suggest(as_blocks(.size).as_deref())
    )]
    NotBlocks {
        /// The size.
        size: String,
        /// The block size.
        block_bytes: u64,
    },
    /// A percentage where nothing is known that it could be a share of.
    #[error("{size} needs something to be a share of; give bytes or blocks here")]
    NoFootprint {
        /// The size.
        size: String,
    },
    /// A block size that is not allowed.
    #[error(
        "`{text}` is not a block size: it must be a power of two from {} to {}",
        Size::Bytes(*.min_bytes), Size::Bytes(*.max_bytes)
    )]
    BlockSize {
        /// What was written.
        text: String,
        /// The smallest allowed.
        min_bytes: u64,
        /// The largest allowed.
        max_bytes: u64,
    },
}

/// A number without a unit, which stands for bytes, as a number of blocks.
fn as_blocks(size: &str) -> Option<String> {
    let is_plain = size.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| format!("{size}blocks"))
}

fn suggest(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"))
}
