//! Write-back: where written data stays, and the order of messages between caches that keep writes.
//!
//! Under write-through every write goes down to the store, as in [`put`](crate::link::put). Under
//! write-back [`put_back`] replaces it:
//!
//! 1. the level decides: hit, or policy miss, victim and insertion;
//! 2. a read that missed goes down as a read. A write that hit or was admitted ends here, and its
//!    block is *dirty*: it has data that nothing below has. A bypassed write goes down;
//! 3. then the block evicted in 1, if any: a dirty one first goes down as a write. In any case the
//!    block, now clean, then goes down as the link says;
//! 4. then the blocks that the level's policy requests itself, as in `put`. If a block is dirty at
//!    a lower level, its data comes from there, since the store does not have it.
//!
//! A lower level may thus accept a written-down block and have it dirty itself, and a block
//! requested from it is never older than what the upper level evicted.

use crate::link::{Below, Link, Place, Store, direct};
use futae_policy::{Access, AccessKind, BlockId, Class, Outcome, Victim};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// When written data goes to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// At once.
    #[default]
    WriteThrough,
    /// When the block is evicted.
    WriteBack,
}

impl WriteMode {
    /// Every mode.
    pub const ALL: [Self; 2] = [Self::WriteThrough, Self::WriteBack];

    /// The name on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteThrough => "write-through",
            Self::WriteBack => "write-back",
        }
    }
}

impl fmt::Display for WriteMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An unknown name of a write mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown write mode {0:?}: there are write-through and write-back")]
pub struct WriteModeError(String);

impl FromStr for WriteMode {
    type Err = WriteModeError;

    fn from_str(text: &str) -> Result<Self, WriteModeError> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| WriteModeError(text.chars().take(60).collect()))
    }
}

/// What became of data written to one level, in blocks.
///
/// Every write that the level accepted is overwritten here, evicted, discarded, or still dirty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dirt {
    /// Writes that found their block dirty: the data before them never goes down.
    pub overwrites: u64,
    /// Dirty blocks that were evicted and written down.
    pub evictions: u64,
    /// Dirty blocks that were invalidated: their data is lost.
    pub discards: u64,
    /// Dirty blocks now.
    pub blocks: u64,
}

impl Dirt {
    /// The difference from `earlier`; the number of dirty blocks is the current one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            overwrites: self.overwrites - earlier.overwrites,
            evictions: self.evictions - earlier.evictions,
            discards: self.discards - earlier.discards,
            blocks: self.blocks,
        }
    }

    /// The sum of two levels.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            overwrites: self.overwrites + other.overwrites,
            evictions: self.evictions + other.evictions,
            discards: self.discards + other.discards,
            blocks: self.blocks + other.blocks,
        }
    }

    fn write(&mut self, was_dirty: bool) {
        if was_dirty {
            self.overwrites += 1;
        } else {
            self.blocks += 1;
        }
    }

    fn evict(&mut self) {
        self.evictions += 1;
        self.blocks -= 1;
    }

    /// Counts a dirty block that was invalidated.
    pub fn discard(&mut self) {
        self.discards += 1;
        self.blocks -= 1;
    }
}

/// Where the writes of a whole hierarchy went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Those of each level, top down; for a level that each guest has, the sum.
    pub levels: Vec<Dirt>,
    /// Writes of the application by the level that accepted them, top down, the store last.
    pub taken: Vec<u64>,
}

impl Written {
    /// The result for `writes` writes under write-through.
    #[must_use]
    pub fn through(levels: usize, writes: u64) -> Self {
        let mut taken = vec![0; levels];
        taken.push(writes);
        Self {
            levels: vec![Dirt::default(); levels],
            taken,
        }
    }

    /// The difference from `earlier`; the numbers of dirty blocks are the current ones.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let levels = self.levels.iter().zip(&earlier.levels);
        let taken = self.taken.iter().zip(&earlier.taken);
        Self {
            levels: levels.map(|(now, then)| now.since(then)).collect(),
            taken: taken.map(|(now, then)| now - then).collect(),
        }
    }
}

/// Where a request of the application, or of the upper level, found its block, and where it ended:
/// 0 is the level that got the request, 1 the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// Where the block was found. For a write that a level accepts without having its block this is
    /// the store: the lower levels are not asked.
    pub served: u32,
    /// Where the request ended. Only a write can end elsewhere than where it was served.
    pub ended: u32,
}

impl Landed {
    const HERE: Self = Self {
        served: 0,
        ended: 0,
    };

    /// The same, as seen one boundary further up.
    fn below(self) -> Self {
        Self {
            served: self.served + 1,
            ended: self.ended + 1,
        }
    }
}

/// A level from the point of view of [`put_back`].
pub trait DirtyPlace: Place {
    /// Whether the block is resident and dirty.
    fn is_dirty(&self, block: BlockId) -> bool;
    /// The level's counts.
    fn dirt(&mut self) -> &mut Dirt;
}

/// The part below a boundary under write-back.
pub trait BelowBack: Below {
    /// As [`Below::access`], for caches that keep writes.
    fn put_back(&mut self, access: &Access) -> Landed;
    /// How many boundaries further down the store is; 0 where it is next.
    fn store_depth(&self) -> u32;
}

impl BelowBack for Store {
    fn put_back(&mut self, access: &Access) -> Landed {
        self.access(access);
        Landed::HERE
    }
    fn store_depth(&self) -> u32 {
        0
    }
}

/// Offers one access to a level that keeps writes, and sends the resulting messages down.
///
/// Decides on hits and victims as [`put`](crate::link::put) does: with one level, and a policy that
/// does not distinguish dirty blocks, both have the same hits.
pub fn put_back<L: DirtyPlace, B: BelowBack>(
    level: &mut L,
    link: Link,
    below: &mut B,
    access: &Access,
) -> Landed {
    let is_write = access.kind == AccessKind::Write;
    let was_dirty = is_write && level.is_dirty(access.block);
    let marked = match is_write {
        true => access.classed(access.class.with(Class::DIRTY)),
        false => *access,
    };
    let (hit, placed, evicted) = match level.access(&marked) {
        Outcome::Hit(_) => (true, false, None),
        Outcome::Admitted { evicted, .. } => (false, true, evicted),
        Outcome::Bypassed => (false, false, None),
    };
    if is_write && (hit || placed) {
        level.dirt().write(was_dirty);
    }
    let landed = match access.kind {
        AccessKind::Read | AccessKind::Write if hit => Landed::HERE,
        AccessKind::Write if placed => Landed {
            served: below.store_depth() + 1,
            ended: 0,
        },
        AccessKind::Read | AccessKind::Write => {
            direct(level, below, access.block);
            below.put_back(access).below()
        }
        AccessKind::Notice if placed => {
            below.fetch(access.block);
            Landed::HERE
        }
        AccessKind::Demotion | AccessKind::Notice | AccessKind::Preload => Landed::HERE,
    };
    send_down(level, link, below, evicted);
    while let Some(block) = level.review() {
        if level.reads_ahead() && below.store_depth() > 0 {
            below.put_back(&Access::read(block));
        } else {
            below.preload(block);
        }
        let preload = Access::of(block, AccessKind::Preload);
        if let Outcome::Admitted { evicted, .. } = level.access(&preload) {
            send_down(level, link, below, evicted);
        }
    }
    landed
}

fn send_down<L: DirtyPlace, B: BelowBack>(
    level: &mut L,
    link: Link,
    below: &mut B,
    evicted: Option<Victim>,
) {
    let Some(victim) = evicted else { return };
    let class = victim.class.without(Class::DIRTY);
    if victim.class.has(Class::DIRTY) {
        level.dirt().evict();
        direct(level, below, victim.block);
        below.put_back(&Access::of(victim.block, AccessKind::Write).classed(class));
    }
    if let Some(kind) = link.message()
        && direct(level, below, victim.block)
    {
        level.note_sent_down(kind);
        below.put_back(&Access::of(victim.block, kind).classed(class));
    }
}

#[cfg(test)]
mod tests {
    use super::WriteMode;

    #[test]
    fn modes_read_back_as_written() {
        for mode in WriteMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "around".parse::<WriteMode>().expect_err("no mode");
        assert!(
            error.to_string().contains("write-through and write-back"),
            "{error}"
        );
    }
}
