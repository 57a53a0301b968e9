//! The one place where requests go to the cache and results come back.

use crate::device::Device;
use crate::mailbox::{Completion, Mailbox};
use futae_engine::{ClientId, Engine, Operation, Request};
use futae_policy::VolumeId;
use std::sync::Arc;

/// The cache, as one queue sees it. It joins as a client, and leaves when dropped.
pub(crate) struct Submitter {
    engine: Arc<Engine>,
    volume: VolumeId,
    client: ClientId,
    mailbox: Arc<Mailbox>,
    batch: Vec<Request>,
    completions: Vec<Completion>,
    sequence: u64,
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
        let mailbox = Arc::clone(&self.mailbox);
        self.batch.push(Request {
            volume: self.volume,
            client: self.client,
            sequence: self.sequence,
            operation,
            done: Box::new(move |result| mailbox.put(Completion { head, result })),
        });
    }

    /// Hands the cache what was added; whether that was anything.
    pub(crate) fn submit(&mut self) -> bool {
        let any = !self.batch.is_empty();
        if any {
            self.engine.submit_batch(&mut self.batch);
        }
        any
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
