//! Whether and how what clients and agents demote is verified.

use futae_control::check_memory_bytes;
use futae_engine::{Engine, OnRefusal, Verification};
use futae_terminal::failure::Failure;
use futae_units::Size;
use std::str::FromStr;

/// Bytes of memory that the hash of one block takes.
const HASH_BYTES: u64 = 20;
/// Hashes for this many times the blocks of a cache, unless said otherwise: half a percent of a guest's memory
/// where that is this many times the cache.
const CACHES: u64 = 4;
/// Memory for the hashes of a cache at least, unless said otherwise: guests of a small cache may be much larger.
const AUTO_BYTES_MIN: u64 = 4 << 20;
/// Memory for hashes at most, unless said otherwise: enough for guests of 50 GiB with blocks of 4 KiB.
const AUTO_BYTES_MAX: u64 = 256 << 20;
/// Larger blocks are loaded in pieces, and cannot be verified.
pub(super) const BLOCK_BYTES_MAX: u64 = 1 << 20;

/// What is believed of evictions that bring their data.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct EvictionArgs {
    /// Memory for the hashes by which evicted blocks that clients and agents demote are verified:
    /// about 20 bytes for each block that guests may hold. A block without a known hash is refused.
    /// auto: enough for 4 times the cache, at least 4MiB a cache and at most 256MiB; nothing if
    /// blocks are not accepted or larger than 1MiB. off: trust a volume's only client, and no agent
    #[arg(long, value_name = "SIZE|auto|off", default_value = "auto")]
    evictions_memory: EvictionsMemory,
    /// For tests: compare every demoted block that enters the cache with the store (counts `demotions_compared`,
    /// `demotions_wrong`)
    #[arg(long)]
    verify_evictions: bool,
    /// Hold equal blocks of all exports once, and answer a read of one export with an equal block that another has in
    /// the cache. A client can tell from the time of a read whether another export holds the same block. Blocks of
    /// 1MiB at most; takes about 24 bytes a block of the cache, and the hashes of --evictions-memory
    #[arg(long, conflicts_with = "decision_log")]
    share_equal: bool,
}

/// Memory for hashes.
#[derive(Clone, Copy, Debug)]
enum EvictionsMemory {
    Auto,
    Off,
    Bytes(u64),
}

impl FromStr for EvictionsMemory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            size => {
                let size: Size = size.parse().map_err(|error| format!("{error}"))?;
                size.bytes(1)
                    .map(Self::Bytes)
                    .map_err(|error| error.to_string())
            }
        }
    }
}

impl EvictionArgs {
    /// Whether nothing that agents send with its data is believed.
    pub(super) fn is_off(&self) -> bool {
        matches!(self.evictions_memory, EvictionsMemory::Off)
    }

    /// Whether what is demoted to a cache with such blocks is verified. `is_taken` says whether clients or agents may demote anything.
    fn verifies(&self, block_bytes: u64, is_taken: bool) -> bool {
        match self.evictions_memory {
            EvictionsMemory::Off => false,
            EvictionsMemory::Auto => {
                (is_taken || self.share_equal) && block_bytes <= BLOCK_BYTES_MAX
            }
            EvictionsMemory::Bytes(_) => true,
        }
    }

    /// Whether the options can be meant, for caches as [`Self::apply`] is told of them.
    ///
    /// # Errors
    ///
    /// Options that exclude each other; more memory than the machine has.
    pub(super) fn check(&self, block_bytes: u64, is_taken: bool) -> Result<(), Failure> {
        let wrong = |problem: String| Err(Failure::usage(problem));
        let has_hashes = block_bytes <= BLOCK_BYTES_MAX;
        let most = Size::Bytes(BLOCK_BYTES_MAX);
        let of_large =
            format!("blocks of more than {most} have no hashes; choose a smaller --block");
        if self.share_equal && self.is_off() {
            let problem = "--share-equal finds equal blocks by their hashes; leave out --evictions-memory off";
            return wrong(problem.to_owned());
        }
        if self.share_equal && !has_hashes {
            return wrong(format!("--share-equal: {of_large}"));
        }
        if let EvictionsMemory::Bytes(bytes) = self.evictions_memory {
            if !has_hashes {
                return wrong(format!("--evictions-memory: {of_large}"));
            }
            check_memory_bytes("a table", bytes)
                .map_err(|problem| Failure::usage(format!("--evictions-memory: {problem}")))?;
        }
        if self.verify_evictions && !self.verifies(block_bytes, is_taken) {
            let problem = "--verify-evictions: nothing is verified; see --evictions-memory";
            return wrong(problem.to_owned());
        }
        Ok(())
    }

    /// Has a cache of `blocks` blocks, one of several that have `total_blocks` together, verify what is demoted
    /// to it, where that is wanted. `is_taken` says whether clients or agents may demote anything.
    pub(super) fn apply(
        &self,
        engine: &Engine,
        (blocks, total_blocks): (u32, u32),
        is_taken: bool,
    ) -> Result<(), Failure> {
        if !self.verifies(engine.block_bytes(), is_taken) {
            return Ok(());
        }
        let memory_bytes = match self.evictions_memory {
            EvictionsMemory::Bytes(bytes) => share_of(bytes, blocks, total_blocks),
            EvictionsMemory::Auto | EvictionsMemory::Off => {
                let wanted = u64::from(blocks) * CACHES * HASH_BYTES;
                wanted
                    .max(AUTO_BYTES_MIN)
                    .min(share_of(AUTO_BYTES_MAX, blocks, total_blocks))
            }
        };
        let how = Verification {
            memory_bytes,
            on_refusal: OnRefusal::Notice,
            compare_with_store: self.verify_evictions,
        };
        engine.verify_demotions(how)?;
        if self.share_equal {
            engine.share_equal()?;
        }
        Ok(())
    }
}

fn share_of(bytes: u64, blocks: u32, total_blocks: u32) -> u64 {
    let share = u128::from(bytes) * u128::from(blocks) / u128::from(total_blocks.max(1));
    share as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_out_and_read_from_the_command_line() {
        assert_eq!(share_of(100, 1, 4), 25);
        assert_eq!(share_of(u64::MAX, 7, 7), u64::MAX);
        let read = |text: &str| text.parse::<EvictionsMemory>();
        assert!(matches!(read("auto"), Ok(EvictionsMemory::Auto)));
        assert!(matches!(read("off"), Ok(EvictionsMemory::Off)));
        assert!(matches!(read("2MiB"), Ok(EvictionsMemory::Bytes(bytes)) if bytes == 2 << 20));
        assert!(read("much").is_err());
    }
}
