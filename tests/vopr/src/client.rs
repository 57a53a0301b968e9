//! Clients: what they know, and their requests under way.

mod demotions;
mod requests;

use futae_engine::ClientId;
use std::collections::BTreeMap;

/// A client of one volume, which has a cache of its own.
pub struct Client {
    pub id: ClientId,
    pub volume: usize,
    /// When it connected, at the latest.
    joined: u64,
    sequence: u64,
    /// Blocks that it has read or written whole, by first byte.
    known: BTreeMap<u64, Vec<u8>>,
    /// When it last began to write to a block.
    wrote: BTreeMap<u64, u64>,
    /// When a write of its to a block last ended.
    written: BTreeMap<u64, u64>,
    /// Blocks that it has given up and that are still on their way: sequence, first byte, data.
    late: Vec<(u64, u64, Vec<u8>)>,
}

impl Client {
    /// One that knows nothing.
    pub fn new(id: ClientId, volume: usize, joined: u64) -> Self {
        Self {
            id,
            volume,
            joined,
            sequence: 0,
            known: BTreeMap::new(),
            wrote: BTreeMap::new(),
            written: BTreeMap::new(),
            late: Vec::new(),
        }
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It reads.
    Read,
    /// It writes data, or zeroes.
    Write,
    /// It makes things stable.
    Flush,
    /// It is a hint.
    Hint,
}

impl Kind {
    /// From 0 on.
    pub fn number(self) -> u32 {
        self as u32
    }
}

/// How a request came to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Past the page cache, or there is none.
    Direct,
    /// It reads pages that are not there.
    Fill,
    /// It writes what the pages have already.
    Through,
    /// It clears a range of the file.
    Clear,
}

/// A request under way.
pub struct Pending {
    pub kind: Kind,
    pub client: ClientId,
    pub volume: usize,
    pub offset: u64,
    pub length: u64,
    pub fua: bool,
    /// When it began.
    pub invoked: u64,
    /// How it came to the cache.
    route: Route,
    /// The number of the write, if it writes data.
    version: Option<u64>,
    /// What the client knew of its blocks before.
    before: Vec<(u64, Vec<u8>)>,
}
