//! What a level is asked, and how a block came to it.

use crate::BlockId;
use serde::{Deserialize, Serialize};

/// Why a block is put before a level. These are the messages that cross a level boundary, in the
/// simulator and on the wire alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessKind {
    /// The level above, or the application, reads the block.
    Read,
    /// The level above, or the application, writes the block.
    Write,
    /// The level above evicted the block and hands it down with its data.
    Demotion,
    /// The level above evicted the block and only says so; the data must be fetched.
    Notice,
    /// The block is loaded ahead of any request (warm start, pinning).
    Preload,
}

impl AccessKind {
    /// Whether somebody waits for this block: a read or a write. Only these count as requests.
    #[inline]
    pub fn is_demand(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// What kind of block this is, as a set of marks that a policy may weigh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Class(u8);

impl Class {
    /// No mark: clean, local, not protected.
    pub const NORMAL: Self = Self(0);
    /// Chosen by the operator to stay (directory priority).
    pub const PROTECTED: Self = Self(1);
    /// Fetched from a store that is farther away than the local ones.
    pub const REMOTE: Self = Self(2);
    /// Holds data that the store does not have yet.
    pub const DIRTY: Self = Self(4);

    /// This class with the marks of `other` added.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This class without the marks of `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether every mark of `other` is set.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The marks as a small number, `0..8`, for arrays by class.
    #[must_use]
    pub fn number(self) -> usize {
        usize::from(self.0)
    }
}

/// One block put before a level.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Which block.
    pub block: BlockId,
    /// Why it comes.
    pub kind: AccessKind,
    /// What kind of block it is.
    pub class: Class,
    /// Logical time: how many accesses this level has seen before.
    pub tick: u64,
    /// Logical time of the next access to the same block, where the whole trace is known (the
    /// simulator, for clairvoyant policies); otherwise [`Access::UNKNOWN`].
    pub next_use: u64,
}

impl Access {
    /// `next_use` of a block that is never asked for again, or whose future is not known.
    pub const UNKNOWN: u64 = u64::MAX;

    /// A demand read of a normal block. The level fills in the tick.
    #[must_use]
    pub fn read(block: BlockId) -> Self {
        Self::of(block, AccessKind::Read)
    }

    /// An access of the given kind to a normal block. The level fills in the tick.
    #[must_use]
    pub fn of(block: BlockId, kind: AccessKind) -> Self {
        Self {
            block,
            kind,
            class: Class::NORMAL,
            tick: 0,
            next_use: Self::UNKNOWN,
        }
    }

    /// This access with the given class.
    #[must_use]
    pub fn classed(mut self, class: Class) -> Self {
        self.class = class;
        self
    }
}
