//! State recorded periodically and at the end: the stamps of stores at rest, and the order of
//! blocks.

use crate::engine::front::Engine;
use crate::engine::state::State;
use crate::engine::steps::STEP_BLOCKS;
use crate::{Store, StoreStamp};
use futae_policy::VolumeId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the end waits for that.
const TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// How often the order of the blocks is recorded.
const ORDER_INTERVAL: Duration = Duration::from_secs(30);

/// A store that was written to and has no operation under way.
struct AtRest {
    volume: VolumeId,
    store: Arc<dyn Store>,
    writes: u64,
}

impl Engine {
    /// Records the stamps of stores at rest. Returns whether all stores are at rest.
    pub(in crate::engine) fn settle_stores(&self) -> bool {
        let (at_rest, busy) = self.quiet_step(State::stores_at_rest);
        let mut is_all = busy == 0;
        for AtRest {
            volume,
            store,
            writes,
        } in at_rest
        {
            // Without the lock: the call may wait for a disk.
            let stamp = store.stamp();
            is_all &= self.quiet_step(|state| state.note_at_rest(volume, writes, stamp));
        }
        is_all
    }

    /// Records the order of the blocks, so that the next server continues with it.
    pub fn save_memory_order(&self) {
        if self.lock().kept.is_none() {
            return;
        }
        let mut order = 0;
        // The next victim first.
        for blocks in self.standings().rchunks(STEP_BLOCKS as usize) {
            self.quiet_step(|state| {
                for &block in blocks.iter().rev() {
                    order += 1;
                    if let (Some(slot), Some(file)) = (state.level.find(block), state.arena.file())
                    {
                        file.set_order(slot, order);
                    }
                }
            });
            self.state.give_way();
        }
    }

    /// Periodically records the state that the next server needs, if the memory outlives this one.
    pub(in crate::engine) fn tick_memory(&self, now: Instant) {
        let is_due = {
            let mut state = self.lock();
            let Some(kept) = &mut state.kept else { return };
            let noted = *kept.order_noted.get_or_insert(now);
            let is_due = now.saturating_duration_since(noted) >= ORDER_INTERVAL;
            if is_due {
                kept.order_noted = Some(now);
            }
            is_due
        };
        self.settle_stores();
        if is_due {
            self.save_memory_order();
        }
    }

    /// Called at the end, after the last flush: records the state that the next server needs.
    pub fn leave_memory(&self) {
        if self.lock().kept.is_none() {
            return;
        }
        let begun = Instant::now();
        while !self.settle_stores() && begun.elapsed() < TIMEOUT {
            std::thread::sleep(PAUSE);
        }
        self.save_memory_order();
    }
}

impl State {
    /// The stores that were written to and are at rest, and the number of those that are not.
    fn stores_at_rest(&mut self) -> (Vec<AtRest>, usize) {
        let (mut at_rest, mut busy) = (Vec::new(), 0);
        let now_ns = self.world.wall_ns();
        for at in 0..self.volumes.len() {
            let id = VolumeId(at as u16);
            let volume = &self.volumes[at];
            let (Some(of), Some(file)) = (volume.kept, self.arena.file()) else {
                continue;
            };
            if !of.is_written {
                continue;
            }
            file.rows().alive(of.row, now_ns);
            if self.writes_under_way(id) {
                busy += 1;
                continue;
            }
            at_rest.push(AtRest {
                volume: id,
                store: Arc::clone(&volume.store),
                writes: of.writes,
            });
        }
        (at_rest, busy)
    }

    /// Records a store's stamp after this many writes. Returns whether that was possible.
    fn note_at_rest(&mut self, id: VolumeId, writes: u64, stamp: Option<StoreStamp>) -> bool {
        let now_ns = self.world.wall_ns();
        let Some(volume) = self.volumes.get_mut(usize::from(id.0)) else {
            return true;
        };
        let (Some(of), Some(file)) = (&mut volume.kept, self.arena.file()) else {
            return true;
        };
        let is_settled = stamp.is_none_or(|stamp| stamp.is_settled(now_ns));
        if of.writes != writes || !is_settled {
            return false;
        }
        of.is_written = false;
        file.rows().settled(of.row, stamp);
        true
    }

    /// Whether an operation that changes the store of a volume is under way.
    pub(in crate::engine) fn writes_under_way(&self, volume: VolumeId) -> bool {
        let all = crate::engine::flights::Span::all_of(volume);
        self.under_way.write_over(&all).is_some() || self.under_way.run_over(&all).is_some()
    }
}
