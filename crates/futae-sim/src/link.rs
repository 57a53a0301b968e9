//! The messages that cross the boundary between two levels, and their order.
//!
//! All of it is defined by [`put`]; the simulator's machines and the live caches follow it:
//!
//! 1. the level decides: hit, or policy miss, victim and insertion;
//! 2. a read that missed goes down as a read; a write always goes down as a write;
//! 3. then the block evicted in 1, if any, goes down as the link says;
//! 4. then each block that the level's policy requests itself, until it requests no more, is read
//!    from the store and offered to the level as a preload, as in 1 and 3. If the policy models read-ahead, such a block
//!    goes down as a read instead, as in 2.
//!
//! If the level's policy directs the level below, each message of 2 and 3 says what is to become of its block
//! there. An evicted block that is not to be kept there is not sent. Live caches send no directives.

use futae_policy::{
    Access, AccessKind, BlockId, Departure, Directive, Index, Level, Outcome, Policy, Victim,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// The link between two adjacent levels: the message that crosses the boundary when the upper one
/// evicts a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// No message: the block is dropped. JSON results use the link's older name `inclusive`, which
    /// programs read.
    #[default]
    #[serde(rename = "inclusive", alias = "none")]
    None,
    /// The block with its data ([`AccessKind::Demotion`]).
    Demote,
    /// The block's number; the lower level fetches the data ([`AccessKind::Notice`]).
    Notice,
}

impl Link {
    /// Every link.
    pub const ALL: [Self; 3] = [Self::None, Self::Demote, Self::Notice];

    /// The name on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Demote => "demote",
            Self::Notice => "notice",
        }
    }

    /// The message for an evicted block, if the link has one.
    #[inline]
    #[must_use]
    pub fn message(self) -> Option<AccessKind> {
        match self {
            Self::None => None,
            Self::Demote => Some(AccessKind::Demotion),
            Self::Notice => Some(AccessKind::Notice),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An unknown name of a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown link {0:?}: a link is none, demote or notice")]
pub struct LinkError(String);

impl FromStr for Link {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        // The older name of `none`.
        if text.trim() == "inclusive" {
            return Ok(Self::None);
        }
        let found = Self::ALL
            .into_iter()
            .find(|link| link.name() == text.trim());
        found.ok_or_else(|| LinkError(text.chars().take(60).collect()))
    }
}

/// A level from the point of view of [`put`].
pub trait Place {
    /// Offers one block to the level.
    fn access(&mut self, access: &Access) -> Outcome;
    /// The next block that the policy wants to place without a request.
    fn review(&mut self) -> Option<BlockId>;
    /// Whether these blocks are read ahead, through the part below.
    fn reads_ahead(&self) -> bool {
        false
    }
    /// Counts an evicted block as sent down.
    fn note_sent_down(&mut self, kind: AccessKind);
    /// Drops a block that was removed or is no longer valid.
    fn invalidate(&mut self, block: BlockId);
    /// What the part below is to do with a block, if the level directs it.
    fn directive(&self, block: BlockId) -> Option<Directive>;
    /// Receives a directive about the block of the next access.
    fn direct(&mut self, directive: &Directive);
}

/// A level, and the range of existing blocks.
pub struct Reach<P, I> {
    /// The level.
    pub level: Level<P, I>,
    /// All blocks that can be offered to it, on volume 0.
    pub blocks: Range<u64>,
    /// Whether the blocks that its policy requests itself are read through the part below.
    pub reads_ahead: bool,
}

impl<P, I> Reach<P, I> {
    /// A level that does not read ahead.
    pub(crate) fn new(level: Level<P, I>, blocks: Range<u64>) -> Self {
        Self {
            level,
            blocks,
            reads_ahead: false,
        }
    }
}

impl<P: Policy, I: Index> Place for Reach<P, I> {
    #[inline(always)]
    fn access(&mut self, access: &Access) -> Outcome {
        self.level.access(access)
    }
    /// Skips blocks that do not exist; a policy's parameters may name such blocks.
    #[inline]
    fn review(&mut self) -> Option<BlockId> {
        loop {
            let block = self.level.review()?;
            if block.index() >= self.blocks.end {
                return None;
            }
            if block.index() >= self.blocks.start {
                return Some(block);
            }
        }
    }
    fn reads_ahead(&self) -> bool {
        self.reads_ahead
    }
    #[inline]
    fn note_sent_down(&mut self, kind: AccessKind) {
        self.level.note_sent_down(kind);
    }
    fn invalidate(&mut self, block: BlockId) {
        self.level.remove(block, Departure::Invalidated);
    }
    #[inline(always)]
    fn directive(&self, block: BlockId) -> Option<Directive> {
        self.level.directive(block)
    }
    #[inline]
    fn direct(&mut self, directive: &Directive) {
        self.level.direct(directive);
    }
}

/// The part below a boundary: levels, or the store.
///
/// Its methods are all messages that cross a boundary, in the simulator and on the wire: reads,
/// writes, demotions and notices; fetches caused by a notice or requested by a policy;
/// invalidations.
pub trait Below {
    /// Receives a read, write, demotion or notice. Returns, for a read or write, how many
    /// boundaries further down it was served; 0 is the first level below this boundary.
    fn access(&mut self, access: &Access) -> u32;
    /// Reads a block for a level, not for the application, bypassing the levels between.
    fn fetch(&mut self, block: BlockId);
    /// As [`fetch`](Self::fetch), for a level's policy that requests the block itself.
    fn preload(&mut self, block: BlockId);
    /// Reads a block ahead of the application, through the levels.
    fn read_ahead(&mut self, block: BlockId);
    /// Drops a block everywhere below.
    fn invalidate(&mut self, block: BlockId);
    /// Receives what is to become of the block of the next access. The store keeps all blocks.
    fn direct(&mut self, _directive: &Directive) {}
}

/// The bottom of every hierarchy, which has all blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Store {
    /// Reads that no level served.
    pub reads: u64,
    /// Writes, all of which end here.
    pub writes: u64,
    /// Reads to fill a slot for an eviction notice that was admitted.
    pub notice_reads: u64,
    /// Reads of blocks that a policy requested itself.
    pub preload_reads: u64,
}

impl Store {
    /// The difference from `earlier`, a copy of the same counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            notice_reads: self.notice_reads - earlier.notice_reads,
            preload_reads: self.preload_reads - earlier.preload_reads,
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, more: &Self) -> Self {
        Self {
            reads: self.reads + more.reads,
            writes: self.writes + more.writes,
            notice_reads: self.notice_reads + more.notice_reads,
            preload_reads: self.preload_reads + more.preload_reads,
        }
    }
}

impl Below for Store {
    #[inline]
    fn access(&mut self, access: &Access) -> u32 {
        match access.kind {
            AccessKind::Read => self.reads += 1,
            AccessKind::Write => self.writes += 1,
            // The store has the block already.
            AccessKind::Demotion | AccessKind::Notice | AccessKind::Preload => {}
        }
        0
    }
    #[inline]
    fn fetch(&mut self, _block: BlockId) {
        self.notice_reads += 1;
    }
    #[inline]
    fn preload(&mut self, _block: BlockId) {
        self.preload_reads += 1;
    }
    fn read_ahead(&mut self, block: BlockId) {
        self.preload(block);
    }
    fn invalidate(&mut self, _block: BlockId) {}
}

/// Offers one access to a level that is joined by `link` to the part `below`, and sends the
/// resulting messages down. Returns how far down a read or write was served: 0 by this level, 1 by
/// the next, and so on; the store counts as the level after the last.
///
/// If the level declines a demotion or notice, it goes no further: its data is in the store.
#[inline(always)]
pub fn put<L: Place, B: Below>(level: &mut L, link: Link, below: &mut B, access: &Access) -> u32 {
    let (hit, placed, evicted) = match level.access(access) {
        Outcome::Hit(_) => (true, false, None),
        Outcome::Admitted { evicted, .. } => (false, true, evicted),
        Outcome::Bypassed => (false, false, None),
    };
    let depth = match access.kind {
        AccessKind::Read if hit => 0,
        AccessKind::Read => {
            direct(level, below, access.block);
            1 + below.access(access)
        }
        AccessKind::Write => {
            direct(level, below, access.block);
            let served = 1 + below.access(access);
            if hit { 0 } else { served }
        }
        AccessKind::Notice if placed => {
            below.fetch(access.block);
            0
        }
        AccessKind::Demotion | AccessKind::Notice | AccessKind::Preload => 0,
    };
    send_down(level, link, below, evicted);
    load_reviewed(level, link, below);
    depth
}

/// Tells the part below what is to become of `block` there, if the level directs it. Returns whether
/// it is to be kept there.
#[inline(always)]
pub(crate) fn direct<L: Place, B: Below>(level: &L, below: &mut B, block: BlockId) -> bool {
    let Some(directive) = level.directive(block) else {
        return true;
    };
    below.direct(&directive);
    directive.is_kept
}

/// The last step of [`put`], and all messages that follow from a read hit.
#[inline]
pub fn load_reviewed<L: Place, B: Below>(level: &mut L, link: Link, below: &mut B) {
    while let Some(block) = level.review() {
        load(level, link, below, block);
    }
}

#[inline(never)]
fn load<L: Place, B: Below>(level: &mut L, link: Link, below: &mut B, block: BlockId) {
    if level.reads_ahead() {
        below.read_ahead(block);
    } else {
        below.preload(block);
    }
    let outcome = level.access(&Access::of(block, AccessKind::Preload));
    if let Outcome::Admitted { evicted, .. } = outcome {
        send_down(level, link, below, evicted);
    }
}

#[inline]
fn send_down<L: Place, B: Below>(
    level: &mut L,
    link: Link,
    below: &mut B,
    evicted: Option<Victim>,
) {
    if let (Some(victim), Some(kind)) = (evicted, link.message())
        && direct(level, below, victim.block)
    {
        level.note_sent_down(kind);
        below.access(&Access::of(victim.block, kind).classed(victim.class));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_read_back_as_written() {
        for link in Link::ALL {
            assert_eq!(link.to_string().parse(), Ok(link));
        }
        assert_eq!("inclusive".parse(), Ok(Link::None), "the older name");
        let error = "exclusive".parse::<Link>().expect_err("no link");
        assert!(
            error.to_string().contains("none, demote or notice"),
            "{error}"
        );
    }
}
