//! Demotions: blocks that the upper level evicted, with their data. They are hints and may be
//! dropped.

use super::effects::Effects;
use super::flights::Span;
use super::frames::Frame;
use super::rest::{Demoting, Rest};
use super::state::State;
use crate::{ClientId, IoBuf};
use futae_policy::{AccessKind, BlockId, Outcome};

impl State {
    /// Data that `client` evicted at its sequence `sequence`. Each block is accepted only under the
    /// rules of [`super::demotion_guard`], and only while no write to it is under way.
    pub fn demotion(
        &mut self,
        client: ClientId,
        sequence: u64,
        span: Span,
        data: IoBuf,
        effects: &mut Effects,
    ) {
        let (first, end) = self.block_range(&span);
        if self.volumes[usize::from(span.volume.0)]
            .store
            .is_read_only()
        {
            // A demotion must not change what a read-only volume returns.
            self.tally.demotions_refused += end - first;
            return;
        }
        let demoting = Demoting {
            client,
            sequence,
            span,
            data,
            next: first,
        };
        self.demote_on(demoting, effects);
    }

    /// Decides on as many demoted blocks as this step has room for.
    pub fn demote_on(&mut self, mut demoting: Demoting, effects: &mut Effects) {
        let (client, sequence, span) = (demoting.client, demoting.sequence, demoting.span);
        let (_, end) = self.block_range(&span);
        for index in demoting.next..end {
            if self.steps.left() == 0 {
                demoting.next = index;
                return effects.later(Rest::Demotion(demoting));
            }
            let block = BlockId::new(span.volume, index);
            let of = self.block_span(block);
            let demotion_guard = &self.volumes[usize::from(span.volume.0)].demotion_guard;
            let is_accepted = demotion_guard.accepts(client, sequence, index)
                && of.overlap(&span) == Some(of)
                && !self.awaits_guest(span.volume)
                && self.under_way.write_over(&of).is_none();
            if !is_accepted {
                self.steps.count(1);
                self.tally.demotions_refused += 1;
                continue;
            }
            self.tally.bytes_demoted_in += of.length;
            if let Outcome::Admitted { slot, .. } = self.offer(block, AccessKind::Demotion, effects)
            {
                let data = demoting.data.as_slice();
                span.copy(data, &of, self.arena.frame_mut(slot));
                self.frames.set(slot, Frame::Ready);
            }
        }
    }
}
