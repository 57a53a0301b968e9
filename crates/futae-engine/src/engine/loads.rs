//! Background loads: of resident blocks whose data no request has read, and of blocks too large to
//! be fetched while a request waits.
//!
//! Small blocks are fetched whole, a few at a time. Blocks of more than [`PIECE_BYTES`] come in
//! pieces, one piece of one block at a time, so that other requests keep their share of memory and
//! of the store. Until the last piece has arrived, reads of the block go to the store.

use super::flights::Span;
use futae_policy::{BlockId, Slot};
use std::collections::VecDeque;

/// Larger blocks are loaded in pieces of this many bytes. Also the total size of the smaller blocks
/// that are loaded at a time in the background, which is at least one block.
pub const PIECE_BYTES: u64 = 1 << 20;
/// Requests to large blocks are kept apart by pages instead of whole blocks, as in a cache of the
/// smallest blocks.
pub const PAGE_BYTES: u64 = crate::PAGE_BYTES as u64;

/// The blocks to load, in order.
#[derive(Default)]
pub struct Loads {
    /// Blocks and their slots. Blocks that are no longer wanted are skipped.
    queue: VecDeque<(BlockId, Slot)>,
    /// The block that is being loaded in pieces.
    current: Option<Load>,
    /// Number of small blocks that are being loaded.
    flights: u64,
    /// Loading is on hold: more blocks are being placed, and the last one placed is loaded first.
    is_held: bool,
}

/// A block that is being loaded in pieces.
struct Load {
    block: BlockId,
    slot: Slot,
    loaded_bytes: u64,
    /// Whether a piece is under way.
    in_flight: bool,
    /// The block has lost its slot, or the loaded pieces may be stale.
    given_up: bool,
}

/// What to do with a piece that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// The block is no longer wanted.
    Unwanted,
    /// The read failed: the block is dropped.
    Failed(BlockId),
    /// It belongs in this slot, and more pieces follow.
    Piece(BlockId, Slot),
    /// It belongs in this slot, and was the last one.
    Whole(BlockId, Slot),
}

impl Loads {
    /// Whether no load waits and none is under way.
    pub fn are_none(&self) -> bool {
        self.queue.is_empty() && self.current.is_none() && self.flights == 0
    }

    /// Whether `most` small blocks are under way or wait, or a large one is under way.
    pub fn are_enough(&self, most: u64) -> bool {
        self.queue.len() as u64 + self.flights >= most || self.current.is_some()
    }

    /// Whether one more small block may be fetched, if at most `most` are to be under way.
    pub fn may_fetch(&self, most: u64) -> bool {
        self.flights < most
    }

    /// Starts or ends a hold. During a hold nothing is loaded, and added blocks go to the front of
    /// the queue.
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Whether loading is on hold.
    pub fn are_held(&self) -> bool {
        self.is_held
    }

    /// Adds a block to load. If more than `most` wait, those no longer wanted are removed.
    pub fn add(
        &mut self,
        (block, slot): (BlockId, Slot),
        most: usize,
        is_wanted: impl Fn(BlockId, Slot) -> bool,
    ) {
        if self.queue.len() > most {
            self.queue.retain(|&(block, slot)| is_wanted(block, slot));
        }
        if self.is_held {
            self.queue.push_front((block, slot));
        } else {
            self.queue.push_back((block, slot));
        }
    }

    /// The block to load next.
    pub fn next(&mut self, is_wanted: impl Fn(BlockId, Slot) -> bool) -> Option<(BlockId, Slot)> {
        std::iter::from_fn(|| self.queue.pop_front()).find(|&(block, slot)| is_wanted(block, slot))
    }

    /// The next block to load has to wait.
    pub fn put_back(&mut self, block: BlockId, slot: Slot) {
        self.queue.push_front((block, slot));
    }

    /// A small block is being fetched in the background.
    pub fn depart_whole(&mut self) {
        self.flights += 1;
    }

    /// A small block has arrived, or its read has failed.
    pub fn land_whole(&mut self) {
        self.flights -= 1;
    }

    /// The bytes of a large block to read next, if no piece is under way. `span_of` returns the
    /// bytes of a block.
    pub fn next_piece(
        &mut self,
        is_wanted: impl Fn(BlockId, Slot) -> bool,
        span_of: impl Fn(BlockId) -> Span,
    ) -> Option<Span> {
        let is_over = |load: &Load| load.given_up && !load.in_flight;
        if self.current.as_ref().is_none_or(is_over) {
            let (block, slot) = self.next(is_wanted).or_else(|| {
                self.current = None;
                None
            })?;
            self.current = Some(Load {
                block,
                slot,
                loaded_bytes: 0,
                in_flight: false,
                given_up: false,
            });
        }
        let load = self.current.as_ref().filter(|load| !load.in_flight)?;
        let of = span_of(load.block);
        Some(Span {
            volume: of.volume,
            offset: of.offset + load.loaded_bytes,
            length: PIECE_BYTES.min(of.length - load.loaded_bytes),
        })
    }

    /// The piece is being read.
    pub fn depart_piece(&mut self) {
        if let Some(load) = &mut self.current {
            load.in_flight = true;
        }
    }

    /// A piece of this many bytes, of a block of `whole_bytes`, has arrived; `is_ok` is false if
    /// its read failed.
    pub fn land_piece(&mut self, is_ok: bool, bytes: u64, whole_bytes: u64) -> Landing {
        let Some(mut load) = self.current.take() else {
            return Landing::Unwanted;
        };
        if load.given_up {
            return Landing::Unwanted;
        }
        let (block, slot) = (load.block, load.slot);
        if !is_ok {
            return Landing::Failed(block);
        }
        load.loaded_bytes += bytes;
        load.in_flight = false;
        if load.loaded_bytes == whole_bytes {
            return Landing::Whole(block, slot);
        }
        self.current = Some(load);
        Landing::Piece(block, slot)
    }

    /// Discards the loaded pieces of a block: it has left its slot, or its data has come otherwise.
    pub fn give_up(&mut self, block: BlockId) {
        if let Some(load) = self.current.as_mut().filter(|load| load.block == block) {
            load.given_up = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_policy::VolumeId;

    const WHOLE: u64 = 2 * PIECE_BYTES + 100;

    fn span_of(block: BlockId) -> Span {
        Span {
            volume: VolumeId(0),
            offset: block.index() * WHOLE,
            length: WHOLE,
        }
    }

    fn queued(indexes: &[u64]) -> Loads {
        let mut loads = Loads::default();
        for &index in indexes {
            let slot = Slot(index as u32);
            loads.add((BlockId::on_first(index), slot), 100, |_, _| true);
        }
        loads
    }

    fn piece(loads: &mut Loads) -> Option<(u64, u64)> {
        let span = loads.next_piece(|_, _| true, span_of)?;
        loads.depart_piece();
        Some((span.offset, span.length))
    }

    #[test]
    fn a_large_block_comes_in_pieces_one_at_a_time() {
        let mut loads = queued(&[1, 2]);
        let (one, slot) = (BlockId::on_first(1), Slot(1));
        assert_eq!(piece(&mut loads), Some((WHOLE, PIECE_BYTES)));
        assert_eq!(piece(&mut loads), None, "one is under way");
        let landing = loads.land_piece(true, PIECE_BYTES, WHOLE);
        assert_eq!(landing, Landing::Piece(one, slot));
        assert_eq!(piece(&mut loads), Some((WHOLE + PIECE_BYTES, PIECE_BYTES)));
        loads.land_piece(true, PIECE_BYTES, WHOLE);
        assert_eq!(piece(&mut loads), Some((WHOLE + 2 * PIECE_BYTES, 100)));
        assert_eq!(
            loads.land_piece(true, 100, WHOLE),
            Landing::Whole(one, slot)
        );
        assert_eq!(
            piece(&mut loads),
            Some((2 * WHOLE, PIECE_BYTES)),
            "the next"
        );
        let failed = loads.land_piece(false, PIECE_BYTES, WHOLE);
        assert_eq!(failed, Landing::Failed(BlockId::on_first(2)));
        assert!(loads.are_none());
    }

    #[test]
    fn what_is_given_up_while_it_is_under_way_counts_for_nothing() {
        let mut loads = queued(&[1, 2, 3]);
        assert!(piece(&mut loads).is_some());
        loads.give_up(BlockId::on_first(1));
        assert_eq!(piece(&mut loads), None, "its piece is still under way");
        let landing = loads.land_piece(true, PIECE_BYTES, WHOLE);
        assert_eq!(landing, Landing::Unwanted);
        let next = loads.next_piece(|block, _| block.index() == 3, span_of);
        assert_eq!(
            next.map(|span| span.offset),
            Some(3 * WHOLE),
            "2 is passed over"
        );
        loads.give_up(BlockId::on_first(3));
        assert_eq!(loads.next_piece(|_, _| true, span_of), None);
        assert!(loads.are_none());
    }

    #[test]
    fn what_is_held_back_is_loaded_last_in_first_out() {
        let mut loads = Loads::default();
        loads.hold(true);
        for index in 0..3 {
            loads.add((BlockId::on_first(index), Slot(0)), 1, |block, _| {
                block.index() != 1
            });
        }
        assert!(loads.are_held() && loads.are_enough(2) && !loads.are_enough(3));
        let next = loads.next(|_, _| true).map(|(block, _)| block.index());
        assert_eq!(next, Some(2), "1 is not wanted any more");
        assert!(loads.may_fetch(1));
        loads.depart_whole();
        assert!(!loads.may_fetch(1));
        loads.land_whole();
        assert!(loads.may_fetch(1));
    }
}
