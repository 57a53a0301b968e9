//! Accesses to a level: which block, how it came, and its class.

use crate::BlockId;
use serde::{Deserialize, Serialize};

/// Why a block is offered to a level. These are the messages that cross a level boundary, in the
/// simulator and on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessKind {
    /// The upper level, or the application, reads the block.
    Read,
    /// The upper level, or the application, writes the block.
    Write,
    /// The upper level evicted the block and sends its data.
    Demotion,
    /// The upper level evicted the block and sends no data; this level must fetch the block itself.
    Notice,
    /// The block is loaded ahead of any request (warm start, pinning).
    Preload,
}

impl AccessKind {
    /// Whether a requester waits for this block: a read or a write. Only these count as requests.
    #[inline]
    pub fn is_demand(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// The class of a block: a set of marks that a policy may weigh, and the number of its store's
/// class if the store has one of its own ([`Class::of_store`]).
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

    /// The largest number of classes of stores beside near and far.
    pub const STORES_MAX: u8 = 31;
    const MARKS: u8 = 7;

    /// No mark, of a store in the class with this number, from 1 to
    /// [`STORES_MAX`](Self::STORES_MAX); 0 means no such class.
    #[must_use]
    pub fn of_store(number: u8) -> Self {
        Self(number.min(Self::STORES_MAX) << 3)
    }

    /// The class of the block's store as an array index: 0 near, 1 far, and from 2 on the stores'
    /// own classes.
    #[inline]
    #[must_use]
    pub fn store(self) -> usize {
        match self.0 >> 3 {
            0 => usize::from(self.has(Self::REMOTE)),
            number => 1 + usize::from(number),
        }
    }

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
        usize::from(self.0 & Self::MARKS)
    }
}

/// One block offered to a level.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Which block.
    pub block: BlockId,
    /// How it comes.
    pub kind: AccessKind,
    /// Its class.
    pub class: Class,
    /// Logical time: the number of earlier accesses to this level.
    pub tick: u64,
    /// Logical time of the next access to the same block, if the whole trace is known (in the
    /// simulator, for clairvoyant policies); otherwise [`Access::UNKNOWN`].
    pub next_use: u64,
}

impl Access {
    /// `next_use` of a block that is never accessed again, or whose future is unknown.
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
