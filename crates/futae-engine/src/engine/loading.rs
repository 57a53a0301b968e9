//! Background loading, as [`Loads`](super::loads::Loads) decides it.

use super::effects::Effects;
use super::flights::{Background, Flight, Span};
use super::frames::Frame;
use super::loads::{Landing, PIECE_BYTES};
use super::state::State;
use crate::{IoBuf, IoError};
use futae_policy::{AccessKind, BlockId, Outcome, Slot};
use tracing::info;

impl State {
    /// Logs the policy's own decisions.
    pub fn log_remarks(&mut self) {
        let remarks = self.level.remarks();
        for remark in remarks.iter().skip(self.remarks_logged) {
            info!("{remark}");
        }
        self.remarks_logged = remarks.len();
    }

    /// Continues loading. Once nothing is left to load, asks the policy which blocks it wants. The
    /// decisions are made at once, as in the simulator; the data follow.
    pub fn preload(&mut self, effects: &mut Effects) {
        while !self.loads.are_held() && !self.is_unwatched() {
            if !self.loads.are_none() {
                self.load_on(effects);
            }
            if self.loads.are_enough(self.loads_max()) {
                return;
            }
            let Some(block) = self.level.review() else {
                return;
            };
            if self.is_inside(block) {
                self.place_unasked(block, effects);
            }
        }
    }

    /// The largest number of small blocks that are loaded at a time.
    fn loads_max(&self) -> u64 {
        (PIECE_BYTES / self.block_bytes).max(1)
    }

    /// Whether a block lies within an existing volume.
    pub fn is_inside(&self, block: BlockId) -> bool {
        self.volumes
            .get(usize::from(block.volume().0))
            .is_some_and(|volume| block.index() < volume.size_bytes.div_ceil(self.block_bytes))
    }

    /// Offers to the level a block that no client requested, and loads it if it is placed. Of a volume whose guest comes from another
    /// server it would be out of date by then.
    pub fn place_unasked(&mut self, block: BlockId, effects: &mut Effects) {
        if self.awaits_guest(block.volume()) {
            return self.steps.count(1);
        }
        if let Outcome::Admitted { slot, .. } = self.offer(block, AccessKind::Preload, effects) {
            self.tally.preload_reads += 1;
            self.load_later(block, slot);
        }
    }

    /// A block got a slot; its data is to be loaded in the background.
    pub fn load_later(&mut self, block: BlockId, slot: Slot) {
        self.frames.set(slot, Frame::Loading);
        if !self.may_put(block) {
            return;
        }
        let most = 2 * self.level.capacity() as usize;
        let (level, frames) = (&self.level, &self.frames);
        let is_loading =
            |block, slot| level.find(block) == Some(slot) && frames.get(slot) == Frame::Loading;
        self.loads.add((block, slot), most, is_loading);
    }

    fn load_on(&mut self, effects: &mut Effects) {
        if self.in_pieces() {
            self.load_piece(effects);
        } else {
            self.load_whole(effects);
        }
    }

    fn load_whole(&mut self, effects: &mut Effects) {
        let mut started = Vec::new();
        while self.loads.may_fetch(self.loads_max()) && self.has_room_to_put() {
            let (level, frames) = (&self.level, &self.frames);
            let is_loading =
                |block, slot| level.find(block) == Some(slot) && frames.get(slot) == Frame::Loading;
            let Some((block, slot)) = self.loads.next(is_loading) else {
                break;
            };
            let span = self.block_span(block);
            let is_outgrown = || self.outgrown_flight_of(block).is_some();
            let is_taken =
                self.under_way.line.over(&span) || self.under_way.write_over(&span).is_some();
            if is_taken || is_outgrown() {
                // When the write, or the read of less than the block, ends, or the request in the line begins, loading continues.
                self.loads.put_back(block, slot);
                break;
            }
            let key = if let Some(&flight) = self.under_way.flight_of.get(&block) {
                flight
            } else {
                let flight = Flight {
                    span: Some(span),
                    whole: true,
                    background: Background::Whole,
                    ..Flight::default()
                };
                let key = self.under_way.flights.insert(flight);
                self.under_way.flight_of.insert(block, key);
                self.loads.depart_whole();
                started.push(key);
                key
            };
            self.frames.set(slot, Frame::awaits(key));
            self.under_way.flights[key].targets.push((block, slot));
        }
        self.launch(&started, effects);
    }

    fn load_piece(&mut self, effects: &mut Effects) {
        let (level, frames) = (&self.level, &self.frames);
        let is_loading =
            |block, slot| level.find(block) == Some(slot) && frames.get(slot) == Frame::Loading;
        let (volumes, block_bytes) = (&self.volumes, self.block_bytes);
        let span_of = |block: BlockId| {
            let size = volumes[usize::from(block.volume().0)].size_bytes;
            Span::of_block(block, block_bytes, size)
        };
        let Some(piece) = self.loads.next_piece(is_loading, span_of) else {
            return;
        };
        if self.under_way.line.over(&piece) || self.under_way.write_over(&piece).is_some() {
            return; // When the write ends, or the request in the line begins, loading continues.
        }
        self.loads.depart_piece();
        let key = self.under_way.flights.insert(Flight {
            span: Some(piece),
            background: Background::Piece,
            ..Flight::default()
        });
        self.launch(&[key], effects);
    }

    /// A piece of the current block has arrived, or its read has failed.
    pub fn land_piece(&mut self, span: Span, generation: u64, result: &Result<IoBuf, IoError>) {
        let of = self.block_span(BlockId::new(span.volume, span.offset / self.block_bytes));
        let landing = self
            .loads
            .land_piece(result.is_ok(), span.length, of.length);
        let (block, slot) = match landing {
            Landing::Unwanted => return,
            // No request waits for it: the next request for the block gets the error.
            Landing::Failed(block) => return self.invalidate(block),
            Landing::Piece(block, slot) | Landing::Whole(block, slot) => (block, slot),
        };
        if let Ok(data) = result {
            span.copy(data.as_slice(), &of, self.arena.frame_mut(slot));
        }
        self.generations.landed(slot, generation);
        if landing == Landing::Whole(block, slot) {
            self.frames.set(slot, Frame::Ready);
            if let Some(log) = &mut self.log {
                log.note_loaded(block);
            }
        }
    }

    /// Number of blocks that have a slot and whose data is not complete yet.
    pub fn loading_blocks(&self) -> u64 {
        let whole = |flight: &&Flight| flight.background == Background::Whole;
        let flights = self.under_way.flights.iter().map(|(_, flight)| flight);
        let under_way: usize = flights
            .filter(whole)
            .map(|flight| flight.targets.len())
            .sum();
        self.frames.loading() + under_way as u64
    }
}
