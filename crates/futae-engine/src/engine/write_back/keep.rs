//! Kept writes: their data goes into frames, or beside the cache, and is written to the store
//! later.

use crate::engine::effects::Effects;
use crate::engine::flights::{Content, Span, Write};
use crate::engine::frames::Frame;
use crate::engine::rest::{Keeping, Rest};
use crate::engine::state::State;
use crate::engine::ticket::Ticket;
use crate::{Done, IoBuf, Operation, Request, StoreOperation};
use futae_policy::{AccessKind, BlockId, Class, Outcome};

impl State {
    /// Takes a write into the cache as far as it can be kept; the rest goes to the store. Only
    /// write-backs are under way on its blocks.
    pub fn keep_write(&mut self, request: Request, span: Span, effects: &mut Effects) {
        let Operation::Write { data, .. } = request.operation else {
            return;
        };
        self.tally.bytes_written += span.length;
        let (first, _) = self.block_range(&span);
        let keeping = Keeping {
            span,
            data,
            next: first,
            place: None,
            done: Some(request.done),
            joint: None,
        };
        self.keep_on(keeping, effects);
    }

    /// Continues a kept write, for as many blocks as this step has room for. If blocks are left,
    /// the rest of its range stays locked until the next step.
    pub fn keep_on(&mut self, mut keeping: Keeping, effects: &mut Effects) {
        let (span, now) = (keeping.span, self.world.now());
        let (_, end) = self.block_range(&span);
        let mut rest: Vec<Span> = Vec::new();
        // Between the steps of a write, the volume may have been clean, and its mark removed.
        let is_marked = keeping.place.is_none() || self.is_marked(span.volume, effects);
        self.hear(end - keeping.next, effects);
        while keeping.next < end && self.steps.left() > 0 {
            let block = BlockId::new(span.volume, keeping.next);
            keeping.next += 1;
            let Some(part) = self.block_span(block).overlap(&span) else {
                continue;
            };
            // Between the steps of a write, other writes may have taken the room.
            let has_room = keeping.place.is_none() || self.is_dirty(block) || self.has_room();
            let may_stay = is_marked && has_room;
            let before = self.steps.left();
            let is_kept = may_stay && self.keep_block(block, part, (&span, &keeping.data), effects);
            if self.steps.left() == before {
                self.steps.count(1);
            }
            if is_kept {
                self.mark_dirty(block, now);
                self.hold_elsewhere(block, &span, &keeping.data);
                self.forget_block(block);
                continue;
            }
            match rest.last_mut() {
                Some(last) if last.end() == part.offset => last.length += part.length,
                _ => rest.push(part),
            }
        }
        let parked = keeping
            .place
            .take()
            .map(|key| self.under_way.remove_write(key).parked);
        let mut parked = parked.unwrap_or_default();
        if rest.as_slice() == [span] {
            let done = keeping.end();
            answer_kept(&mut keeping, effects);
            self.send_through(span, keeping.data, done, effects);
            // Others waited if an earlier step had no room for any block.
            return self.go_on_parked(parked, effects);
        }
        for part in rest {
            let mut slice = IoBuf::new(part.length as usize);
            span.copy(keeping.data.as_slice(), &part, slice.as_mut_slice());
            let done = keeping.end();
            self.send_through(part, slice, done, effects);
        }
        if keeping.next < end {
            let offset = (keeping.next * self.block_bytes).max(span.offset);
            let left = Span {
                volume: span.volume,
                offset,
                length: span.end() - offset,
            };
            let blocks = self.widened(&left);
            keeping.place = Some(self.under_way.add_write(Write {
                span: left,
                blocks,
                content: Content::Data,
                has_begun: false,
                done: Box::new(drop),
                parked: std::mem::take(&mut parked),
            }));
            return effects.later(Rest::Keep(keeping));
        }
        answer_kept(&mut keeping, effects);
        self.go_on_parked(parked, effects);
    }

    /// Whether one more block may become dirty.
    fn has_room(&self) -> bool {
        self.write_back
            .as_ref()
            .is_some_and(|known| known.dirty_blocks < known.dirty_max_blocks)
    }

    /// Offers one written block to the level and stores its data. Returns whether the block is
    /// kept.
    fn keep_block(
        &mut self,
        block: BlockId,
        part: Span,
        (span, data): (&Span, &IoBuf),
        effects: &mut Effects,
    ) -> bool {
        self.prove(block);
        let of = self.block_span(block);
        let is_whole = part == of;
        if self.elsewhere.is_some() {
            return self.place_kept(block, is_whole, effects);
        }
        let slot = self.level.find(block);
        if !is_whole && slot.is_none() && self.unframed(block).is_none() {
            self.tally.write_around_blocks += 1;
            return false;
        }
        if !is_whole && slot.is_some_and(|slot| self.frames.get(slot) == Frame::Loading) {
            // The block does not exist yet, so the write covers all of it.
            self.offer(block, AccessKind::Write, effects);
            return false;
        }
        match self.offer_marked(block, AccessKind::Write, Class::DIRTY, effects) {
            Outcome::Hit(slot) | Outcome::Admitted { slot, .. } => {
                if self.frames.get(slot) == Frame::Loading {
                    self.loads.give_up(block);
                }
                span.copy(data.as_slice(), &of, self.arena.frame_mut(slot));
                self.frames.set(slot, Frame::Ready);
                true
            }
            Outcome::Bypassed => match self.dirt_mut(block.volume()).unframed_mut(block.index()) {
                None => false,
                Some(unframed) => {
                    span.copy(data.as_slice(), &of, unframed.as_mut_slice());
                    true
                }
            },
        }
    }

    /// Sends data that is not kept to the store.
    fn send_through(&mut self, span: Span, data: IoBuf, done: Done, effects: &mut Effects) {
        let blocks = self.widened(&span);
        let key = self.under_way.add_write(Write {
            span,
            blocks,
            content: Content::Data,
            has_begun: true,
            done,
            parked: Vec::new(),
        });
        self.note_store_write(&blocks);
        self.tally.store_writes += 1;
        self.tally.bytes_store_written += span.length;
        let sequence = self.next_sequence();
        let operation = StoreOperation::Write {
            offset: span.offset,
            buffer: data,
            fua: false,
        };
        let store = self.store(span.volume);
        effects.start(store, sequence, operation, Ticket::Write(key));
    }
}

fn answer_kept(keeping: &mut Keeping, effects: &mut Effects) {
    if let Some(done) = keeping.kept() {
        effects.answer(done, Ok(IoBuf::new(0)));
    }
}
