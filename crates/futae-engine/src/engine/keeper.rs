//! Who holds a cache's blocks in its place, as the cache sees it.

use crate::IoBuf;
use futae_policy::BlockId;
use hashbrown::HashSet;
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

    /// How many bytes of the cache are needed beside the blocks, for which there are fewer blocks. At least half of the cache stays.
    /// When this changes, the cache is told ([`Engine::fit_keeper`](super::Engine::fit_keeper)).
    fn aside_bytes(&self) -> u64 {
        0
    }

    /// A block is not to be held, or not any more.
    fn let_go(&self, block: BlockId);

    /// Whether it can be given the data of a block now that nobody reads. If not, the block is resident without its data until
    /// somebody reads it.
    fn takes(&self, _block: BlockId) -> bool {
        false
    }

    /// Whether it can be given data of more blocks before it has put away what it has.
    fn has_room(&self) -> bool {
        true
    }

    /// Gives it the data of a resident block, as the store has it. It says when it holds them ([`Engine::hold`](super::Engine::hold));
    /// if somebody is going to write to the block by then, it drops them.
    fn put(&self, _block: BlockId, _data: IoBuf) {}

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

impl News {
    /// Has the uses of each block, of which nobody knows the order, come evenly spread over the time of all: one by one, the last first.
    pub fn spread(&mut self) {
        let total: u64 = self.used.iter().map(|(_, times)| u64::from(*times)).sum();
        let mut uses: Vec<(u32, BlockId)> = Vec::with_capacity(total as usize);
        for &(block, times) in &self.used {
            // Blocks with one use each are not all to be used at the same time.
            let begin = hash(block) >> 32;
            let use_at = |at: u32| ((u64::from(at) << 32 | begin) / u64::from(times)) as u32;
            uses.extend((0..times).map(|at| (use_at(at), block)));
        }
        uses.sort_unstable_by(|one, other| other.cmp(one));
        self.used = uses.into_iter().map(|(_, block)| (block, 1)).collect();
    }
}

/// A number that looks drawn.
fn hash(block: BlockId) -> u64 {
    let number = block.index() << 16 | u64::from(block.volume().0);
    (number ^ number >> 29)
        .wrapping_add(1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
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
    /// Pages that nobody had read and that the kernel was given.
    #[serde(default)]
    pub stored: u64,
    /// Pages that were found read again through a map.
    #[serde(default)]
    pub mapped_used: u64,
    /// Bytes of the cache that are needed beside the pages, and by which it has fewer.
    #[serde(default)]
    pub aside_bytes: u64,
    /// Resident pages that the kernel gave up by itself.
    #[serde(default)]
    pub reclaimed: u64,
}

/// The keeper, and what was heard from it and not decided on yet.
pub struct Elsewhere {
    pub keeper: Arc<dyn Keeper>,
    pub news: News,
    /// Whether the policy is told of uses as if their order were known.
    pub spreads: bool,
    pub reclaimed: u64,
    /// Blocks that the level has given up, and whose data are to be demoted when they come.
    pub awaited: HashSet<BlockId>,
}

impl Elsewhere {
    pub fn new(keeper: Arc<dyn Keeper>) -> Self {
        Self {
            keeper,
            news: News::default(),
            spreads: false,
            reclaimed: 0,
            awaited: HashSet::new(),
        }
    }

    pub fn status(&self) -> KeeperStatus {
        KeeperStatus {
            reclaimed: self.reclaimed,
            ..self.keeper.status()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_spread_over_the_time_of_all() {
        let block = BlockId::on_first;
        let once = (10..40).map(|index| (block(index), 1));
        let mut news = News {
            used: [(block(1), 100), (block(2), 10)]
                .into_iter()
                .chain(once)
                .collect(),
            left: Vec::new(),
        };
        news.spread();
        assert_eq!(news.used.len(), 140);
        assert!(news.used.iter().all(|(_, times)| *times == 1));
        // Of any 35 that follow each other, about a quarter of each.
        for some in news.used.chunks(35) {
            let of = |wanted: &dyn Fn(u64) -> bool| {
                let wanted = |(block, _): &&(BlockId, u32)| wanted(block.index());
                some.iter().filter(wanted).count()
            };
            let often = of(&|index| index == 1);
            assert!((18..=32).contains(&often), "{often}");
            assert!((1..=5).contains(&of(&|index| index == 2)));
            assert!((2..=15).contains(&of(&|index| index >= 10)));
        }
    }
}
