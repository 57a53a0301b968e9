//! One connection as the driver sees it: what is under way on it, and the cache above that it stands for.

use crate::client::Client;
use crate::model::NEVER;
use crate::reports::Caller;
use std::collections::HashMap;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Trim,
    Zero,
    Flush,
    Cache,
    Status,
}

impl Kind {
    pub fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Trim | Self::Zero)
    }
}

/// A request under way.
pub struct Pending {
    pub kind: Kind,
    pub offset: u64,
    pub length: usize,
    /// What is written.
    pub data: Vec<u8>,
    pub fua: bool,
}

impl Pending {
    fn overlaps(&self, offset: u64, length: usize) -> bool {
        self.offset < offset + length as u64 && offset < self.offset + self.length as u64
    }
}

/// A connection to one volume.
pub struct Connection {
    pub id: u64,
    pub client: Client,
    pub volume: usize,
    /// When it was made.
    pub connected: u64,
    /// When the server first answered a request of it: from then on it is known there.
    pub since: u64,
    /// Requests under way by their cookies, which are the times at which they were issued.
    pub pending: HashMap<u64, Pending>,
    /// Somebody else has changed the volume while this connection was open.
    pub others_wrote: bool,
    /// Blocks that the cache above holds: their first bytes, and what they hold.
    held: HashMap<u64, Vec<u8>>,
    /// When this connection last changed a block: when it asked, or when it was answered.
    touched: HashMap<u64, u64>,
    block_bytes: usize,
    size_bytes: u64,
}

impl Connection {
    pub fn new(
        (id, connected): (u64, u64),
        client: Client,
        volume: usize,
        block_bytes: usize,
    ) -> Self {
        let size_bytes = client.export.size_bytes;
        Self {
            id,
            client,
            volume,
            connected,
            since: NEVER,
            pending: HashMap::new(),
            others_wrote: false,
            held: HashMap::new(),
            touched: HashMap::new(),
            block_bytes,
            size_bytes,
        }
    }

    /// How the model knows it.
    pub fn caller(&self) -> Caller {
        Caller {
            connection: self.id,
            connected: self.connected,
        }
    }

    /// Whether a FLUSH or a FUA is under way.
    pub fn is_flushing(&self) -> bool {
        let flushes = |pending: &Pending| pending.fua || pending.kind == Kind::Flush;
        self.pending.values().any(flushes)
    }

    /// The bytes of the block that begins at an offset.
    pub fn block_length(&self, offset: u64) -> usize {
        self.block_bytes.min((self.size_bytes - offset) as usize)
    }

    fn blocks(&self, offset: u64, length: usize) -> impl Iterator<Item = u64> + use<> {
        let block = self.block_bytes as u64;
        let first = offset / block * block;
        (first..offset + length as u64).step_by(self.block_bytes)
    }

    /// The connection changes a range, or has been answered: the cache above gives up its blocks.
    pub fn touch(&mut self, offset: u64, length: usize, now: u64) {
        for block in self.blocks(offset, length) {
            self.held.remove(&block);
            self.touched.insert(block, now);
        }
    }

    /// Whether a request of this time was the last that changed anything in the range.
    pub fn is_newest(&self, offset: u64, length: usize, issue: u64) -> bool {
        self.blocks(offset, length)
            .all(|block| self.touched.get(&block) == Some(&issue))
    }

    /// Whether the connection has something under way that changes the range.
    fn is_changing(&self, offset: u64, length: usize) -> bool {
        let changes =
            |pending: &Pending| pending.kind.changes() && pending.overlaps(offset, length);
        self.pending.values().any(changes)
    }

    /// The cache above takes the whole blocks of a range that was read or written by a request of this time.
    pub fn hold(&mut self, offset: u64, data: &[u8], issue: u64) {
        for block in self.blocks(offset, data.len()) {
            let length = self.block_length(block);
            let is_whole = block >= offset && block + length as u64 <= offset + data.len() as u64;
            let is_newest = self.touched.get(&block).is_none_or(|&when| when <= issue);
            if is_whole && is_newest && !self.is_changing(block, length) {
                let at = (block - offset) as usize;
                self.held.insert(block, data[at..at + length].to_vec());
            }
        }
    }

    /// Evicts a block that may be demoted: that one of them whose turn it is.
    pub fn evict(&mut self, turn: u64) -> Option<(u64, Vec<u8>)> {
        let mut all: Vec<_> = self.held.keys().copied().collect();
        all.sort_unstable();
        all.retain(|&block| !self.is_changing(block, self.block_length(block)));
        let block = *all.get(turn.checked_rem(all.len() as u64)? as usize)?;
        Some((block, self.held.remove(&block)?))
    }
}
