//! The one place where requests go to the cache and results come back.

use crate::device::Device;
use crate::mailbox::{Completion, Mailbox};
use futae_engine::{Batch, ClientId, Engine, IoBuf, Operation, ReadRange, Request};
use futae_policy::VolumeId;
use std::sync::Arc;

/// The cache, as one queue sees it. It joins as a client, and leaves when dropped.
pub(crate) struct Submitter {
    engine: Arc<Engine>,
    volume: VolumeId,
    client: ClientId,
    mailbox: Arc<Mailbox>,
    batch: Vec<Pending>,
    completions: Vec<Completion>,
    sequence: u64,
}

/// An operation that the cache does not have yet.
struct Pending {
    /// The descriptor at which its request begins.
    head: u16,
    sequence: u64,
    /// Gone once the cache has it.
    operation: Option<Operation>,
    is_whole: bool,
}

/// A read that was answered in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filled {
    pub(crate) head: u16,
    /// Whether the guest's memory took all of it.
    pub(crate) is_whole: bool,
}

impl Submitter {
    pub(crate) fn new(device: &Device, mailbox: &Arc<Mailbox>) -> Self {
        Self {
            engine: Arc::clone(&device.engine),
            volume: device.volume,
            client: device.engine.join(device.volume),
            mailbox: Arc::clone(mailbox),
            batch: Vec::new(),
            completions: Vec::new(),
            sequence: 0,
        }
    }

    /// Adds an operation of the request that begins at descriptor `head`.
    pub(crate) fn add(&mut self, head: u16, operation: Operation) {
        self.sequence += 1;
        self.batch.push(Pending {
            head,
            sequence: self.sequence,
            operation: Some(operation),
            is_whole: true,
        });
    }

    /// Hands the cache what was added; whether that was anything. Data that are resident go to `copy`, with the
    /// number of bytes of the read before them; it says whether the guest's memory took them. Reads that are over
    /// by that are added to `filled`.
    pub(crate) fn submit(
        &mut self,
        copy: impl FnMut(u16, usize, &[u8]) -> bool,
        filled: &mut Vec<Filled>,
    ) -> bool {
        let count = self.batch.len();
        if count == 0 {
            return false;
        }
        let mut operations = Operations {
            pending: &mut self.batch,
            volume: self.volume,
            client: self.client,
            mailbox: &self.mailbox,
            copy,
            filled,
        };
        self.engine.run_batch(count, &mut operations);
        self.batch.clear();
        true
    }

    /// What the cache is done with. Give the vector back to [`Self::recycle`].
    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        let mut completions = std::mem::take(&mut self.completions);
        self.mailbox.take(&mut completions);
        completions
    }

    pub(crate) fn recycle(&mut self, mut completions: Vec<Completion>) {
        completions.clear();
        self.completions = completions;
    }
}

impl Drop for Submitter {
    fn drop(&mut self) {
        self.engine.leave(self.volume, self.client);
    }
}

/// A batch, as the cache takes it.
struct Operations<'a, F> {
    pending: &'a mut Vec<Pending>,
    volume: VolumeId,
    client: ClientId,
    mailbox: &'a Arc<Mailbox>,
    copy: F,
    filled: &'a mut Vec<Filled>,
}

impl<F: FnMut(u16, usize, &[u8]) -> bool> Batch for Operations<'_, F> {
    fn read(&self, at: usize) -> Option<ReadRange> {
        match self.pending[at].operation {
            Some(Operation::Read { offset, length }) => Some(ReadRange {
                volume: self.volume,
                offset,
                length,
            }),
            _ => None,
        }
    }

    fn fill(&mut self, at: usize, from: usize, bytes: &[u8]) {
        let pending = &mut self.pending[at];
        pending.is_whole &= (self.copy)(pending.head, from, bytes);
    }

    fn filled(&mut self, at: usize) {
        let pending = &mut self.pending[at];
        pending.operation = None;
        self.filled.push(Filled {
            head: pending.head,
            is_whole: pending.is_whole,
        });
    }

    fn request(&mut self, at: usize) -> Request {
        let pending = &mut self.pending[at];
        let (mailbox, head) = (Arc::clone(self.mailbox), pending.head);
        Request {
            volume: self.volume,
            client: self.client,
            sequence: pending.sequence,
            // The cache asks once.
            operation: pending.operation.take().unwrap_or(Operation::Settle),
            done: Box::new(move |result: Result<IoBuf, _>| {
                mailbox.put(Completion { head, result });
            }),
        }
    }
}
