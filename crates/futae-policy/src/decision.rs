//! One line of a decision log: an access to a level, and the level's decision.
//!
//! The simulator and the live engine write the same lines, so that a recorded live run can be
//! replayed and compared line by line.

use crate::{Access, AccessKind, BlockId, Outcome, PolicySpec, VolumeId};
use std::fmt;
use std::str::FromStr;

/// Prefix of the line that marks a finished background load: `# loaded 0 17`, with volume and block
/// index. A level decides on a block when its loading begins. Lines that begin with `#` record no
/// decision; replays skip those that they do not know.
pub const LOADED: &str = "# loaded";

/// Prefix of the line that records a change of the level's size, in slots: `# slots 4096`. Logs
/// of levels that keep their size have none.
const SLOTS: &str = "# slots";

/// Prefix of the line that records that a block was dropped because its content is no longer
/// valid: `# dropped 0 17`.
const DROPPED: &str = "# dropped";

/// The line of a decision log for a level that from now on has this many slots.
#[must_use]
pub fn slots_line(slots: u32) -> String {
    format!("{SLOTS} {slots}")
}

/// The slots, at least one, of a line written by [`slots_line`].
#[must_use]
pub fn slots_of_line(line: &str) -> Option<u32> {
    let slots = line.strip_prefix(SLOTS)?.strip_prefix(' ')?.parse();
    slots.ok().filter(|&slots| slots > 0)
}

/// The line of a decision log for a block that was dropped.
#[must_use]
pub fn dropped_line(block: BlockId) -> String {
    format!("{DROPPED} {} {}", block.volume().0, block.index())
}

/// The block of a line written by [`dropped_line`].
#[must_use]
pub fn dropped_of_line(line: &str) -> Option<BlockId> {
    let mut fields = line.strip_prefix(DROPPED)?.split_ascii_whitespace();
    let block = parse_block(&mut fields)?;
    fields.next().is_none().then_some(block)
}

/// Prefix of the line that records a change of the level's policy: `policy
/// lfu-history(window=100)`. Replays change the policy at the same line
/// ([`Level::change_policy`](crate::Level::change_policy)).
const POLICY: &str = "policy";

/// The line of a decision log for a change to `policy`.
#[must_use]
pub fn policy_line(policy: &PolicySpec) -> String {
    format!("{POLICY} {policy}")
}

/// The policy string of a line written by [`policy_line`].
#[must_use]
pub fn policy_of_line(line: &str) -> Option<&str> {
    line.strip_prefix(POLICY)?.strip_prefix(' ')
}

/// A level's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Resident.
    Hit,
    /// Placed; the named block made room for it.
    Admitted {
        /// The block that was evicted, if any.
        evicted: Option<BlockId>,
    },
    /// Not placed.
    Bypassed,
}

/// An access and the level's verdict. Written as five or six fields, `read 0 17 admit 0 4`: kind,
/// volume, block index, verdict, then volume and index of the evicted block, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// How the block came.
    pub kind: AccessKind,
    /// Which block.
    pub block: BlockId,
    /// The verdict.
    pub verdict: Verdict,
}

impl Decision {
    /// The log line for an access and its outcome.
    #[must_use]
    pub fn new(access: &Access, outcome: &Outcome) -> Self {
        let verdict = match outcome {
            Outcome::Hit(_) => Verdict::Hit,
            Outcome::Admitted { evicted, .. } => Verdict::Admitted {
                evicted: evicted.map(|victim| victim.block),
            },
            Outcome::Bypassed => Verdict::Bypassed,
        };
        Self {
            kind: access.kind,
            block: access.block,
            verdict,
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            AccessKind::Read => "read",
            AccessKind::Write => "write",
            AccessKind::Demotion => "demotion",
            AccessKind::Notice => "notice",
            AccessKind::Preload => "preload",
        };
        write!(
            f,
            "{kind} {} {} ",
            self.block.volume().0,
            self.block.index()
        )?;
        match self.verdict {
            Verdict::Hit => f.write_str("hit"),
            Verdict::Bypassed => f.write_str("bypass"),
            Verdict::Admitted { evicted: None } => f.write_str("admit"),
            Verdict::Admitted {
                evicted: Some(victim),
            } => {
                write!(f, "admit {} {}", victim.volume().0, victim.index())
            }
        }
    }
}

/// A line that is not a valid decision.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a decision log line: {0:?} (expected e.g. \"read 0 17 admit 0 4\")")]
pub struct DecisionError(String);

impl FromStr for Decision {
    type Err = DecisionError;

    fn from_str(line: &str) -> Result<Self, DecisionError> {
        parse(line).ok_or_else(|| DecisionError(line.chars().take(80).collect()))
    }
}

fn parse(line: &str) -> Option<Decision> {
    let mut fields = line.split_ascii_whitespace();
    let kind = match fields.next()? {
        "read" => AccessKind::Read,
        "write" => AccessKind::Write,
        "demotion" => AccessKind::Demotion,
        "notice" => AccessKind::Notice,
        "preload" => AccessKind::Preload,
        _ => return None,
    };
    let block = parse_block(&mut fields)?;
    let verdict = match fields.next()? {
        "hit" => Verdict::Hit,
        "bypass" => Verdict::Bypassed,
        "admit" if fields.clone().next().is_none() => Verdict::Admitted { evicted: None },
        "admit" => Verdict::Admitted {
            evicted: Some(parse_block(&mut fields)?),
        },
        _ => return None,
    };
    fields.next().is_none().then_some(Decision {
        kind,
        block,
        verdict,
    })
}

fn parse_block<'a>(fields: &mut impl Iterator<Item = &'a str>) -> Option<BlockId> {
    let volume = VolumeId(fields.next()?.parse().ok()?);
    let index: u64 = fields.next()?.parse().ok()?;
    (index < BlockId::INDEX_LIMIT).then(|| BlockId::new(volume, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_read_back_as_written() {
        let block = BlockId::new(VolumeId(3), 17);
        assert_eq!(slots_of_line(&slots_line(4096)), Some(4096));
        assert_eq!(dropped_of_line(&dropped_line(block)), Some(block));
        for line in [
            "# slots 0",
            "# slots",
            "# slots -1",
            "# slots 1 2",
            "slots 1",
        ] {
            assert_eq!(slots_of_line(line), None, "{line}");
        }
        for line in ["# dropped 1", "# dropped 1 2 3", "# dropped", "dropped 1 2"] {
            assert_eq!(dropped_of_line(line), None, "{line}");
        }
    }

    #[test]
    fn lines_read_back_as_written() {
        for line in [
            "read 0 17 hit",
            "write 3 4 bypass",
            "demotion 0 1 admit",
            "notice 1 2 admit 1 9",
        ] {
            assert_eq!(line.parse::<Decision>().expect("valid").to_string(), line);
        }
        for line in [
            "",
            "read",
            "read 0 17",
            "peek 0 1 hit",
            "read 0 1 hit 3",
            "read 0 281474976710656 hit",
        ] {
            assert!(line.parse::<Decision>().is_err(), "{line:?}");
        }
    }
}
