//! The interface to stores, which hold a volume's blocks when no cache does.

use crate::{IoBuf, IoError, IoErrorKind};

/// One operation on a store. Offsets and lengths are in bytes and within the store's size.
#[derive(Debug)]
pub enum StoreOperation {
    /// Fill the buffer from `offset` on.
    Read {
        /// First byte.
        offset: u64,
        /// A buffer of the length to read.
        buffer: IoBuf,
    },
    /// Write the buffer from `offset` on.
    Write {
        /// First byte.
        offset: u64,
        /// The data.
        buffer: IoBuf,
        /// Answer only when the data is on stable storage.
        fua: bool,
    },
    /// Write everything that was answered before to stable storage.
    Flush,
    /// The range is not needed any more; its content is undefined afterwards.
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
}

/// The result of a store operation: the buffer of a read or a write, otherwise an empty one.
pub type StoreResult = Result<IoBuf, IoError>;

/// Called once with the result, on a thread of the store. It must not block.
pub type StoreDone = Box<dyn FnOnce(StoreResult) + Send>;

/// Adjacent bytes that are all data or all hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// Whether it is a hole, which reads as zeroes.
    pub hole: bool,
}

/// A value that changes with every write to a store. Two equal stamps, with no write of futae's own
/// between them, show that no other program has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreStamp {
    /// Size in bytes.
    pub size_bytes: u64,
    /// When its data was last changed, in nanoseconds since 1970 by the clock of this machine.
    pub modified_ns: u64,
    /// When its data or attributes were last changed.
    pub changed_ns: u64,
}

/// The granularity of file time stamps, in nanoseconds.
const STAMP_STEP_NS: u64 = 20_000_000;

impl StoreStamp {
    /// Whether a write from now on gives the store another stamp. One that is too young may also be that of a later write.
    pub(crate) fn is_settled(&self, now_ns: u64) -> bool {
        let latest = self.modified_ns.max(self.changed_ns);
        latest.saturating_add(STAMP_STEP_NS) < now_ns
    }
}

/// A volume's store. Operations run concurrently and complete in any order; the caller keeps
/// overlapping writes apart.
pub trait Store: Send + Sync {
    /// Size in bytes; changes only in [`look_again`](Self::look_again).
    fn size_bytes(&self) -> u64;

    /// Checks the current length, after another program has extended the store, and adopts it as
    /// the size.
    ///
    /// # Errors
    ///
    /// The store has become shorter, or its size cannot change while it is open.
    fn look_again(&self) -> Result<u64, IoError> {
        let message =
            "its size is known when it is opened, and does not change until it is opened again";
        Err(IoError::new(IoErrorKind::Unsupported, message))
    }

    /// The identity of the volume: constant over restarts and reconnections, and different for
    /// different volumes. `None` if the store cannot tell.
    fn identity(&self) -> Option<[u8; 16]> {
        None
    }

    /// The current stamp, which reveals writes by other programs. `None` if the store cannot tell.
    fn stamp(&self) -> Option<StoreStamp> {
        None
    }

    /// Whether its guest comes by live migration from another server, which writes to it until then.
    fn is_incoming(&self) -> bool {
        false
    }

    /// Whether no other process may write to it, as far as locks tell. False while the server from which its guest comes has it.
    fn is_ours(&self) -> bool {
        true
    }

    /// A description for messages and reports: what the store is and how it is read.
    fn describe(&self) -> String;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;

    /// Whether the store can carry out [`StoreOperation::Trim`]; otherwise each fails.
    fn takes_trims(&self) -> bool {
        true
    }

    /// Starts an operation and returns soon. `sequence` numbers the operations of one cache in the
    /// order of the cache's decisions; a store that is itself a cache uses it to distinguish old
    /// data from new.
    fn submit(&self, sequence: u64, operation: StoreOperation, done: StoreDone);

    /// Runs `submit` once, which submits operations and demotes blocks, so that all of them are
    /// sent before the first answer arrives.
    fn together(&self, submit: &mut dyn FnMut()) {
        submit();
    }

    /// Whether the store accepts [`demote`](Self::demote).
    fn takes_demotions(&self) -> bool {
        false
    }

    /// The number of the store's current connection, counted from 1; 0 for a store without
    /// connections. Data read or written over an earlier connection may be stale.
    fn generation(&self) -> u64 {
        0
    }

    /// Demotes a block that the upper cache evicted, with its data, as of `sequence`. The data were
    /// read or written under the generation `generation`; the store drops data of an earlier one. A
    /// hint: it may be dropped, and has no answer.
    fn demote(&self, _sequence: u64, _generation: u64, _offset: u64, _data: IoBuf) {}

    /// Reports that the upper cache evicted a range, without its data. A hint.
    fn notice(&self, _sequence: u64, _offset: u64, _length: u64) {}

    /// Number of operations that took a slower path: through the page cache if `O_DIRECT` is
    /// refused or the range is unaligned, or by threads if io_uring is refused.
    fn buffered_fallbacks(&self) -> u64 {
        0
    }

    /// The extents that cover a range, in order; a single one of data if the store cannot tell.
    fn extents(&self, _offset: u64, length: u64) -> Result<Vec<Extent>, IoError> {
        Ok(vec![Extent {
            length,
            hole: false,
        }])
    }
}
