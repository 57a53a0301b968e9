//! Eviction notices: the upper level evicted blocks without demoting their data. Blocks that the
//! policy wants and that are not resident are read from the store in the background. A notice is
//! answered when it has been accepted; [`Notices`](super::notices::Notices) bounds how many blocks
//! of it.

use super::effects::Effects;
use super::flights::Span;
use super::frames::Frame;
use super::front::Engine;
use super::rest::Rest;
use super::state::State;
use crate::{ClientId, Operation, Request};
use futae_policy::{AccessKind, BlockId, Outcome, VolumeId};
use std::sync::Arc;

/// The largest number of bytes per read for notices; at least one block.
const FLIGHT_BYTES_MAX: u64 = 1 << 20;
impl Engine {
    /// Submits a notice for a range on behalf of no client. It is a hint, as [`Operation::Notice`].
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
    /// Accepts a notice, or the part of it that may wait.
    pub fn notice(&mut self, span: Span, effects: &mut Effects) {
        let (capacity, bytes) = (u64::from(self.level.capacity()), self.block_bytes);
        let volume = &mut self.volumes[usize::from(span.volume.0)];
        // Whole blocks only; the last one of a volume may be short.
        let first = span.offset.div_ceil(bytes);
        let end = if span.end() == volume.size_bytes {
            span.end().div_ceil(bytes)
        } else {
            span.end() / bytes
        };
        let blocks = end.saturating_sub(first);
        let taken = match volume.awaits_guest {
            true => 0,
            false => volume.notices.take(first, blocks, capacity),
        };
        self.tally.notices_dropped += blocks - taken;
        if taken > 0 {
            self.notice_on(span.volume, effects);
        }
    }

    /// Decides on waiting blocks while the number of reads under way allows it.
    pub fn notice_on(&mut self, volume: VolumeId, effects: &mut Effects) {
        let at = usize::from(volume.0);
        while self.volumes[at].notices.may_go_on() {
            let left = self.steps.left();
            if left == 0 {
                return effects.later(Rest::Notices(volume));
            }
            let Some(range) = self.volumes[at].notices.next(left) else {
                return;
            };
            let mut started = Vec::new();
            for index in range {
                self.notice_block(BlockId::new(volume, index), &mut started, effects);
            }
            self.launch(&started, effects);
        }
    }

    fn notice_block(&mut self, block: BlockId, started: &mut Vec<usize>, effects: &mut Effects) {
        let of = self.block_span(block);
        // If a keeper holds the blocks, there is no frame to read into. A dirty block then has its
        // data beside the cache, with or without a slot, and no flight may bring the store's older
        // data.
        let is_taken = self.under_way.line.over(&of) || self.under_way.write_over(&of).is_some();
        if self.elsewhere.is_some() || is_taken {
            return self.steps.count(1);
        }
        if let Some((twin, _)) = self.twin_of(block) {
            return self.touch_twin(twin, block.volume(), AccessKind::Notice, effects);
        }
        let outcome = self.offer(block, AccessKind::Notice, effects);
        let Outcome::Admitted { slot, .. } = outcome else {
            return;
        };
        if self.in_pieces() {
            self.tally.notice_reads += 1;
            return self.load_later(block, slot);
        }
        let flight = if let Some(&flight) = self.under_way.flight_of.get(&block) {
            flight
        } else {
            self.tally.notice_reads += 1;
            let flight = self
                .under_way
                .extend_or_start(of, true, FLIGHT_BYTES_MAX, started);
            self.under_way.flights[flight].is_notice = true;
            self.under_way.flight_of.insert(block, flight);
            flight
        };
        self.frames.set(slot, Frame::awaits(flight));
        self.under_way.flights[flight].targets.push((block, slot));
    }
}
