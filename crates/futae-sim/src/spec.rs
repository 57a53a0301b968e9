//! Levels as written on a command line: `lru:2GiB`, `exclusive(lfu):1000blocks`,
//! `2q(k_in=0.3):25%`, and `lru:1GiB/2GiB` if two guests have different sizes.

use crate::hierarchy::LevelShape;
use crate::link::Link;
use futae_policy::{PolicySpec, Shape, SpecError, build};
use futae_units::{Size, SizeError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One level: a policy and a capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LevelSpec {
    /// The policy, known to the registry, with valid parameters.
    pub policy: PolicySpec,
    /// The capacity. A share is a fraction of all blocks that can reach the level: the guest's
    /// blocks for a guest's own level, those of all guests for the shared one.
    pub size: Size,
    /// The capacities of the second and later guests' levels, if guests have different ones;
    /// otherwise all have the first.
    pub others: Vec<Size>,
}

/// What is wrong with a level.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum LevelSpecError {
    /// The colon is missing, or the text before or after it.
    #[error("level {text:?} is not POLICY:SIZE, such as lru:2GiB or exclusive:1000blocks")]
    Syntax {
        /// What was written.
        text: String,
    },
    /// The policy is unknown or takes other parameters.
    #[error("level {text:?}: {source}")]
    Policy {
        /// What was written.
        text: String,
        /// What is wrong with the policy.
        source: SpecError,
    },
    /// The size is malformed or does not fit.
    #[error("level {text:?}: {source}")]
    Size {
        /// What was written.
        text: String,
        /// What is wrong with the size.
        source: SizeError,
    },
    /// No blocks, or more than the policy can order.
    #[error(
        "level {text:?} has {blocks} blocks; with this policy a level has between 1 and {most}"
    )]
    Blocks {
        /// What was written.
        text: String,
        /// The blocks it would have.
        blocks: u64,
        /// The most that it can have.
        most: u32,
    },
    /// More blocks than are ever requested, and too many for tables of that length.
    #[error(
        "level {text:?} has {blocks} blocks; a level larger than all that is asked for may have {} at most, and 100% \
         hits as often",
        Self::IDLE_BLOCKS_MAX
    )]
    Idle {
        /// What was written.
        text: String,
        /// The blocks it would have.
        blocks: u64,
    },
}

impl LevelSpecError {
    /// The largest number of blocks of a level that exceeds the requested blocks: its tables need
    /// memory nevertheless.
    pub const IDLE_BLOCKS_MAX: u64 = 1 << 28;
}

/// Slots of a trial level, for which a policy is built to check its string.
const TRIAL_SLOTS: u32 = 16;

impl LevelSpec {
    /// The capacity in blocks of `block_bytes`, if `footprint_blocks` blocks can reach the level.
    pub fn slots(&self, block_bytes: u64, footprint_blocks: u64) -> Result<u32, LevelSpecError> {
        self.slots_of(self.size, block_bytes, footprint_blocks)
    }

    fn slots_of(
        &self,
        size: Size,
        block_bytes: u64,
        footprint_blocks: u64,
    ) -> Result<u32, LevelSpecError> {
        let size = size.blocks_of(block_bytes, footprint_blocks);
        let blocks = size.map_err(|source| LevelSpecError::Size {
            text: self.to_string(),
            source,
        })?;
        if blocks > footprint_blocks.max(LevelSpecError::IDLE_BLOCKS_MAX) {
            return Err(LevelSpecError::Idle {
                text: self.to_string(),
                blocks,
            });
        }
        let most = self.policy.slots_max();
        match u32::try_from(blocks) {
            Ok(slots @ 1..) if slots <= most => Ok(slots),
            _ => Err(LevelSpecError::Blocks {
                text: self.to_string(),
                blocks,
                most,
            }),
        }
    }

    /// Whether the policy, or an inner one, needs to know future requests.
    #[must_use]
    pub fn needs_future(&self) -> bool {
        self.policy.needs_future()
    }

    /// Whether it can be simulated, with blocks of `block_bytes`, while the set of blocks is unknown. A level that may be larger than all
    /// of them cannot, because only the set tells whether it is.
    #[must_use]
    pub fn is_open_ended(&self, block_bytes: u64) -> bool {
        let policy = &self.policy;
        !matches!(self.size, Size::Percent(_))
            && self.slots(block_bytes, 0).is_ok()
            && self.others.is_empty()
            && !policy.needs_future()
            && !policy.needs_volume_size()
            && !policy.reads_ahead()
    }

    /// The level with its capacity in blocks; see [`slots`](Self::slots).
    pub fn shape(
        &self,
        block_bytes: u64,
        footprint_blocks: u64,
    ) -> Result<LevelShape, LevelSpecError> {
        let slots = self.slots(block_bytes, footprint_blocks)?;
        let others = self.others.iter();
        let others = others.map(|&size| self.slots_of(size, block_bytes, footprint_blocks));
        Ok(LevelShape {
            policy: self.policy.clone(),
            slots,
            others: others.collect::<Result<_, _>>()?,
        })
    }
}

/// The links between levels, top down. By default, the link above a level that wants demotions
/// demotes, and every other link sends no message.
#[must_use]
pub fn links(levels: &[LevelSpec], asked: Option<Link>) -> Vec<Link> {
    let below_top = levels.iter().skip(1);
    let usual = |level: &LevelSpec| match level.policy.wants_demotions() {
        true => Link::Demote,
        false => Link::None,
    };
    below_top
        .map(|level| asked.unwrap_or_else(|| usual(level)))
        .collect()
}

impl fmt::Display for LevelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.policy, self.size)?;
        self.others.iter().try_for_each(|size| write!(f, "/{size}"))
    }
}

impl FromStr for LevelSpec {
    type Err = LevelSpecError;

    fn from_str(text: &str) -> Result<Self, LevelSpecError> {
        let shown = || text.chars().take(200).collect::<String>();
        let (policy, size) = text
            .rsplit_once(':')
            .filter(|(policy, size)| !policy.trim().is_empty() && !size.trim().is_empty())
            .ok_or_else(|| LevelSpecError::Syntax { text: shown() })?;
        let of_policy = |source| LevelSpecError::Policy {
            text: shown(),
            source,
        };
        let policy: PolicySpec = policy.parse().map_err(of_policy)?;
        build(
            &policy,
            &Shape {
                slots: TRIAL_SLOTS,
                seed: 0,
            },
        )
        .map_err(of_policy)?;
        let parsed = |size: &str| {
            size.parse().map_err(|source| LevelSpecError::Size {
                text: shown(),
                source,
            })
        };
        let (size, others) = match size.split_once('/') {
            None => (parsed(size)?, Vec::new()),
            Some((first, others)) => {
                let others = others.split('/').map(parsed).collect::<Result<_, _>>()?;
                (parsed(first)?, others)
            }
        };
        Ok(Self {
            policy,
            size,
            others,
        })
    }
}

impl TryFrom<String> for LevelSpec {
    type Error = LevelSpecError;

    fn try_from(text: String) -> Result<Self, LevelSpecError> {
        text.parse()
    }
}

impl From<LevelSpec> for String {
    fn from(spec: LevelSpec) -> Self {
        spec.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn level(text: &str) -> LevelSpec {
        text.parse().expect("a level")
    }

    #[test]
    fn levels_read_back_as_written() {
        for text in [
            "lru:2GiB",
            "exclusive(fifo):1000blocks",
            "exclusive:4GiB",
            "random:25%",
        ] {
            assert_eq!(level(text).to_string(), text);
        }
    }

    #[test]
    fn sizes_become_slots() {
        assert_eq!(level("lru:2GiB").slots(4096, 1), Ok(524_288));
        assert_eq!(level("lru:7blocks").slots(4096, 1), Ok(7));
        assert_eq!(level("lru:25%").slots(4096, 1001), Ok(250));
        assert_eq!(
            level("lru:0.1%").slots(4096, 3),
            Ok(1),
            "at least one block"
        );
    }

    #[test]
    fn a_level_has_as_many_blocks_as_its_policy_can_order() {
        let all = u64::from(u32::MAX);
        for (policy, most) in [
            ("lru", all - 1),
            ("fifo", all - 1),
            ("exclusive", all - 1),
            ("arc", (1 << 31) - 2),
            ("exclusive(2q)", (1 << 31) - 2),
            ("slru", (1 << 30) - 2),
            ("auto", (1 << 30) - 2),
        ] {
            let slots = |blocks| level(&format!("{policy}:{blocks}blocks")).slots(4096, all);
            assert_eq!(slots(most).map(u64::from), Ok(most));
            let error = slots(most + 1).expect_err("too many").to_string();
            let named = [policy, &format!("between 1 and {most}")];
            assert!(named.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    #[test]
    fn errors_show_what_was_written() {
        for text in [
            "",
            "lru",
            ":1GiB",
            "lru:",
            "2GiB:lru",
            "lru(:1GiB",
            "lur:1GiB",
            "lru:1GB",
        ] {
            let error = text.parse::<LevelSpec>().expect_err("no level").to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
        for text in ["lru:0", "lru:5000000000blocks", "lru:1000", "opt:8TiB"] {
            let error = level(text).slots(4096, 9).expect_err("no size").to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn an_exclusive_level_is_demoted_to_unless_asked_otherwise() {
        let levels = ["exclusive:1GiB", "lru:1GiB", "exclusive(fifo):1GiB"].map(level);
        assert_eq!(links(&levels, None), [Link::None, Link::Demote]);
        assert_eq!(links(&levels, Some(Link::Notice)), [Link::Notice; 2]);
        assert_eq!(links(&levels[..1], None), []);
    }

    proptest! {
        #[test]
        fn no_string_panics(text in ".{0,60}") {
            let _ = text.parse::<LevelSpec>();
        }
    }
}
