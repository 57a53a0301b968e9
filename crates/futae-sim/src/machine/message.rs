//! What a level sends down, kept until the next level takes it.

use crate::batch::{Batch, block};
use crate::link::{Below, Store};
use futae_policy::{Access, AccessKind, BlockId};

/// A message that crosses the boundary below a level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) block: u32,
    /// The length of the request; 0 if all are equal, or it is none.
    pub(super) bytes: u32,
    pub(super) kind: AccessKind,
    /// Whether no level below is to count it as served there: a level above had the block that it
    /// writes, or reads it ahead.
    pub(super) is_served: bool,
}

impl Message {
    pub(super) fn access(&self) -> Access {
        Access::of(block(self.block), self.kind)
    }

    /// Whether the level that serves it counts it.
    pub(super) fn is_counted(&self) -> bool {
        self.kind.is_demand() && !self.is_served
    }

    /// The requests of a batch.
    pub(super) fn all_of(batch: &Batch<'_>) -> Vec<Self> {
        let request = |at| Self {
            block: batch.blocks[at],
            bytes: batch.bytes_of(at),
            kind: batch.kind_of(at),
            is_served: false,
        };
        (0..batch.blocks.len()).map(request).collect()
    }
}

pub(super) fn blocks_of(messages: &[Message]) -> impl Iterator<Item = BlockId> {
    messages.iter().map(|message| block(message.block))
}

/// The part below a level that takes messages, with what it must know beside them.
pub(super) trait Outlet: Below {
    /// The next request has this length, and maybe a level above has served it.
    fn begin(&mut self, bytes: u32, is_served: bool);
    /// The level has the block that it was asked to write.
    fn end_served(&mut self);
}

/// The part below is the store, and counts at once.
impl Outlet for Store {
    fn begin(&mut self, _bytes: u32, _is_served: bool) {}
    fn end_served(&mut self) {}
}

/// The part below is a level that takes messages later. What bypasses it is counted at once.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) messages: Vec<Message>,
    pub(super) store: Store,
    bytes: u32,
    is_served: bool,
    begin: usize,
}

impl Outbox {
    fn push(&mut self, access: &Access, bytes: u32, is_served: bool) {
        self.messages.push(Message {
            block: access.block.index() as u32,
            bytes,
            kind: access.kind,
            is_served,
        });
    }
}

impl Below for Outbox {
    /// Where a request is served, the levels below find out.
    #[inline]
    fn access(&mut self, access: &Access) -> u32 {
        self.push(access, self.bytes, self.is_served);
        0
    }
    fn fetch(&mut self, block: BlockId) {
        self.store.fetch(block);
    }
    fn preload(&mut self, block: BlockId) {
        self.store.preload(block);
    }
    fn read_ahead(&mut self, block: BlockId) {
        self.push(&Access::read(block), 0, true);
    }
    /// In a simulation nothing changes outside the caches.
    fn invalidate(&mut self, _block: BlockId) {}
}

impl Outlet for Outbox {
    #[inline]
    fn begin(&mut self, bytes: u32, is_served: bool) {
        self.bytes = bytes;
        self.is_served = is_served;
        self.begin = self.messages.len();
    }
    /// The write is the first of what was sent since [`begin`](Self::begin).
    fn end_served(&mut self) {
        if let Some(write) = self.messages.get_mut(self.begin) {
            write.is_served = true;
        }
    }
}
