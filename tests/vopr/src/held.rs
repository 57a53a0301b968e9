//! What the engine has asked of a disk and has no answer to.

use futae_engine::{StoreDone, StoreOperation, StoreResult};
use std::borrow::Cow;

/// A store operation under way.
pub struct Held {
    /// Which volume's.
    pub volume: usize,
    pub operation: Option<StoreOperation>,
    /// What came of it, once the disk has performed it.
    pub result: Option<StoreResult>,
    pub done: StoreDone,
    /// What it covers, if it is a FLUSH.
    pub covered: Vec<u64>,
    /// The disk's number of what it wrote.
    pub number: Option<u64>,
    /// First byte and length, unless it is a FLUSH.
    pub range: Option<(u64, u64)>,
    pub writes: bool,
}

impl Held {
    /// Whether it reads.
    pub fn is_read(&self) -> bool {
        self.range.is_some() && !self.writes
    }
    /// Whether it changes something.
    pub fn is_write(&self) -> bool {
        self.writes
    }
    /// Whether it makes things stable.
    pub fn is_flush(&self) -> bool {
        self.range.is_none()
    }
    /// The first byte and the data of a write that the disk has yet to perform.
    pub fn to_write(&self) -> Option<(u64, Cow<'_, [u8]>)> {
        match self.operation.as_ref()? {
            StoreOperation::Write { offset, buffer, .. } => {
                Some((*offset, Cow::Borrowed(buffer.as_slice())))
            }
            StoreOperation::Trim { offset, length }
            | StoreOperation::WriteZeroes { offset, length, .. } => {
                Some((*offset, Cow::Owned(vec![0; *length as usize])))
            }
            StoreOperation::Read { .. } | StoreOperation::Flush => None,
        }
    }
    /// Whether the disk has yet to perform it.
    pub fn waits(&self) -> bool {
        self.operation.is_some()
    }
}
