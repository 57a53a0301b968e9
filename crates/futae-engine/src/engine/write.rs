//! Write-through: writes are answered after the store has them. Frames are updated after the
//! store's answer, so that a failed write never becomes cached data.

use super::dirty_total::Room;
use super::effects::Effects;
use super::flights::{Content, Span, Write};
use super::frames::Frame;
use super::line::Awaited;
use super::rest::{Deciding, Ending, Rest};
use super::state::State;
use super::ticket::Ticket;
use super::verify::Macs;
use crate::{IoBuf, IoError, IoErrorKind, Operation, Request, StoreOperation};
use futae_policy::{AccessKind, BlockId, Class, Outcome};

impl State {
    /// A write, trim or zeroing of `span`. It waits for reads and writes under way on its blocks.
    pub fn write(&mut self, request: Request, span: Span, effects: &mut Effects) {
        if span.length == 0 {
            return effects.answer(request.done, Ok(IoBuf::new(0)));
        }
        self.note_guest(span.volume);
        let (blocks, claim) = (self.widened(&span), self.claimed(&span));
        let (first, end) = self.block_range(&span);
        let demotion_guard = &mut self.volumes[usize::from(span.volume.0)].demotion_guard;
        demotion_guard.note_write(request.client, request.sequence, first, end - first);
        if let Some(awaited) = self.under_way.before_writing(&blocks) {
            return self.wait(awaited, claim, request);
        }
        if asks_for_stability(&request.operation)
            && let Some(error) = self.take_loss(request.client, span.volume, effects)
        {
            return effects.answer(request.done, Err(error));
        }
        if matches!(request.operation, Operation::Write { fua: false, .. })
            && self.is_marked(span.volume, effects)
        {
            match self.room_for(&span) {
                Room::Enough => return self.keep_write(request, span, effects),
                Room::Later => return self.throttle(request, claim),
                Room::None => {}
            }
        }
        if let Some(key) = self.under_way.run_over(&blocks) {
            return self.wait(Awaited::Run(key), claim, request);
        }
        let Request {
            done, operation, ..
        } = request;
        let content = match &operation {
            Operation::Write { .. } => Content::Data,
            Operation::WriteZeroes { .. } => Content::Zeroes,
            _ => Content::Anything,
        };
        let Some(operation) = store_operation(operation) else {
            return;
        };
        // Registered before any block is placed: a block of this same write that is evicted
        // meanwhile must not be demoted with its old data.
        let write = Write {
            span,
            blocks,
            content,
            has_begun: true,
            done,
            parked: Vec::new(),
        };
        let key = self.under_way.add_write(write);
        let deciding = Deciding {
            key,
            operation,
            next: first,
        };
        self.decide_write(deciding, effects);
    }

    /// Decides on the blocks of a write, as many as this step has room for; after the last step the
    /// write is sent to the store. Until the store has answered, no other request begins in its
    /// range.
    pub fn decide_write(&mut self, mut deciding: Deciding, effects: &mut Effects) {
        let write = &self.under_way.writes[deciding.key];
        let (span, blocks) = (write.span, write.blocks);
        let has_data = write.content == Content::Data;
        let left = if has_data {
            self.place_written(&span, deciding.next, effects)
        } else {
            self.invalidate_some(&blocks, deciding.next)
        };
        if let Some(next) = left {
            deciding.next = next;
            return effects.later(Rest::Write(deciding));
        }
        let bytes = if has_data { span.length } else { 0 };
        self.tally.bytes_written += bytes;
        self.tally.store_writes += 1;
        self.tally.bytes_store_written += bytes;
        self.note_store_write(&blocks);
        let sequence = self.next_sequence();
        effects.start(
            self.store(span.volume),
            sequence,
            deciding.operation,
            Ticket::Write(deciding.key),
        );
    }

    /// Decides on the written blocks. A partially written block is updated if it is resident;
    /// otherwise the write goes around the cache, since there is no whole block to keep. Begins
    /// with block `from`; returns the block to continue with if the step is full.
    fn place_written(&mut self, span: &Span, from: u64, effects: &mut Effects) -> Option<u64> {
        let (_, end) = self.block_range(span);
        self.hear(end - from, effects);
        for index in from..end {
            if self.steps.left() == 0 {
                return Some(index);
            }
            let block = BlockId::new(span.volume, index);
            self.prove(block);
            let of = self.block_span(block);
            let whole = of.overlap(span) == Some(of);
            if !whole && self.level.find(block).is_none() {
                self.steps.count(1);
                self.tally.write_around_blocks += 1;
                self.let_go(block);
                continue;
            }
            if self.elsewhere.is_some() {
                self.offer_elsewhere(block, AccessKind::Write, Class::NORMAL, effects);
                continue;
            }
            if let Outcome::Admitted { slot, .. } = self.offer(block, AccessKind::Write, effects) {
                self.frames.set(slot, Frame::AwaitsWrite);
            }
        }
        None
    }

    /// Drops the blocks of a range from block `from` on, except dirty ones. Returns the block to
    /// continue with if the step is full.
    pub fn invalidate_some(&mut self, blocks: &Span, from: u64) -> Option<u64> {
        let (_, end) = self.block_range(blocks);
        let left = self.steps.left();
        let residents = &self.volumes[usize::from(blocks.volume.0)].residents;
        let found = residents.within(from..end, left);
        self.steps.count(found.len() as u64);
        for &index in &found {
            let block = BlockId::new(blocks.volume, index);
            if !self.is_dirty(block) {
                self.invalidate(block);
            }
        }
        if (found.len() as u64) < left {
            return None;
        }
        Some(found.last().map_or(from, |last| last + 1)).filter(|&next| next < end)
    }

    /// A write has ended: its data is copied into the frames of its blocks. If it failed, its
    /// blocks are dropped, since the content of the store is unknown.
    pub fn finish_write(
        &mut self,
        key: usize,
        result: Result<IoBuf, IoError>,
        macs: Macs,
        effects: &mut Effects,
    ) {
        let write = &self.under_way.writes[key];
        let (span, blocks) = (write.span, write.blocks);
        let has_data = write.content == Content::Data;
        self.note_outcome(&span, result.is_ok());
        self.note_alive(span.volume);
        if !has_data || result.is_err() {
            self.forget_contents(&blocks);
        }
        let range = if result.is_ok() { &span } else { &blocks };
        let next = self.block_range(range).0;
        match &result {
            Ok(_) if has_data => self.raise_size(span.volume, span.end()),
            Ok(_) => {}
            // The request was refused, by a file system whose files cannot be so long.
            Err(error) if error.kind == IoErrorKind::OutOfRange => {}
            Err(_) => self.note_error(span.volume),
        }
        let ending = Ending {
            key,
            result,
            macs,
            next,
        };
        self.end_write(ending, effects);
    }

    /// Updates the blocks of a write that has ended, as many as this step has room for; after the
    /// last step the requests that waited for it continue.
    pub fn end_write(&mut self, mut ending: Ending, effects: &mut Effects) {
        let write = &self.under_way.writes[ending.key];
        let (span, blocks, content) = (write.span, write.blocks, write.content);
        let left = match &ending.result {
            Ok(data) if content == Content::Data => {
                self.update_some(&span, (data, &ending.macs), ending.next, effects)
            }
            Ok(_) => self.settle_cleared(&span, content, ending.next, effects),
            Err(_) => self.invalidate_some(&blocks, ending.next).or_else(|| {
                let is_settled = self.settle_failure(span.volume, effects);
                (!is_settled).then(|| self.block_range(&blocks).1)
            }),
        };
        if let Some(next) = left {
            ending.next = next;
            return effects.later(Rest::Written(ending));
        }
        let write = self.under_way.remove_write(ending.key);
        // Blocks may not be dirty any more: the store has them, or the file has been cut before them.
        self.resume_throttled(effects);
        effects.answer(write.done, ending.result.map(|_| IoBuf::new(0)));
        self.go_on_parked(write.parked, effects);
    }

    /// Informs the demotion guard whether the store's content is known after a write.
    fn note_outcome(&mut self, span: &Span, good: bool) {
        let volume = &self.volumes[usize::from(span.volume.0)];
        if volume.grows {
            return; // No demotion can come for this volume.
        }
        let (bytes, size) = (self.block_bytes, volume.size_bytes);
        let (first, end) = self.block_range(span);
        // Blocks that were written whole; the last one of a volume may be short.
        let whole_first = span.offset.div_ceil(bytes);
        let reaches_end = span.end() == size;
        let whole_end = if reaches_end { end } else { span.end() / bytes };
        let demotion_guard = &mut self.volumes[usize::from(span.volume.0)].demotion_guard;
        if good {
            demotion_guard.note_success(whole_first, whole_end.saturating_sub(whole_first));
        } else {
            demotion_guard.note_failure(first, end - first);
        }
    }

    fn update_some(
        &mut self,
        span: &Span,
        (data, macs): (&IoBuf, &Macs),
        from: u64,
        effects: &mut Effects,
    ) -> Option<u64> {
        let (_, end) = self.block_range(span);
        for index in from..end {
            if self.steps.left() == 0 {
                return Some(index);
            }
            self.steps.count(1);
            let block = BlockId::new(span.volume, index);
            self.update_frame(block, span, data);
            if self.is_dirty(block) {
                self.settle_block(block, span, (Content::Data, Some(data)), effects);
            }
            self.know(block, span, macs);
            self.seal_written(block, span, macs);
        }
        None
    }

    fn update_frame(&mut self, block: BlockId, span: &Span, data: &IoBuf) {
        let Some(slot) = self.level.find(block).filter(|_| self.elsewhere.is_none()) else {
            return;
        };
        let to = self.block_span(block);
        span.copy(data.as_slice(), &to, self.arena.frame_mut(slot));
        if self.frames.get(slot) == Frame::Loading {
            if to.overlap(span) != Some(to) {
                return; // More steps follow.
            }
            self.loads.give_up(block);
        }
        self.frames.set(slot, Frame::Ready);
    }
}

/// Whether the answer asserts that data is on stable storage.
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
        | Operation::Demote(_) => None,
    }
}
