//! Blocks that somebody else held, demoted with their data.
//!
//! The data come some time after the block was given up, and nobody knows what has happened to it meanwhile. They are demoted only
//! if they are what the store is known to hold ([`super::super::verify`]): what was last read from it or written to it, over the
//! connection that there is now, with no write under way.

use crate::IoBuf;
use crate::engine::effects::Effects;
use crate::engine::front::Engine;
use crate::engine::keeper::Elsewhere;
use crate::engine::options::OnEviction;
use crate::engine::state::State;
use crate::engine::steps::STEP_BLOCKS;
use crate::engine::verify::{Mac, Macs, Verdict};
use futae_policy::BlockId;
use std::sync::Arc;

/// Blocks whose data are waited for, at most. Their pages may have left before anybody saw it.
const AWAITED_MAX: usize = 1 << 16;

impl Engine {
    /// The keeper has the data of blocks that it does not hold any more. Those that the level has given up are demoted, if
    /// evicted blocks are demoted and their data are known to be true.
    pub fn demote_held(self: &Arc<Self>, blocks: Vec<(BlockId, IoBuf)>) {
        let Some(keys) = self.keys.get() else {
            return;
        };
        let mut hashed = Vec::with_capacity(blocks.len());
        for (block, mut data) in blocks {
            // The last block of a volume may be short.
            let rest = self
                .volume_bytes(block.volume())
                .saturating_sub(block.index() * self.block_bytes);
            data.show(rest.min(data.len() as u64) as usize);
            let offset = block.index() * self.block_bytes;
            let macs = Macs::make(keys, self.block_bytes, offset, data.as_slice());
            hashed.push((block, data, macs.of(block.index())));
        }
        while !hashed.is_empty() {
            let some = hashed.split_off(hashed.len().saturating_sub(STEP_BLOCKS as usize));
            self.act(|state, effects| {
                for (block, data, mac) in some {
                    state.demote_held(block, data, mac, effects);
                }
            });
        }
    }

    /// From now on the cache below gets names of evicted blocks, without data.
    pub fn demote_by_notice(&self) {
        self.lock().on_eviction = OnEviction::Notice;
    }
}

impl State {
    /// The level has given up a block that somebody else holds, or held: the cache below is to have it.
    pub fn see_off_elsewhere(&mut self, block: BlockId, effects: &mut Effects) {
        match self.on_eviction {
            OnEviction::None => {}
            OnEviction::Notice => self.send_down(self.block_span(block), None, effects),
            OnEviction::Demote => {
                if let Some(Elsewhere { awaited, .. }) = &mut self.elsewhere {
                    if awaited.len() >= AWAITED_MAX {
                        awaited.clear();
                    }
                    awaited.insert(block);
                }
            }
        }
    }

    fn demote_held(
        &mut self,
        block: BlockId,
        data: IoBuf,
        mac: Option<Mac>,
        effects: &mut Effects,
    ) {
        self.steps.count(1);
        if !self.is_inside(block) {
            return;
        }
        self.note_loss(block, effects);
        let was_awaited = |elsewhere: &mut Elsewhere| elsewhere.awaited.remove(&block);
        let was_awaited = self.elsewhere.as_mut().is_some_and(was_awaited);
        // It may have come again, or be on its way to the store, after which it is demoted.
        if !was_awaited || self.level.find(block).is_some() || self.is_dirty(block) {
            return;
        }
        let of = self.block_span(block);
        let is_true = data.len() as u64 == of.length
            && self.under_way.write_over(&of).is_none()
            && self.check(block, mac) == Verdict::Same;
        if is_true {
            let generation = self.store(block.volume()).generation();
            self.send_down(of, Some((data, generation)), effects);
        }
    }
}
