//! Demotions and eviction notices: what the level above has given up. Hints: they may be dropped.

use super::effects::Effects;
use super::flights::Span;
use super::state::{Frame, State};
use crate::{ClientId, IoBuf};
use futae_policy::{AccessKind, BlockId, Outcome};

impl State {
    /// Data that `client` evicted at its time `sequence`. Each block is believed only under the
    /// rules of [`super::belief`] and while nothing is being written to it.
    pub fn demotion(
        &mut self,
        client: ClientId,
        sequence: u64,
        span: Span,
        data: &IoBuf,
        effects: &mut Effects,
    ) {
        let (first, end) = self.block_range(&span);
        if self.volumes[usize::from(span.volume.0)]
            .store
            .is_read_only()
        {
            // Nobody may change what is read of it, in this way either.
            self.tally.demotions_refused += end - first;
            return;
        }
        for index in first..end {
            let block = BlockId::new(span.volume, index);
            let of = self.block_span(block);
            let belief = &self.volumes[usize::from(span.volume.0)].belief;
            let believed = belief.believes(client, sequence, index)
                && of.overlap(&span) == Some(of)
                && self.write_over(&of).is_none();
            if !believed {
                self.tally.demotions_refused += 1;
                continue;
            }
            self.tally.bytes_demoted_in += of.length;
            if let Outcome::Admitted { slot, .. } = self.offer(block, AccessKind::Demotion, effects)
            {
                span.copy(data.as_slice(), &of, self.arena.frame_mut(slot));
                self.frames[slot.i()] = Frame::Ready;
            }
        }
    }

    /// Blocks that the level above evicted without handing down their data: those that the policy
    /// wants and that are not here are read from the store, for nobody yet.
    pub fn notice(&mut self, span: Span, effects: &mut Effects) {
        let (first, end) = self.block_range(&span);
        let mut started = Vec::new();
        for index in first..end {
            let block = BlockId::new(span.volume, index);
            let of = self.block_span(block);
            if of.overlap(&span) != Some(of) || self.write_over(&of).is_some() {
                continue;
            }
            let outcome = self.offer(block, AccessKind::Notice, effects);
            let Outcome::Admitted { slot, .. } = outcome else {
                continue;
            };
            if self.in_pieces() {
                self.tally.notice_reads += 1;
                self.load_later(block, slot);
                continue;
            }
            let flight = if let Some(&flight) = self.flight_of.get(&block) {
                flight
            } else {
                self.tally.notice_reads += 1;
                let flight = self.extend_or_start(of, true, &mut started);
                self.flight_of.insert(block, flight);
                flight
            };
            self.frames[slot.i()] = Frame::Awaits(flight);
            self.flights[flight].targets.push((block, slot));
        }
        self.launch(&started, effects);
    }
}
