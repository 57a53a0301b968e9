//! Write-backs: the choice of the next blocks, and the handling of the result.

use crate::engine::dirt::Cleaned;
use crate::engine::effects::Effects;
use crate::engine::flights::{Run, Span};
use crate::engine::rest::Rest;
use crate::engine::state::State;
use crate::engine::ticket::Ticket;
use crate::engine::verify::Macs;
use crate::{IoBuf, IoError, OnEviction, StoreOperation};
use futae_policy::{BlockId, Class, VolumeId};
use std::ops::Range;

/// The largest number of bytes written back in one operation; at least one block.
const RUN_BYTES_MAX: u64 = 512 << 10;
/// Limits on the write-backs under way to one store: their number and bytes.
const RUNS_MAX: u32 = 32;
const CARRIED_BYTES_MAX: u64 = 8 << 20;

impl State {
    /// Starts the write-backs that are due now.
    pub fn write_back_on(&mut self, effects: &mut Effects) {
        let Some(write_back) = &self.write_back else {
            return;
        };
        if write_back.dirty_blocks == 0 {
            return;
        }
        let low = write_back.low();
        let blocks_max = (RUN_BYTES_MAX / self.block_bytes).max(1);
        let mut from = 0;
        while let Some(busy) = self.next_busy(from) {
            from = busy + 1;
            let (volume, at) = (VolumeId(busy), usize::from(busy));
            let dirt = &self.volumes[at].dirt;
            if dirt.len() == 0 && dirt.throttled.is_empty() {
                self.is_idle(volume);
                continue;
            }
            if dirt.is_behind() {
                let left = self.steps.left();
                let looked = self.volumes[at].dirt.catch_up(left);
                self.steps.count(looked);
                if self.volumes[at].dirt.is_behind() {
                    return effects.later(Rest::Anything);
                }
            }
            loop {
                let dirt = &self.volumes[at].dirt;
                let is_busy = dirt.runs >= RUNS_MAX || dirt.bytes_carried >= CARRIED_BYTES_MAX;
                if is_busy || dirt.len() == 0 {
                    break;
                }
                // Blocks that are written back are copied.
                if !self.steps.has_room_for(blocks_max) {
                    return effects.later(Rest::Anything);
                }
                let run_max = blocks_max.min(self.steps.left());
                let dirty = self
                    .write_back
                    .as_ref()
                    .map_or(0, |known| known.dirty_blocks);
                let press = dirty - dirt.carried().min(dirty) > low || !dirt.throttled.is_empty();
                let under_way = &self.under_way;
                let bytes = self.block_bytes;
                let is_free = |index: u64| {
                    let span = Span {
                        volume,
                        offset: index * bytes,
                        length: bytes,
                    };
                    let over = under_way.write_over(&span);
                    over.is_none_or(|key| !under_way.writes[key].has_begun)
                };
                let dirt = &mut self.volumes[at].dirt;
                let Some(run) = dirt.next_run(press, run_max, is_free) else {
                    break;
                };
                self.write_run(volume, run, effects);
            }
        }
    }

    /// A volume has no pending work any more.
    fn is_idle(&mut self, volume: VolumeId) {
        if let Some(write_back) = &mut self.write_back {
            write_back.busy.remove(&volume.0);
        }
    }

    fn write_run(&mut self, volume: VolumeId, run: Range<u64>, effects: &mut Effects) {
        let block = |index| BlockId::new(volume, index);
        let mut span = self.block_span(block(run.start));
        span.length = self.block_span(block(run.end - 1)).end() - span.offset;
        let mut buffer = IoBuf::new(span.length as usize);
        for index in run.clone() {
            let of = self.block_span(block(index));
            let data = match (self.unframed(block(index)), self.level.find(block(index))) {
                (Some(unframed), _) => unframed.as_slice(),
                (None, Some(slot)) => self.arena.frame(slot),
                (None, None) => continue, // Every dirty block is in one of the two sets.
            };
            of.copy(data, &span, buffer.as_mut_slice());
            self.dirt_mut(volume).carry(index);
        }
        self.steps.count(run.end - run.start);
        let dirt = self.dirt_mut(volume);
        dirt.runs += 1;
        dirt.bytes_carried += span.length;
        self.account.take(span.length);
        self.tally.write_backs += 1;
        self.tally.write_back_blocks += run.end - run.start;
        self.tally.store_writes += 1;
        self.tally.bytes_store_written += span.length;
        let key = self.under_way.add_run(Run {
            volume,
            first: run.start,
            end: run.end,
            span,
            parked: Vec::new(),
        });
        self.note_store_write(&span);
        let sequence = self.next_sequence();
        let operation = StoreOperation::Write {
            offset: span.offset,
            buffer,
            fua: false,
        };
        effects.start(self.store(volume), sequence, operation, Ticket::Run(key));
    }

    /// A write-back has ended. On success its blocks are clean unless they were written meanwhile.
    /// On failure they are as dirty as before.
    pub fn finish_run(
        &mut self,
        key: usize,
        result: Result<IoBuf, IoError>,
        macs: &Macs,
        effects: &mut Effects,
    ) {
        let run = self.under_way.remove_run(key);
        self.note_alive(run.volume);
        let dirt = self.dirt_mut(run.volume);
        dirt.runs -= 1;
        dirt.bytes_carried -= run.span.length;
        self.account.give(run.span.length);
        let error = result.err();
        match &error {
            None => {
                for index in run.first..run.end {
                    if let Some((change, cleaned)) = self.dirt_mut(run.volume).saved(index) {
                        self.note_change(run.volume, change, None, effects);
                        if let Some(cleaned) = cleaned {
                            let block = BlockId::new(run.volume, index);
                            self.clean(block, cleaned, effects);
                            self.know(block, &run.span, macs);
                            self.seal_written(block, &run.span, macs);
                        }
                    }
                }
            }
            Some(error) => self.keep_dirty(&run, error, effects),
        }
        self.resume_changes(&run, error.as_ref(), effects);
        self.go_on_parked(run.parked, effects);
        self.resume_throttled(effects);
    }

    fn keep_dirty(&mut self, run: &Run, error: &IoError, effects: &mut Effects) {
        self.note_error(run.volume);
        self.tally.write_back_errors += 1;
        let now = self.world.now();
        let mut is_told = false;
        for index in run.first..run.end {
            if let Some(change) = self.dirt_mut(run.volume).fail(index, now) {
                is_told |= self.note_change(run.volume, change, Some(error), effects);
            }
        }
        if !is_told {
            let dirt = self.dirt_mut(run.volume);
            dirt.error.get_or_insert_with(|| error.clone());
        }
    }

    /// A block is clean: the policy is informed, or, if the block was evicted, the lower level.
    pub fn clean(&mut self, block: BlockId, cleaned: Cleaned, effects: &mut Effects) {
        if let Some(write_back) = &mut self.write_back {
            write_back.dirty_blocks -= 1;
        }
        let demotion_guard = &mut self.volumes[usize::from(block.volume().0)].demotion_guard;
        demotion_guard.note_success(block.index(), 1);
        if let Some(slot) = self.level.find(block) {
            let class = self.level.class_in(slot).without(Class::DIRTY);
            self.level.reclass(block, class);
        } else if let Some(generation) = cleaned.evicted_under {
            let span = self.block_span(block);
            let data = cleaned
                .unframed
                .filter(|_| self.on_eviction == OnEviction::Demote);
            self.send_down(span, data.map(|data| (data, generation)), effects);
        }
    }
}
