//! One read of a file: answered in place if its blocks are resident, otherwise later.

use crate::errno::errno;
use fuser::Errno;
use futae_engine::{Batch, ClientId, IoBuf, IoError, Operation, ReadRange, Request};

/// Passes the result of a read to its requester.
pub(crate) fn answer(done: impl FnOnce(Result<&[u8], Errno>), result: Result<IoBuf, IoError>) {
    match result {
        Ok(data) => done(Ok(data.as_slice())),
        Err(error) => done(Err(errno(&error))),
    }
}

/// A batch of one read.
pub(crate) struct OneRead<D> {
    range: ReadRange,
    client: ClientId,
    sequence: u64,
    /// `None` once the cache has it.
    done: Option<D>,
    data: Option<IoBuf>,
}

impl<D: FnOnce(Result<&[u8], Errno>) + Send + 'static> OneRead<D> {
    pub(crate) fn new(range: ReadRange, client: ClientId, sequence: u64, done: D) -> Self {
        Self {
            range,
            client,
            sequence,
            done: Some(done),
            data: None,
        }
    }

    /// Answers the read if its data was resident. Call it without the lock of the cache: it writes
    /// to the kernel.
    pub(crate) fn answer(self) {
        if let (Some(done), Some(data)) = (self.done, self.data) {
            done(Ok(data.as_slice()));
        }
    }
}

impl<D: FnOnce(Result<&[u8], Errno>) + Send + 'static> Batch for OneRead<D> {
    fn read(&self, _at: usize) -> Option<ReadRange> {
        Some(self.range)
    }

    fn fill(&mut self, _at: usize, from: usize, bytes: &[u8]) {
        let length = self.range.length as usize;
        let data = self.data.get_or_insert_with(|| IoBuf::new(length));
        data.as_mut_slice()[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn filled(&mut self, _at: usize) {}

    fn request(&mut self, _at: usize) -> Request {
        let done = self.done.take();
        Request {
            volume: self.range.volume,
            client: self.client,
            sequence: self.sequence,
            operation: Operation::Read {
                offset: self.range.offset,
                length: self.range.length,
            },
            done: Box::new(move |result| {
                if let Some(done) = done {
                    answer(done, result);
                }
            }),
        }
    }
}
