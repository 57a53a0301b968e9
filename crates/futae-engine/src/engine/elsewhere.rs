//! A cache whose blocks are held by somebody else: the kernel's page cache of a mount. The level decides as always, on what it
//! hears of reads that never came here; no frame is used, and what is read goes through.

use super::effects::Effects;
use super::front::Engine;
use super::keeper::{Elsewhere, Keeper};
use super::read::Reading;
use super::rest::Rest;
use super::state::State;
use super::steps::STEP_BLOCKS;
use futae_policy::{AccessKind, BlockId, Outcome, VolumeId};
use std::sync::Arc;

impl Engine {
    /// Has somebody else hold the blocks, for good. To be called before the first request; blocks are not written back then,
    /// nor demoted with their data.
    pub fn keep_elsewhere(&self, keeper: Arc<dyn Keeper>) {
        self.lock().elsewhere = Some(Elsewhere::new(keeper));
    }

    /// Whether somebody else holds the blocks.
    pub fn is_kept_elsewhere(&self) -> bool {
        self.lock().elsewhere.is_some()
    }

    /// Decides on what the keeper saw. The keeper calls it now and then, so that its counts do not overflow; before each
    /// decision on a request it is done anyway.
    pub fn hear(self: &Arc<Self>) {
        self.act(|state, effects| state.hear(0, effects));
    }

    /// Takes those blocks off the list that are resident, or are being read.
    pub fn retain_unwanted(&self, blocks: &mut Vec<BlockId>) {
        let mut kept = Vec::with_capacity(blocks.len());
        for some in blocks.chunks(STEP_BLOCKS as usize) {
            let state = self.lock();
            kept.extend(some.iter().copied().filter(|&block| {
                state.level.find(block).is_none() && !state.under_way.flight_of.contains_key(&block)
            }));
        }
        *blocks = kept;
    }

    /// The first resident blocks of a volume from `from` on, by their numbers, as many as one step may look at.
    pub fn resident_from(&self, volume: VolumeId, from: u64) -> Vec<u64> {
        let state = self.lock();
        let known = state.volumes.get(usize::from(volume.0));
        known.map_or_else(Vec::new, |known| {
            known.residents.within(from..u64::MAX, STEP_BLOCKS)
        })
    }

    /// Blocks resident now.
    pub fn resident_blocks(&self) -> u64 {
        self.lock().level.resident().into()
    }

    /// Drops blocks that the keeper does not hold.
    pub fn forget(self: &Arc<Self>, blocks: &[BlockId]) {
        for some in blocks.chunks(STEP_BLOCKS as usize) {
            self.quiet_step(|state| {
                for &block in some {
                    state.steps.count(1);
                    state.invalidate(block);
                }
            });
        }
    }
}

impl State {
    /// Decides on what the keeper saw, as far as this step has room beside `reserved` blocks; the rest follows in the next ones.
    pub fn hear(&mut self, reserved: u64, effects: &mut Effects) {
        let Some(elsewhere) = &mut self.elsewhere else {
            return;
        };
        let mut news = std::mem::take(&mut elsewhere.news);
        if news.used.is_empty() && news.left.is_empty() {
            elsewhere.keeper.news(&mut news);
        }
        let keeper = Arc::clone(&elsewhere.keeper);
        let mut reclaimed = 0;
        while let Some(block) = news.left.pop() {
            let is_resident = self.is_inside(block) && self.level.find(block).is_some();
            if is_resident && !keeper.holds(block) {
                reclaimed += 1;
                self.steps.count(1);
                self.invalidate(block);
            }
            if self.steps.left() <= reserved {
                break;
            }
        }
        while self.steps.left() > reserved {
            let Some((block, times)) = news.used.pop() else {
                break;
            };
            if times > 1 {
                news.used.push((block, times - 1));
            }
            if self.is_inside(block) {
                self.offer_elsewhere(block, AccessKind::Read, effects);
            }
        }
        if !news.used.is_empty() || !news.left.is_empty() {
            effects.later(Rest::News);
        }
        if let Some(elsewhere) = &mut self.elsewhere {
            elsewhere.reclaimed += reclaimed;
            elsewhere.news = news;
        }
    }

    /// Puts a block before the level; one that it does not want is let go.
    pub fn offer_elsewhere(&mut self, block: BlockId, kind: AccessKind, effects: &mut Effects) {
        let is_watching = |elsewhere: &Elsewhere| elsewhere.keeper.is_watching();
        if !self.elsewhere.as_ref().is_some_and(is_watching) {
            return;
        }
        if self.offer(block, kind, effects) == Outcome::Bypassed {
            self.let_go(block);
        }
    }

    /// A block is not to be held, or not any more.
    pub fn let_go(&self, block: BlockId) {
        if let Some(elsewhere) = &self.elsewhere {
            elsewhere.keeper.let_go(block);
        }
    }

    /// A block of a read that came here: it is not where it is to be held, so it is read from the store in any case.
    pub fn read_elsewhere(
        &mut self,
        block: BlockId,
        is_decided: bool,
        reading: &mut Reading,
        effects: &mut Effects,
    ) {
        if !is_decided {
            self.offer_elsewhere(block, AccessKind::Read, effects);
        }
        self.fetch(block, None, reading);
    }
}
