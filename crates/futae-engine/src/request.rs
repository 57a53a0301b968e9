//! Requests of front ends to the cache.

use crate::engine::Macs;
use crate::{IoBuf, IoError};
use futae_policy::VolumeId;
use std::fmt;

/// The identity of a client of the cache (a connection, a mount), assigned by the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(pub u64);

impl ClientId {
    /// For requests on behalf of no client: it does not join, and demotes nothing.
    pub const NOBODY: Self = Self(0);
}

/// The operation. Offsets and lengths are in bytes and need not be aligned.
#[derive(Debug)]
pub enum Operation {
    /// Read a range.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Read a range that continues another read: the rest of a request that came in parts. The
    /// block in which it begins was counted with the earlier part, and is not counted again.
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
    /// Write the data at the current end of a growing volume.
    Append {
        /// The data.
        data: IoBuf,
        /// Answer only when the data is on stable storage.
        fua: bool,
    },
    /// Write everything that was answered before to stable storage.
    Flush,
    /// Write everything that was answered before to the store, which need not make it stable.
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
    /// The client has evicted the range and suggests keeping it here. A hint, always answered at
    /// once.
    Notice {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The upper level has evicted the blocks and sends their data. A hint, always answered at
    /// once.
    ///
    /// If the cache verifies demotions ([`crate::Engine::verify_demotions`]), the data is accepted
    /// only if it is what this cache last served or last received. Otherwise a client's data is
    /// accepted if the order of the client's requests ([`Request::sequence`]) proves it current,
    /// and an agent's data never is.
    Demote(Demotion),
    /// A change of the store that bypasses the cache; submitted only by [`crate::Engine::change`].
    Change(Change),
}

/// Evicted blocks with their data; see [`Operation::Demote`].
#[derive(Debug)]
pub struct Demotion {
    pub(crate) offset: u64,
    pub(crate) data: IoBuf,
    /// Computed before the cache's lock is taken, if the cache verifies demotions.
    pub(crate) macs: Option<Macs>,
    /// Whether an agent sent it.
    pub(crate) is_by_agent: bool,
}

impl Demotion {
    /// A demotion by the client itself. The data begins at byte `offset` of the volume and consists
    /// of whole blocks of the cache, except for the last block of the volume. Partial blocks are
    /// refused.
    #[must_use]
    pub fn new(offset: u64, data: IoBuf) -> Self {
        Self {
            offset,
            data,
            macs: None,
            is_by_agent: false,
        }
    }

    /// A demotion by an agent that observes the client: its order relative to writes is unknown. If
    /// its data is refused, it may still count as a notice ([`crate::OnRefusal`]).
    #[must_use]
    pub fn by_agent(offset: u64, data: IoBuf) -> Self {
        Self {
            is_by_agent: true,
            ..Self::new(offset, data)
        }
    }
}

/// A change of a store that bypasses the cache; see [`crate::Engine::change`].
pub struct Change {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// The new size of the store, if it changes: the range is then all bytes behind the smaller of
    /// both sizes.
    pub(crate) size_bytes: Option<u64>,
    /// Called with the key of the change once nothing else is under way in the range; or with the
    /// error if dirty data in the range could not be written back first.
    pub(crate) granted: Granted,
}

/// Called when a change is granted.
pub(crate) type Granted = Box<dyn FnOnce(Result<usize, IoError>) + Send>;

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Change({} bytes at {})", self.length, self.offset)
    }
}

/// Called once with the result: the data of a read, an empty buffer otherwise. It may be called
/// before `submit` returns, and on any thread; it must not block and must not call the cache.
pub type Done = Box<dyn FnOnce(Result<IoBuf, IoError>) + Send>;

/// Bytes of memory that count for a request under way beside its buffers. Of a server's requests, those that write zeroes take
/// most: about 1,250 bytes, as measured.
pub const STATE_BYTES: u64 = 1536;

/// One request to the cache.
pub struct Request {
    /// Which volume.
    pub volume: VolumeId,
    /// The client.
    pub client: ClientId,
    /// The client's own sequence number for its decision on this request. It is compared only
    /// between requests of one client, and needed only from clients that demote.
    pub sequence: u64,
    /// The operation.
    pub operation: Operation,
    /// Receives the result.
    pub done: Done,
}
