//! Where a volume's blocks live when no cache holds them.

use crate::{IoBuf, IoError, IoErrorKind};

/// One operation on a store. Offsets and lengths are in bytes and within the store's size.
#[derive(Debug)]
pub enum StoreOperation {
    /// Fill the buffer from `offset` on.
    Read {
        /// First byte.
        offset: u64,
        /// As many bytes as are wanted.
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
    /// Bring everything that was answered before onto stable storage.
    Flush,
    /// The range is not needed any more; it may read as anything afterwards.
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

/// What comes of a store operation: the buffer of a read or a write back, an empty one otherwise.
pub type StoreResult = Result<IoBuf, IoError>;

/// Called once with the result, on a thread of the store's. It must not block.
pub type StoreDone = Box<dyn FnOnce(StoreResult) + Send>;

/// One run of bytes that is all data or all hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// Whether nothing is stored there (it reads as zeroes).
    pub hole: bool,
}

/// What changes with every write to a store by whomever: two equal stamps with no write of one's own between them say that
/// nobody has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreStamp {
    /// Size in bytes.
    pub size_bytes: u64,
    /// When its data was last changed, in nanoseconds since 1970 by the clock of this machine.
    pub modified_ns: u64,
    /// When its data or attributes were last changed.
    pub changed_ns: u64,
}

/// Where a volume's blocks live. Operations run concurrently and end in any order; the caller
/// keeps overlapping writes apart.
pub trait Store: Send + Sync {
    /// Size in bytes; changes by [`look_again`](Self::look_again) only.
    fn size_bytes(&self) -> u64;

    /// Looks how long it is now, after another program has made it longer. That is its size from then on.
    ///
    /// # Errors
    ///
    /// It has become shorter, or cannot become longer while it is open.
    fn look_again(&self) -> Result<u64, IoError> {
        let message =
            "its size is known when it is opened, and does not change until it is opened anew";
        Err(IoError::new(IoErrorKind::Unsupported, message))
    }

    /// Which volume it is: the same for as long as it is the same volume, over restarts and
    /// reconnections, and another one for any other. None where nobody can tell.
    fn identity(&self) -> Option<[u8; 16]> {
        None
    }

    /// By which is seen whether others have written to it. None where nobody can tell.
    fn stamp(&self) -> Option<StoreStamp> {
        None
    }

    /// For messages and reports: what it is and how it is read.
    fn describe(&self) -> String;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;

    /// Starts an operation and returns soon. `sequence` numbers the operations of one cache in
    /// the order in which the cache decided on them; a store that is itself a cache needs it to
    /// tell old data from new.
    fn submit(&self, sequence: u64, operation: StoreOperation, done: StoreDone);

    /// Runs `submit`, once, which submits operations and hands blocks down, so that no answer to
    /// any of them comes before all of them are on their way.
    fn together(&self, submit: &mut dyn FnMut()) {
        submit();
    }

    /// Whether [`demote`](Self::demote) does anything.
    fn takes_demotions(&self) -> bool {
        false
    }

    /// Which of its connections the store uses now, counted from 1; 0 for a store that has none.
    /// Data that were read or written over an earlier one may be out of date.
    fn generation(&self) -> u64 {
        0
    }

    /// Hands down a block that the cache above has evicted, with its data, as of `sequence`. The
    /// data were read or written while [`generation`](Self::generation) was `generation`; the
    /// store drops those of an earlier one. A hint: it may be dropped, and nothing is answered.
    fn demote(&self, _sequence: u64, _generation: u64, _offset: u64, _data: IoBuf) {}

    /// Says that the cache above has evicted a range, without its data. A hint.
    fn notice(&self, _sequence: u64, _offset: u64, _length: u64) {}

    /// Operations so far that could not go the direct way: through the page cache where `O_DIRECT`
    /// is refused or the range is not whole pages, or by threads where io_uring is refused.
    fn buffered_fallbacks(&self) -> u64 {
        0
    }

    /// The extents of a range, in order, covering it; one of data where the store cannot tell.
    fn extents(&self, _offset: u64, length: u64) -> Result<Vec<Extent>, IoError> {
        Ok(vec![Extent {
            length,
            hole: false,
        }])
    }
}
