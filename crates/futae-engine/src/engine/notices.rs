//! Eviction notices: what the level above has given up without handing its data down. Those blocks that
//! the policy wants and that are not here are read from the store, for nobody yet. A notice is answered
//! when it has been taken, and may be dropped: of each volume only some blocks wait to be decided on, and
//! only some are read at a time, however long the range that a client names.

use super::Engine;
use super::effects::Effects;
use super::flights::Span;
use super::frames::Frame;
use super::state::State;
use super::steps::Rest;
use crate::{ClientId, Operation, Request};
use futae_policy::{AccessKind, BlockId, Outcome, VolumeId};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that one read for notices is long at most; one block at least.
const FLIGHT_BYTES_MAX: u64 = 1 << 20;
/// Reads for notices of one volume, and their bytes, from which on further blocks wait.
const FLIGHTS_MAX: u32 = 8;
const BYTES_MAX: u64 = 4 << 20;
/// Ranges of one volume that wait at most.
const RANGES_MAX: usize = 1024;
/// Of a volume no more blocks wait than one in so many of the cache, or these few in a small cache.
const WAITING_SHARE: u64 = 4;
const WAITING_BLOCKS_MIN: u64 = 64;

/// What a volume's clients have told of.
#[derive(Debug, Default)]
pub struct Notices {
    /// Blocks that are still to be decided on, by index.
    waiting: VecDeque<Range<u64>>,
    /// How many they are.
    blocks: u64,
    /// Reads under way, and their bytes.
    flights: u32,
    bytes: u64,
}

impl Notices {
    /// A read has begun.
    pub fn depart(&mut self, bytes: u64) {
        self.flights += 1;
        self.bytes += bytes;
    }

    /// A read is over.
    pub fn arrive(&mut self, bytes: u64) {
        self.flights -= 1;
        self.bytes -= bytes;
    }

    fn may_go_on(&self) -> bool {
        self.blocks > 0 && self.flights < FLIGHTS_MAX && self.bytes < BYTES_MAX
    }
}

impl Engine {
    /// Tells of a range that the level above has evicted, on behalf of no client: a hint, as
    /// [`Operation::Notice`].
    pub fn notice(self: &Arc<Self>, volume: VolumeId, offset: u64, length: u64) {
        self.submit(Request {
            volume,
            client: ClientId::NOBODY,
            sequence: 0,
            operation: Operation::Notice { offset, length },
            done: Box::new(drop),
        });
    }
}

impl State {
    /// Takes a notice, or as much of it as may wait.
    pub fn notice(&mut self, span: Span, effects: &mut Effects) {
        let capacity = u64::from(self.level.capacity());
        let most = (capacity / WAITING_SHARE).max(WAITING_BLOCKS_MIN);
        let bytes = self.block_bytes;
        let volume = &mut self.volumes[usize::from(span.volume.0)];
        // Whole blocks; the last one of a volume may be short.
        let first = span.offset.div_ceil(bytes);
        let end = if span.end() == volume.size_bytes {
            span.end().div_ceil(bytes)
        } else {
            span.end() / bytes
        };
        let blocks = end.saturating_sub(first);
        let notices = &mut volume.notices;
        let mut taken = blocks.min(most.saturating_sub(notices.blocks));
        if notices.waiting.len() >= RANGES_MAX {
            taken = 0;
        }
        self.tally.notices_dropped += blocks - taken;
        if taken > 0 {
            notices.blocks += taken;
            notices.waiting.push_back(first..first + taken);
            self.notice_on(span.volume, effects);
        }
    }

    /// Decides on blocks that wait, as long as few reads are under way for them.
    pub fn notice_on(&mut self, volume: VolumeId, effects: &mut Effects) {
        let at = usize::from(volume.0);
        while self.volumes[at].notices.may_go_on() {
            if self.steps.left() == 0 {
                return effects.later(Rest::Notices(volume));
            }
            let notices = &mut self.volumes[at].notices;
            let Some(mut range) = notices.waiting.pop_front() else {
                return;
            };
            let mut started = Vec::new();
            while !range.is_empty() && self.steps.left() > 0 {
                let block = BlockId::new(volume, range.start);
                range.start += 1;
                self.volumes[at].notices.blocks -= 1;
                self.notice_block(block, &mut started, effects);
            }
            if !range.is_empty() {
                self.volumes[at].notices.waiting.push_front(range);
            }
            self.launch(&started, effects);
        }
    }

    fn notice_block(&mut self, block: BlockId, started: &mut Vec<usize>, effects: &mut Effects) {
        let of = self.block_span(block);
        if self.write_over(&of).is_some() {
            return self.steps.count(1);
        }
        let outcome = self.offer(block, AccessKind::Notice, effects);
        let Outcome::Admitted { slot, .. } = outcome else {
            return;
        };
        if self.in_pieces() {
            self.tally.notice_reads += 1;
            return self.load_later(block, slot);
        }
        let flight = if let Some(&flight) = self.flight_of.get(&block) {
            flight
        } else {
            self.tally.notice_reads += 1;
            let flight = self.extend_or_start(of, true, FLIGHT_BYTES_MAX, started);
            self.flights[flight].is_notice = true;
            self.flight_of.insert(block, flight);
            flight
        };
        self.frames.set(slot, Frame::awaits(flight));
        self.flights[flight].targets.push((block, slot));
    }
}
