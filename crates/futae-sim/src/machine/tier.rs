//! One level of a [`Cascade`](super::Cascade), or a copy of it for each guest.

use super::feeding::{AHEAD, Feeding, put_noting};
use super::interface::{Served, sum_of};
use super::message::{Message, Outbox, Outlet, blocks_of};
use crate::batch::Batch;
use crate::link::{Link, Reach, load_reviewed};
use futae_policy::{AccessKind, Counters, Index, RegisteredPolicy, Slot, SpecError};

/// Where each request is counted: for each guest a place for each level and one for the store.
#[derive(Clone, Copy)]
pub(super) struct Places {
    /// Guests.
    pub(super) guests: u32,
    /// Blocks of each guest.
    pub(super) blocks: u64,
    /// Levels, and the store.
    pub(super) places: usize,
}

impl Places {
    #[inline]
    fn guest_of(&self, block: u32) -> usize {
        match self.guests {
            1 => 0,
            _ => (u64::from(block) / self.blocks) as usize,
        }
    }
}

/// One level, or a copy of it for each guest.
pub(super) struct Tier<P, I> {
    /// One for each guest, or one that all share.
    pub(super) levels: Vec<Reach<P, I>>,
    pub(super) link: Link,
    /// Its number from the top, from 0.
    pub(super) depth: usize,
    pub(super) places: Places,
}

impl<P: RegisteredPolicy, I: Index> Tier<P, I> {
    #[inline]
    fn level_of(&self, block: u32) -> usize {
        match self.levels.len() {
            1 => 0,
            _ => self.places.guest_of(block),
        }
    }

    fn prefetch(&self, messages: &[Message]) {
        match &self.levels[..] {
            [only] => only.level.prefetch(blocks_of(messages)),
            levels => {
                for (message, block) in messages.iter().zip(blocks_of(messages)) {
                    levels[self.level_of(message.block)]
                        .level
                        .prefetch_one(block);
                }
            }
        }
    }

    fn look_ahead(&self, messages: &[Message], likely: &mut [Slot]) {
        if let [only] = &self.levels[..] {
            let level = &only.level;
            level.look_ahead(blocks_of(messages), likely, |evicted| {
                level.prefetch_one(evicted);
            });
            return;
        }
        for (at, block) in blocks_of(messages).enumerate() {
            let level = &self.levels[self.level_of(messages[at].block)].level;
            let likely = &mut likely[at..=at];
            level.look_ahead(std::iter::once(block), likely, |_| {});
        }
    }

    /// Offers a message to its level, whose block is probably in slot `likely`, or not there.
    #[inline(always)]
    fn offer(
        &mut self,
        message: &Message,
        likely: Slot,
        served: &mut [Served],
        below: &mut impl Outlet,
    ) {
        let at = self.level_of(message.block);
        let (reach, link) = (&mut self.levels[at], self.link);
        let access = message.access();
        let depth = if message.kind == AccessKind::Read && reach.level.access_in(likely, &access) {
            load_reviewed(reach, link, below);
            0
        } else {
            below.begin(message.bytes, message.is_served);
            put_noting(reach, link, below, &access)
        };
        let is_write = message.kind == AccessKind::Write;
        // What this level does not serve is counted below, or here if the store is below.
        let place = self.depth + depth as usize;
        if message.is_counted() && (depth == 0 || place + 1 == self.places.places) {
            let guest = self.places.guest_of(message.block);
            served[guest * self.places.places + place].count(is_write, message.bytes);
        }
    }
}

/// A tier, whatever its policy, above a part `B`.
pub(super) trait Take<B>: Send {
    /// Takes messages, counts the requests among them that it serves, and sends its own.
    fn take(&mut self, messages: &[Message], served: &mut [Served], below: &mut B);
    /// The sum of its levels' counters.
    fn counters(&self) -> Counters;
    /// The decisions of its levels' policies about themselves.
    fn remarks(&self) -> Vec<String>;
    /// The error of the first level whose policy has failed.
    fn fault(&self) -> Option<&SpecError>;
}

impl<P: RegisteredPolicy, I: Index + Send, B: Outlet> Take<B> for Tier<P, I> {
    fn take(&mut self, messages: &[Message], served: &mut [Served], below: &mut B) {
        let mut likely = [Slot(0); AHEAD];
        self.prefetch(&messages[..messages.len().min(AHEAD)]);
        let mut groups = messages.chunks(AHEAD).peekable();
        while let Some(few) = groups.next() {
            let next = groups.peek().copied().unwrap_or_default();
            self.look_ahead(few, &mut likely);
            for (at, (message, &likely)) in few.iter().zip(&likely).enumerate() {
                // One by one: many at once would be waited for.
                self.prefetch(next.get(at..=at).unwrap_or_default());
                self.offer(message, likely, served, below);
            }
        }
    }
    fn counters(&self) -> Counters {
        let each = self.levels.iter().map(|reach| reach.level.counters());
        each.reduce(|sum, one| sum_of(&sum, &one))
            .unwrap_or_default()
    }
    fn remarks(&self) -> Vec<String> {
        let each = self.levels.iter();
        each.flat_map(|reach| reach.level.remarks().to_vec())
            .collect()
    }
    fn fault(&self) -> Option<&SpecError> {
        self.levels.iter().find_map(|reach| reach.level.fault())
    }
}

/// A tier above another one.
pub(super) trait Feed: Take<Outbox> {
    /// Takes the requests of a batch as the first tier does; otherwise as [`Take::take`].
    fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served], below: &mut Outbox);
}

impl<P: RegisteredPolicy, I: Index + Send> Feed for Tier<P, I> {
    fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served], below: &mut Outbox) {
        let link = self.link;
        if let [reach] = &mut self.levels[..] {
            // What this level does not serve is counted below.
            let mut places = [Served::default(); 2];
            Feeding { reach, link, below }.all(batch, &mut places);
            served[0].add(&places[0]);
        } else {
            self.take(&Message::all_of(batch), served, below);
        }
    }
}
