//! Changes the size of a cache, in steps.

use super::effects::Effects;
use super::front::Engine;
use super::sizing::{Sizing, check_memory};
use super::state::State;
use crate::SetupError;
use std::sync::{Arc, PoisonError};

impl Engine {
    /// Changes the number of slots. The lower level learns of evicted blocks as usual; the memory
    /// of their frames is returned to the kernel.
    pub fn resize(self: &Arc<Self>, capacity_blocks: u32) -> Result<(), SetupError> {
        if capacity_blocks == 0 {
            return Err(SetupError::Size(
                "a cache has at least one block".to_owned(),
            ));
        }
        // The policy stays the same meanwhile.
        let mut sizing = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
        self.policy().check_slots(capacity_blocks)?;
        check_memory(u64::from(capacity_blocks) * self.block_bytes, &*self.world)?;
        self.check_keeper(capacity_blocks)?;
        if let Err(error) = self.reserve(capacity_blocks) {
            while !self.quiet_step(|state| state.strip(state.steps.most() as u32)) {
                self.state.give_way();
            }
            return Err(error);
        }
        let set = |sizing: &mut Sizing| sizing.capacity_blocks = capacity_blocks;
        self.fit_to(&mut sizing, set);
        Ok(())
    }

    /// Makes sure that all slots that a cache of this many slots uses have memory. The kernel fills it with zeroes, so that comes in
    /// steps, too.
    fn reserve(&self, capacity_blocks: u32) -> Result<(), SetupError> {
        while !self.quiet_step(|state| state.allocate_some(capacity_blocks))? {
            self.state.give_way();
        }
        self.lock().arena.reserve(capacity_blocks)?;
        while self.quiet_step(|state| state.fit_out(capacity_blocks))? {
            self.state.give_way();
        }
        Ok(())
    }

    /// Checks that the keeper, if there is one, can hold this many blocks.
    fn check_keeper(&self, capacity_blocks: u32) -> Result<(), SetupError> {
        let keeper = self
            .lock()
            .elsewhere
            .as_ref()
            .map(|it| Arc::clone(&it.keeper));
        let most = keeper.and_then(|keeper| keeper.blocks_max());
        match most.filter(|&most| u64::from(capacity_blocks) > most) {
            None => Ok(()),
            Some(most) => Err(SetupError::Size(format!(
                "the kernel's pages of this mount are watched up to {most} blocks of {} bytes; mount again with a larger cache",
                self.block_bytes
            ))),
        }
    }

    /// The configured size in bytes, as last set.
    pub fn wanted_bytes(&self) -> u64 {
        let sizing = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
        u64::from(sizing.capacity_blocks) * self.block_bytes
    }

    /// The size in bytes that is left of it for blocks.
    pub fn capacity_bytes(&self) -> u64 {
        let sizing = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
        u64::from(sizing.left()) * self.block_bytes
    }

    /// Reduces the cache by `bytes` that are used beside it for the data it caches, so that both
    /// together stay within the configured size. At least half of the cache stays. As with
    /// [`resize`](Self::resize), frames are returned to the kernel.
    pub fn set_aside(self: &Arc<Self>, bytes: u64) {
        let blocks = bytes.div_ceil(self.block_bytes);
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        self.fit(|sizing| sizing.aside_blocks = blocks);
    }

    /// Makes room for what the keeper of the blocks needs beside them ([`Keeper::aside_bytes`](super::Keeper::aside_bytes)).
    pub fn fit_keeper(self: &Arc<Self>) {
        self.fit(|_| {});
    }

    /// Applies a change of the size, one at a time: the last one takes effect.
    fn fit(self: &Arc<Self>, change: impl FnOnce(&mut Sizing)) {
        let mut sizing = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
        self.fit_to(&mut sizing, change);
    }

    fn fit_to(self: &Arc<Self>, sizing: &mut Sizing, change: impl FnOnce(&mut Sizing)) {
        let before = sizing.left();
        change(sizing);
        sizing.keeper_blocks = self.lock().keeper_blocks();
        let left = sizing.left();
        if left == before {
            return;
        }
        let step = |state: &mut State, effects: &mut Effects| {
            state.resize_step(left, state.steps.most() as u32, effects)
        };
        while !self.act(step) {
            self.state.give_way();
        }
    }
}

impl State {
    /// Slots that the keeper needs for something else.
    fn keeper_blocks(&self) -> u32 {
        let bytes = self.elsewhere.as_ref();
        let bytes = bytes.map_or(0, |elsewhere| elsewhere.keeper.aside_bytes());
        u32::try_from(bytes.div_ceil(self.block_bytes)).unwrap_or(u32::MAX)
    }

    /// Evicts up to `surplus_max` blocks on the way to `capacity_blocks` slots. Returns whether
    /// that size is reached, and all memory that is not used then is returned.
    pub fn resize_step(
        &mut self,
        capacity_blocks: u32,
        surplus_max: u32,
        effects: &mut Effects,
    ) -> bool {
        let bounded = self.level.resident().saturating_sub(surplus_max);
        let capacity = capacity_blocks.max(bounded);
        // Where memory alone is returned, the policy learns of no size: several forget what they know with each.
        let mut victims = Vec::new();
        if capacity != self.level.capacity() {
            if let Some(log) = &mut self.log {
                log.note_slots(capacity);
            }
            victims = self.level.resize(capacity);
        }
        let left = surplus_max.saturating_sub(victims.len() as u32);
        for victim in victims {
            self.steps.count(1);
            self.release(victim.slot, victim.block);
            self.note_resident(victim.block, false);
            self.see_off(&victim, effects);
        }
        let is_stripped = self.strip(left);
        if let Some(write_back) = &mut self.write_back {
            write_back.resize(capacity_blocks);
        }
        capacity == capacity_blocks && is_stripped
    }

    /// Returns the memory of up to `most` frames to the kernel that a cache of this size does not use: of blocks that were
    /// evicted or dropped, and of slots that were never used. Returns whether that was all.
    fn strip(&mut self, most: u32) -> bool {
        let slots = self.level.strip(most as usize);
        self.steps.count(slots.len() as u64);
        for &slot in &slots {
            self.arena.release(slot);
        }
        let left = most - slots.len() as u32;
        let unused = self.level.used().max(self.level.capacity());
        self.arena.release_unused(unused, left) && left > 0
    }

    /// Allocates memory for the next frames below `capacity_blocks` that never had any. Returns whether all have some.
    fn allocate_some(&mut self, capacity_blocks: u32) -> Result<bool, SetupError> {
        let most = self.steps.most();
        self.arena.allocate_some(capacity_blocks, most as u32)
    }

    /// Allocates memory for the next frames that a cache of `capacity_blocks` slots uses and this one does not. Returns whether
    /// there may be more of them.
    fn fit_out(&mut self, capacity_blocks: u32) -> Result<bool, SetupError> {
        let most = self.steps.most() as usize;
        let slots = self.level.stripped(capacity_blocks, most);
        self.steps.count(slots.len() as u64);
        self.arena.fill(&slots)?;
        self.level.fit_out(slots.len());
        Ok(!slots.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientId, EngineOptions, OnEviction, Store, StoreDone, StoreOperation};
    use futae_policy::{
        Access, Class, Decision, HashIndex, Kind, Level, PolicySpec, Prng, Shape, build,
        slots_of_line,
    };

    const BLOCK: u64 = 4096;
    const BLOCKS: u64 = 300;
    const SLOTS: u32 = 100;

    /// A store of zeroes.
    struct Zeroes;

    impl Store for Zeroes {
        fn size_bytes(&self) -> u64 {
            BLOCKS * BLOCK
        }

        fn describe(&self) -> String {
            "zeroes".to_owned()
        }

        fn is_read_only(&self) -> bool {
            false
        }

        fn submit(&self, _sequence: u64, operation: StoreOperation, done: StoreDone) {
            let StoreOperation::Read { mut buffer, .. } = operation else {
                panic!("only reads come");
            };
            buffer.as_mut_slice().fill(0);
            done(Ok(buffer));
        }
    }

    /// What a level decides again that repeats a log.
    fn repeated(spec: &PolicySpec, log: &str) -> Vec<String> {
        let shape = Shape {
            slots: SLOTS,
            seed: 1,
        };
        let policy = build(spec, &shape).expect("plain");
        let mut level = Level::new(policy, HashIndex::default(), SLOTS);
        let mut repeat = |line: &str| {
            if let Some(slots) = slots_of_line(line) {
                level.resize(slots);
            }
            let Ok(Decision { block, kind, .. }) = line.parse() else {
                return line.to_owned();
            };
            let access = Access::of(block, kind);
            Decision::new(&access, &level.access(&access)).to_string()
        };
        log.lines().map(&mut repeat).collect()
    }

    /// Requests come between the steps: the policy knows of the new size once, however many steps give memory back.
    #[test]
    fn the_steps_of_a_resize_are_those_of_the_log() {
        let directory = tempfile::tempdir().expect("a directory");
        for &kind in Kind::ALL {
            let spec = PolicySpec::of(kind);
            let log = directory.path().join(kind.name());
            let options = EngineOptions {
                block_bytes: BLOCK,
                capacity_blocks: SLOTS,
                policy: spec.clone(),
                seed: 1,
                on_eviction: OnEviction::None,
                decision_log: Some(log.clone()),
                write_back: None,
            };
            let Ok(engine) = Engine::new(&options) else {
                continue;
            };
            let volume = engine.add_volume("disk", Arc::new(Zeroes), Class::NORMAL);
            let volume = volume.expect("a volume");
            let mut prng = Prng::new(7);
            let mut read = |requests| {
                for _ in 0..requests {
                    // Some blocks are read often.
                    let block = prng.below(BLOCKS) * prng.below(BLOCKS) / BLOCKS;
                    let read = engine.read_blocking(volume, ClientId(0), block * BLOCK, BLOCK);
                    read.expect("a read");
                }
            };
            read(2000);
            for slots in [40, 90, 30, SLOTS] {
                while !engine.act(|state, effects| state.resize_step(slots, 7, effects)) {
                    read(50);
                }
                read(500);
            }
            engine.sync_log();
            let log = std::fs::read_to_string(log).expect("a log");
            let recorded: Vec<&str> = log.lines().collect();
            assert_eq!(repeated(&spec, &log), recorded, "{kind:?}");
        }
    }
}
