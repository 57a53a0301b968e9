//! A level that takes the requests of the application, with a look-ahead.

use super::interface::Served;
use super::message::Outlet;
use crate::batch::{Batch, block};
use crate::link::{Link, Reach, load_reviewed, put};
use futae_policy::{Access, AccessKind, Index, RegisteredPolicy, Slot};

/// The number of requests for which data is prefetched together: few enough for the processor's
/// nearest cache.
pub(super) const AHEAD: usize = 128;

/// As [`put`]; the part below learns of a write whether the level has the block.
#[inline(always)]
pub(super) fn put_noting<P: RegisteredPolicy, I: Index>(
    reach: &mut Reach<P, I>,
    link: Link,
    below: &mut impl Outlet,
    access: &Access,
) -> u32 {
    let depth = put(reach, link, below, access);
    if depth == 0 && access.kind == AccessKind::Write {
        below.end_served();
    }
    depth
}

/// The first level, which serves most requests, and the part below it.
pub(super) struct Feeding<'a, P, I, B> {
    pub(super) reach: &'a mut Reach<P, I>,
    pub(super) link: Link,
    pub(super) below: &'a mut B,
}

impl<P: RegisteredPolicy, I: Index, B: Outlet> Feeding<'_, P, I, B> {
    /// Sends the requests of a batch, and adds to `served` how many were served here, and how many
    /// below.
    #[inline(always)]
    pub(super) fn all(&mut self, batch: &Batch<'_>, served: &mut [Served]) {
        // Most runs have none of these; checking for them at every request would cost a tenth of
        // the time.
        let is_plain = batch.next_uses.is_empty() && batch.bytes.is_empty();
        if is_plain && self.reach.level.is_near() && batch.only_reads() {
            let likely = |level: &Self, at: usize| {
                let level = &level.reach.level;
                level.likely(block(batch.blocks[at]))
            };
            return self.read_all(batch.blocks, likely, served);
        }
        self.each_few(batch, |level, few, likely| {
            if is_plain && few.only_reads() {
                level.read_all(few.blocks, |_, at| likely[at], served);
            } else {
                level.put_all(few, likely, served);
            }
        });
    }

    /// As [`all`](Self::all), for a level that guests with `blocks` blocks each share.
    pub(super) fn all_of_guests(&mut self, batch: &Batch<'_>, blocks: u64, served: &mut [Served]) {
        self.each_few(batch, |level, few, likely| {
            for (at, &likely) in (0..few.blocks.len()).zip(likely) {
                let access = few.access(at);
                let is_hit = !few.is_write(at) && level.hit(likely, &access);
                let bytes = few.bytes_of(at);
                let depth = if is_hit { 0 } else { level.put(&access, bytes) };
                let guest = u64::from(few.blocks[at]) / blocks;
                served[2 * guest as usize + depth as usize].count(few.is_write(at), bytes);
            }
        });
    }

    /// Passes a few requests at a time, with the slot in which each block probably is, or any slot.
    #[inline(always)]
    fn each_few(
        &mut self,
        batch: &Batch<'_>,
        mut send: impl FnMut(&mut Self, &Batch<'_>, &[Slot]),
    ) {
        let mut likely = [Slot(0); AHEAD];
        for begin in (0..batch.blocks.len()).step_by(AHEAD) {
            let few = batch.part(begin..begin + AHEAD);
            let next = batch.part(begin + AHEAD..begin + 2 * AHEAD);
            let level = &self.reach.level;
            level.prefetch(next.blocks.iter().map(|&number| block(number)));
            let blocks = few.blocks.iter().map(|&number| block(number));
            level.look_ahead(blocks, &mut likely, |_| {});
            send(self, &few, &likely);
        }
    }

    /// Sends reads without additional facts.
    #[inline(always)]
    fn read_all(
        &mut self,
        blocks: &[u32],
        likely: impl Fn(&Self, usize) -> Slot,
        served: &mut [Served],
    ) {
        let mut others = 0;
        for (at, &number) in blocks.iter().enumerate() {
            if !self.hit(likely(self, at), &Access::read(block(number))) {
                others += 1;
                served[self.put_read(number) as usize].reads += 1;
            }
        }
        served[0].reads += blocks.len() as u64 - others;
    }

    #[inline(always)]
    fn put_all(&mut self, batch: &Batch<'_>, likely: &[Slot], served: &mut [Served]) {
        let mut hits = Served::default();
        for (at, &likely) in (0..batch.blocks.len()).zip(likely) {
            let bytes = batch.bytes_of(at);
            if !batch.is_write(at) && self.hit(likely, &batch.access(at)) {
                hits.count(false, bytes);
            } else {
                let depth = self.put(&batch.access(at), bytes);
                served[depth as usize].count(batch.is_write(at), bytes);
            }
        }
        served[0].add(&hits);
    }

    /// Sends a read whose block is in slot `likely`; does nothing and returns false if it is not.
    #[inline(always)]
    fn hit(&mut self, likely: Slot, access: &Access) -> bool {
        let hit = self.reach.level.access_in(likely, access);
        if hit {
            load_reviewed(self.reach, self.link, self.below);
        }
        hit
    }

    /// Sends a read. Its access is made here: the loop over hits, where the compiler would make it first, needs none.
    #[inline(never)]
    fn put_read(&mut self, number: u32) -> u32 {
        self.below.begin(0, false);
        put_noting(
            self.reach,
            self.link,
            self.below,
            &Access::read(block(number)),
        )
    }

    /// Sends any request, of this length, or 0 if all are equal. Returns how far down it was
    /// served, as far as is known here.
    #[inline(never)]
    fn put(&mut self, access: &Access, bytes: u32) -> u32 {
        self.below.begin(bytes, false);
        put_noting(self.reach, self.link, self.below, access)
    }
}
