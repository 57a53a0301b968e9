//! The only place where requests are passed to the cache and results come back.

use crate::mailbox::{Completion, Mailbox};
use futae_engine::{Batch, ClientId, IoBuf, JoinedClient, Operation, ReadRange, Request};
use futae_policy::VolumeId;
use std::sync::Arc;

/// The cache, from the point of view of one queue. All queues of a disk are one client, so that the guest learns once that its
/// writes were lost.
pub(crate) struct Submitter {
    disk: Arc<JoinedClient>,
    mailbox: Arc<Mailbox>,
    batch: Vec<Pending>,
    completions: Vec<Completion>,
    sequence: u64,
}

/// An operation that has not been passed to the cache yet.
struct Pending {
    /// The descriptor at which its request begins.
    head: u16,
    sequence: u64,
    /// `None` once it has been passed to the cache.
    operation: Option<Operation>,
    is_whole: bool,
}

/// A read that was answered in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filled {
    pub(crate) head: u16,
    /// Whether all of it could be copied to the guest's memory.
    pub(crate) is_whole: bool,
}

impl Submitter {
    pub(crate) fn new(disk: &Arc<JoinedClient>, mailbox: &Arc<Mailbox>) -> Self {
        Self {
            disk: Arc::clone(disk),
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

    /// Passes the added operations to the cache. Returns whether there were any. Resident data is
    /// passed to `copy`, with its offset within the read; `copy` returns whether the guest's memory
    /// accepted it. Reads completed in this way are added to `filled`.
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
            volume: self.disk.volume(),
            client: self.disk.id(),
            mailbox: &self.mailbox,
            copy,
            filled,
        };
        self.disk.engine().run_batch(count, &mut operations);
        self.batch.clear();
        true
    }

    /// The completed operations. Return the vector with [`Self::recycle`].
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
            // The cache calls this once per operation.
            operation: pending.operation.take().unwrap_or(Operation::Settle),
            done: Box::new(move |result: Result<IoBuf, _>| {
                mailbox.put(Completion { head, result });
            }),
        }
    }
}
