//! Who holds a cache's blocks in its place, as the cache sees it.

use futae_policy::BlockId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Who holds the resident blocks in the cache's place. The cache calls it under its lock: it must neither block nor call the
/// cache.
pub trait Keeper: Send + Sync {
    /// Whether it sees what is used and what leaves. Until then nothing is decided on, and nothing is resident.
    fn is_watching(&self) -> bool;

    /// What happened since the last call.
    fn news(&self, news: &mut News);

    /// Whether it holds a block.
    fn holds(&self, block: BlockId) -> bool;

    /// How many blocks it can hold, if there is a limit.
    fn blocks_max(&self) -> Option<u64> {
        None
    }

    /// A block is not to be held, or not any more.
    fn let_go(&self, block: BlockId);

    /// What it has done.
    fn status(&self) -> KeeperStatus;
}

/// What a keeper saw.
#[derive(Debug, Default)]
pub struct News {
    /// Blocks that were read there, and how often.
    pub used: Vec<(BlockId, u32)>,
    /// Blocks that it gave up. Some of them it may hold again.
    pub left: Vec<BlockId>,
}

/// What a keeper has done. The names are those of the kernel's page cache, the only keeper there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperStatus {
    /// Pages that are there now.
    pub pages: u64,
    /// Pages that the policy gave up and that were taken out.
    pub invalidated: u64,
    /// Pages that wait to be taken out.
    pub waiting: u64,
    /// Resident pages that the kernel gave up by itself.
    #[serde(default)]
    pub reclaimed: u64,
}

/// The keeper, and what was heard from it and not decided on yet.
pub struct Elsewhere {
    pub keeper: Arc<dyn Keeper>,
    pub news: News,
    pub reclaimed: u64,
}

impl Elsewhere {
    pub fn new(keeper: Arc<dyn Keeper>) -> Self {
        Self {
            keeper,
            news: News::default(),
            reclaimed: 0,
        }
    }

    pub fn status(&self) -> KeeperStatus {
        KeeperStatus {
            reclaimed: self.reclaimed,
            ..self.keeper.status()
        }
    }
}
