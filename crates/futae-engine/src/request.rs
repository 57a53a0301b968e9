//! What a front end asks of the cache.

use crate::engine::Macs;
use crate::{IoBuf, IoError};
use futae_policy::VolumeId;
use std::fmt;

/// One client of a cache (a connection, a mount), by a number that the cache gave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(pub u64);

impl ClientId {
    /// Asks on behalf of no client: it need not join, and hands nothing down.
    pub const NOBODY: Self = Self(0);
}

/// What is asked. Offsets and lengths are in bytes and need not be aligned.
#[derive(Debug)]
pub enum Operation {
    /// Read a range.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Read a range that goes on where another read began: the rest of a request that came in
    /// parts. The block that it begins in was counted with the part before, and is not counted
    /// again.
    ReadOn {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Write the data at a range.
    Write {
        /// First byte.
        offset: u64,
        /// The data.
        data: IoBuf,
        /// Answer only when the data is on stable storage.
        fua: bool,
    },
    /// Write the data at the end of a growing volume, wherever that then is.
    Append {
        /// The data.
        data: IoBuf,
        /// Answer only when the data is on stable storage.
        fua: bool,
    },
    /// Bring everything that was answered before onto stable storage.
    Flush,
    /// Bring everything that was answered before to the store, which need not make it stable.
    Settle,
    /// The range is not needed any more.
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The range reads as zeroes afterwards.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Answer only when it is on stable storage.
        fua: bool,
        /// Keep the space allocated.
        no_hole: bool,
    },
    /// The client has evicted the range and would like it kept here. A hint, always answered
    /// at once.
    Notice {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The client has evicted the range and hands its data down. A hint, always answered at once.
    Demote {
        /// First byte.
        offset: u64,
        /// The data: whole blocks, but for the last block of the volume.
        data: IoBuf,
    },
    /// The level above has evicted the range and hands its data down: an agent in a guest, say, which nobody
    /// need believe. The data enters only if it is what this cache last served or was last given, where it
    /// verifies ([`crate::Engine::verify_hand_downs`]); else it is refused. A hint, always answered at once.
    HandDown(HandedDown),
    /// The store is changed past the cache; only [`crate::Engine::change`] asks for it.
    Change(Change),
}

/// Data that was handed down; see [`Operation::HandDown`].
#[derive(Debug)]
pub struct HandedDown {
    pub(crate) offset: u64,
    pub(crate) data: IoBuf,
    /// Made before the cache's lock is taken, where it verifies.
    pub(crate) macs: Option<Macs>,
    /// Whether it came as a demotion.
    pub(crate) is_demotion: bool,
}

impl HandedDown {
    /// Data that begins at byte `offset` of the volume: whole blocks of the cache, but for the last block of
    /// the volume. Parts of blocks are refused.
    #[must_use]
    pub fn new(offset: u64, data: IoBuf) -> Self {
        Self {
            offset,
            data,
            macs: None,
            is_demotion: false,
        }
    }
}

/// A change of a store that is made past the cache; see [`crate::Engine::change`].
pub struct Change {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// The size that the store will have, if it changes: the range is then all that is behind the
    /// lower of both sizes.
    pub(crate) size_bytes: Option<u64>,
    /// Called, with the key of the change, once nothing else is under way in the range; or with
    /// why what was written there could not be brought to the store first.
    pub(crate) granted: Granted,
}

/// Who waits for a change to be granted.
pub(crate) type Granted = Box<dyn FnOnce(Result<usize, IoError>) + Send>;

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Change({} bytes at {})", self.length, self.offset)
    }
}

/// Called once with the result: the data of a read, an empty buffer otherwise. It may be called
/// before `submit` returns, and on any thread; it must not block and must not call the cache.
pub type Done = Box<dyn FnOnce(Result<IoBuf, IoError>) + Send>;

/// One request to the cache.
pub struct Request {
    /// Which volume.
    pub volume: VolumeId,
    /// Who asks.
    pub client: ClientId,
    /// The client's own number for the time at which it decided on this request. Only compared
    /// between requests of one client; only needed of clients that demote.
    pub sequence: u64,
    /// What is asked.
    pub operation: Operation,
    /// Who gets the result.
    pub done: Done,
}
