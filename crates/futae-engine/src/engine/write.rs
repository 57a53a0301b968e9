//! Writes that go through to the store, and are answered after the store has them; frames are
//! updated when the store has answered, so that a failed write never becomes cached data.

use super::effects::{Effects, Ticket};
use super::flights::{Content, Span, Write};
use super::state::{Frame, State};
use super::write_back::Room;
use crate::{IoBuf, IoError, Operation, Request, StoreOperation};
use futae_policy::{AccessKind, BlockId, Outcome};

impl State {
    /// A write, trim or zeroing of `span`. It waits for reads and writes under way on its blocks.
    pub fn write(&mut self, request: Request, span: Span, effects: &mut Effects) {
        if span.length == 0 {
            return effects.answer(request.done, Ok(IoBuf::new(0)));
        }
        let blocks = self.widened(&span);
        let (first, end) = self.block_range(&span);
        let belief = &mut self.volumes[usize::from(span.volume.0)].belief;
        belief.note_write(request.client, request.sequence, first, end - first);
        if let Some(key) = self.write_over(&blocks) {
            return self.writes[key].parked.push(request);
        }
        if let Some(key) = self.flight_over(&blocks) {
            return self.flights[key].parked.push(request);
        }
        if asks_for_stability(&request.operation)
            && let Some(error) = self.take_loss(span.volume, effects)
        {
            return effects.answer(request.done, Err(error));
        }
        if matches!(request.operation, Operation::Write { fua: false, .. })
            && self.is_marked(span.volume, effects)
        {
            match self.room_for(&span) {
                Room::Enough => return self.keep_write(request, span, effects),
                Room::Later => return self.throttle(request),
                Room::None => {}
            }
        }
        if let Some(key) = self.run_over(&blocks) {
            return self.runs[key].parked.push(request);
        }
        let Request {
            done, operation, ..
        } = request;
        let content = match &operation {
            Operation::Write { .. } => Content::Data,
            Operation::WriteZeroes { .. } => Content::Zeroes,
            _ => Content::Anything,
        };
        let has_data = content == Content::Data;
        let Some(operation) = store_operation(operation) else {
            return;
        };
        // Known as under way before any block is placed: a block of this very write that is
        // evicted meanwhile must not be handed down with its old data.
        let write = Write {
            span,
            blocks,
            content,
            grown_from: None,
            has_begun: true,
            done,
            parked: Vec::new(),
        };
        let key = self.writes.insert(write);
        if has_data {
            self.place_written(&span, effects);
            self.tally.bytes_written += span.length;
        } else {
            self.invalidate_range(&blocks);
        }
        self.tally.store_writes += 1;
        self.tally.bytes_store_written += if has_data { span.length } else { 0 };
        let sequence = self.next_sequence();
        effects.start(
            self.store(span.volume),
            sequence,
            operation,
            Ticket::Write(key),
        );
    }

    /// Decides on the written blocks. A block that is written in part is updated if it is
    /// resident; otherwise the write goes around the cache, since there is no whole block to keep.
    pub fn place_written(&mut self, span: &Span, effects: &mut Effects) {
        let (first, end) = self.block_range(span);
        for index in first..end {
            let block = BlockId::new(span.volume, index);
            let of = self.block_span(block);
            let whole = of.overlap(span) == Some(of);
            if !whole && self.level.find(block).is_none() {
                self.tally.write_around_blocks += 1;
                continue;
            }
            if let Outcome::Admitted { slot, .. } = self.offer(block, AccessKind::Write, effects) {
                self.frames[slot.i()] = Frame::AwaitsWrite;
            }
        }
    }

    /// Drops the blocks of a range, but for those that have data which the store does not have.
    pub fn invalidate_range(&mut self, blocks: &Span) {
        let (first, end) = self.block_range(blocks);
        if end - first <= u64::from(self.level.resident()) {
            for index in first..end {
                let block = BlockId::new(blocks.volume, index);
                if !self.is_dirty(block) {
                    self.invalidate(block);
                }
            }
            return;
        }
        let inside = |block: &BlockId| {
            block.volume() == blocks.volume && (first..end).contains(&block.index())
        };
        for block in self.level.order().into_iter().filter(inside) {
            if !self.is_dirty(block) {
                self.invalidate(block);
            }
        }
    }

    /// A write is over: its data goes into the frames of its blocks, or, if it failed, its blocks
    /// are forgotten, since nobody knows what the store holds.
    pub fn finish_write(
        &mut self,
        key: usize,
        result: Result<IoBuf, IoError>,
        effects: &mut Effects,
    ) {
        let write = self.writes.remove(key);
        self.note_outcome(&write, result.is_ok());
        match &result {
            Ok(data) if write.content == Content::Data => {
                self.settle_growth(&write);
                self.update_frames(&write.span, data);
                self.settle_through(&write, Some(data), effects);
            }
            Ok(_) => self.settle_through(&write, None, effects),
            Err(_) => {
                self.note_error(write.span.volume);
                self.invalidate_range(&write.blocks);
                self.settle_failure(write.span.volume, effects);
            }
        }
        effects.answer(write.done, result.map(|_| IoBuf::new(0)));
        for request in write.parked {
            self.begin(request, effects);
        }
    }

    /// Tells the judge of demotions whether the store's content is known after a write.
    fn note_outcome(&mut self, write: &Write, good: bool) {
        if self.volumes[usize::from(write.span.volume.0)].grows {
            return; // Nothing is handed down to it.
        }
        let bytes = self.block_bytes;
        let (first, end) = self.block_range(&write.span);
        let size = self.volumes[usize::from(write.span.volume.0)].size_bytes;
        // Blocks that were written whole; the last one of a volume may be short.
        let whole_first = write.span.offset.div_ceil(bytes);
        let reaches_end = write.span.end() == size;
        let whole_end = if reaches_end {
            end
        } else {
            write.span.end() / bytes
        };
        let belief = &mut self.volumes[usize::from(write.span.volume.0)].belief;
        if good {
            belief.note_success(whole_first, whole_end.saturating_sub(whole_first));
        } else {
            belief.note_failure(first, end - first);
        }
    }

    fn update_frames(&mut self, span: &Span, data: &IoBuf) {
        let (first, end) = self.block_range(span);
        for index in first..end {
            let block = BlockId::new(span.volume, index);
            if let Some(slot) = self.level.find(block) {
                let to = self.block_span(block);
                span.copy(data.as_slice(), &to, self.arena.frame_mut(slot));
                let is_whole = to.overlap(span) == Some(to);
                if self.frames[slot.i()] == Frame::Loading {
                    if !is_whole {
                        continue; // The rest is still to come.
                    }
                    self.loads.give_up(block);
                }
                self.frames[slot.i()] = Frame::Ready;
            }
        }
    }
}

/// Whether the answer says that data is on stable storage.
fn asks_for_stability(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Write { fua: true, .. } | Operation::WriteZeroes { fua: true, .. }
    )
}

fn store_operation(operation: Operation) -> Option<StoreOperation> {
    match operation {
        Operation::Write { offset, data, fua } => Some(StoreOperation::Write {
            offset,
            buffer: data,
            fua,
        }),
        Operation::Trim { offset, length } => Some(StoreOperation::Trim { offset, length }),
        Operation::WriteZeroes {
            offset,
            length,
            fua,
            no_hole,
        } => Some(StoreOperation::WriteZeroes {
            offset,
            length,
            fua,
            no_hole,
        }),
        Operation::Read { .. }
        | Operation::ReadOn { .. }
        | Operation::Flush
        | Operation::Settle
        | Operation::Append { .. }
        | Operation::Change(_)
        | Operation::Notice { .. }
        | Operation::Demote { .. } => None,
    }
}
