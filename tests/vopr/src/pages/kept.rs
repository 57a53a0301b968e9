//! The page cache as the cache sees it.

use super::{Pages, PagesConfig};
use crate::sim::{Inside, Sim};
use futae_engine::{IoBuf, Keeper, KeeperStatus, News};
use futae_policy::{BlockId, Prng};
use std::sync::Arc;

/// Pages that wait to be put in at most, but for those that are on their way.
const TO_PUT_MAX: usize = 4;

/// The page cache as the cache sees it.
pub struct Kept {
    pub sim: Arc<Sim>,
    pub incarnation: u64,
}

impl Kept {
    fn with<T: Default>(&self, work: impl FnOnce(&mut Pages, PagesConfig, &mut Prng) -> T) -> T {
        let mut inside = self.sim.lock();
        if !inside.is_of_now(self.incarnation) {
            return T::default();
        }
        let Inside {
            pages,
            config,
            prng,
            ..
        } = &mut *inside;
        match (pages, config.pages) {
            (Some(pages), Some(how)) => work(pages, how, prng),
            _ => T::default(),
        }
    }
}

impl Keeper for Kept {
    fn is_watching(&self) -> bool {
        self.with(|pages, _, _| pages.is_watching)
    }

    fn news(&self, news: &mut News) {
        self.with(|pages, how, prng| {
            let told = prng.below(pages.left.len() as u64 + 1) as usize;
            for block in pages.left.drain(..told) {
                if how.loses == 0 || prng.below(how.loses) > 0 {
                    news.left.push(block);
                }
            }
            let told = prng.below(pages.used.len() as u64 + 1) as usize;
            for _ in 0..told {
                news.used.extend(pages.used.pop_first());
            }
        });
    }

    fn holds(&self, block: BlockId) -> bool {
        self.with(|pages, _, _| pages.pages.contains_key(&block))
    }

    fn let_go(&self, block: BlockId) {
        self.with(|pages, _, _| pages.unwanted.push(block));
    }

    fn takes(&self, block: BlockId) -> bool {
        self.with(|pages, how, _| how.takes && !pages.writable.contains(&block.volume()))
    }

    fn has_room(&self) -> bool {
        self.with(|pages, _, _| pages.to_put.len() < TO_PUT_MAX)
    }

    fn put(&self, block: BlockId, data: IoBuf) {
        self.with(|pages, how, _| {
            if how.takes && !pages.writable.contains(&block.volume()) {
                pages.to_put.push_back((block, data));
            }
        });
    }

    fn status(&self) -> KeeperStatus {
        self.with(|pages, _, _| KeeperStatus {
            pages: pages.pages.len() as u64,
            ..KeeperStatus::default()
        })
    }
}
