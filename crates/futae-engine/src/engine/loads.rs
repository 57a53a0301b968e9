//! Loading in the background: blocks that are resident and whose data nobody has asked for, or
//! that are too large to be fetched while somebody waits.
//!
//! Small blocks are fetched whole, a few at a time. Blocks of more than [`PIECE_BYTES`] come in
//! pieces, one piece of one block at a time, so that neither memory nor the store is taken from
//! the requests that go on meanwhile; until the last piece is there, reads of the block go to the
//! store.

use super::effects::Effects;
use super::flights::{Background, Flight, Span};
use super::frames::Frame;
use super::state::State;
use crate::{IoBuf, IoError};
use futae_policy::{AccessKind, BlockId, Outcome, Slot};
use std::collections::VecDeque;

/// Blocks of more bytes are loaded in pieces of so many. Also the bytes of smaller blocks that are
/// loaded at a time without anybody waiting for them; one block at least.
pub const PIECE_BYTES: u64 = 1 << 20;
/// Requests to large blocks keep apart by pages instead of by whole blocks, as in a cache of the
/// smallest blocks.
pub const PAGE_BYTES: u64 = crate::PAGE_BYTES as u64;

/// What is to be loaded.
#[derive(Default)]
pub struct Loads {
    /// Blocks and their slots; those whose frame is no longer [`Frame::Loading`] are passed over.
    queue: VecDeque<(BlockId, Slot)>,
    /// The block that is being loaded in pieces.
    current: Option<Load>,
    /// Small blocks that are being loaded.
    flights: u64,
    /// Nothing is loaded yet: blocks are being placed of which the last is to be loaded first.
    is_held: bool,
}

struct Load {
    block: BlockId,
    slot: Slot,
    loaded_bytes: u64,
    /// Whether a piece is under way.
    in_flight: bool,
    /// The block has lost its slot, or what was loaded may no longer be true.
    given_up: bool,
}

impl Loads {
    fn are_none(&self) -> bool {
        self.queue.is_empty() && self.current.is_none() && self.flights == 0
    }

    /// From now on holds loading back, and puts what is to be loaded before all others; or ends that.
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// What was loaded of a block counts for nothing: it has left its slot, or is here otherwise.
    pub fn give_up(&mut self, block: BlockId) {
        if let Some(load) = self.current.as_mut().filter(|load| load.block == block) {
            load.given_up = true;
        }
    }
}

impl State {
    /// Whether blocks are too large to be fetched while somebody waits.
    pub fn in_pieces(&self) -> bool {
        self.block_bytes > PIECE_BYTES
    }

    /// Goes on loading, and asks the policy what it wants loaded once nothing is left to load. It
    /// is decided at once, as in the simulator; the data follow.
    pub fn preload(&mut self, effects: &mut Effects) {
        while !self.loads.is_held {
            if !self.loads.are_none() {
                self.load_on(effects);
            }
            let under_way = self.loads.queue.len() as u64 + self.loads.flights;
            let is_enough = under_way >= self.loads_max() || self.loads.current.is_some();
            if is_enough {
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

    /// Small blocks that are loaded at a time.
    fn loads_max(&self) -> u64 {
        (PIECE_BYTES / self.block_bytes).max(1)
    }

    /// Whether a block is one of a volume that there is.
    pub fn is_inside(&self, block: BlockId) -> bool {
        self.volumes
            .get(usize::from(block.volume().0))
            .is_some_and(|volume| block.index() < volume.size_bytes.div_ceil(self.block_bytes))
    }

    /// Puts a block before the level that nobody asks for now, and has it loaded if it is placed.
    pub fn place_unasked(&mut self, block: BlockId, effects: &mut Effects) {
        if let Outcome::Admitted { slot, .. } = self.offer(block, AccessKind::Preload, effects) {
            self.tally.preload_reads += 1;
            self.load_later(block, slot);
        }
    }

    /// A block has got a slot, and its data is to be loaded in the background.
    pub fn load_later(&mut self, block: BlockId, slot: Slot) {
        self.frames.set(slot, Frame::Loading);
        let slots = self.level.capacity() as usize;
        if self.loads.queue.len() > 2 * slots {
            let queue = std::mem::take(&mut self.loads.queue);
            let wanted = queue
                .into_iter()
                .filter(|(block, slot)| self.is_loading(*block, *slot));
            self.loads.queue = wanted.collect();
        }
        if self.loads.is_held {
            self.loads.queue.push_front((block, slot));
        } else {
            self.loads.queue.push_back((block, slot));
        }
    }

    fn is_loading(&self, block: BlockId, slot: Slot) -> bool {
        self.level.find(block) == Some(slot) && self.frames.get(slot) == Frame::Loading
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
        while self.loads.flights < self.loads_max() {
            let Some((block, slot)) = self.loads.queue.pop_front() else {
                break;
            };
            if !self.is_loading(block, slot) {
                continue;
            }
            let span = self.block_span(block);
            if self.write_over(&span).is_some() {
                // The end of the write comes by here.
                self.loads.queue.push_front((block, slot));
                break;
            }
            let key = if let Some(&flight) = self.flight_of.get(&block) {
                flight
            } else {
                let flight = Flight {
                    span: Some(span),
                    whole: true,
                    background: Background::Whole,
                    ..Flight::default()
                };
                let key = self.flights.insert(flight);
                self.flight_of.insert(block, key);
                self.loads.flights += 1;
                started.push(key);
                key
            };
            self.frames.set(slot, Frame::awaits(key));
            self.flights[key].targets.push((block, slot));
        }
        self.launch(&started, effects);
    }

    /// A small block that was loaded for nobody has arrived, or failed to.
    pub fn land_whole(&mut self) {
        self.loads.flights -= 1;
    }

    fn load_piece(&mut self, effects: &mut Effects) {
        while self.loads.current.is_none() {
            let Some((block, slot)) = self.loads.queue.pop_front() else {
                return;
            };
            if self.is_loading(block, slot) {
                self.loads.current = Some(Load {
                    block,
                    slot,
                    loaded_bytes: 0,
                    in_flight: false,
                    given_up: false,
                });
            }
        }
        let Some(load) = &self.loads.current else {
            return;
        };
        if load.in_flight {
            return;
        }
        if load.given_up {
            self.loads.current = None;
            return self.load_piece(effects);
        }
        let piece = self.piece(load);
        if self.write_over(&piece).is_some() {
            return; // The end of the write comes by here.
        }
        if let Some(load) = &mut self.loads.current {
            load.in_flight = true;
        }
        let key = self.flights.insert(Flight {
            span: Some(piece),
            background: Background::Piece,
            ..Flight::default()
        });
        self.launch(&[key], effects);
    }

    /// The bytes to load next.
    fn piece(&self, load: &Load) -> Span {
        let of = self.block_span(load.block);
        Span {
            volume: of.volume,
            offset: of.offset + load.loaded_bytes,
            length: PIECE_BYTES.min(of.length - load.loaded_bytes),
        }
    }

    /// A piece of the current block has arrived, or failed to.
    pub fn land_piece(&mut self, span: Span, generation: u64, result: &Result<IoBuf, IoError>) {
        let Some(mut load) = self.loads.current.take() else {
            return;
        };
        if load.given_up {
            return;
        }
        let Ok(data) = result else {
            // Nobody waits for it: whoever wants the block hears of the failure.
            return self.invalidate(load.block);
        };
        let of = self.block_span(load.block);
        span.copy(data.as_slice(), &of, self.arena.frame_mut(load.slot));
        self.generations.landed(load.slot, generation);
        load.loaded_bytes += span.length;
        load.in_flight = false;
        if load.loaded_bytes == of.length {
            self.frames.set(load.slot, Frame::Ready);
            if let Some(log) = &mut self.log {
                log.note_loaded(load.block);
            }
        } else {
            self.loads.current = Some(load);
        }
    }

    /// Blocks that have a slot and not yet their data.
    pub fn loading_blocks(&self) -> u64 {
        let whole = |flight: &&Flight| flight.background == Background::Whole;
        let flights = self.flights.iter().map(|(_, flight)| flight).filter(whole);
        let under_way: usize = flights.map(|flight| flight.targets.len()).sum();
        self.frames.loading() + under_way as u64
    }
}
