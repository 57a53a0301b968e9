//! LRU above any policy, for one guest.
//!
//! In a simulation no level learns what happens below it. So the upper level is ahead of the lower
//! one: its messages are kept, and the lower level takes them in their order, many together, or on
//! a thread of its own.

use super::{AHEAD, Ahead, Machine, Served, each_ahead};
use crate::batch::{Batch, Batches, block};
use crate::index::BackedIndex;
use crate::link::{Link, Reach, Store, load_reviewed, put};
use futae_policy::replace::lru::Lru;
use futae_policy::{
    Access, AccessKind, BlockId, Counters, DenseIndex, Level, Outcome, RegisteredPolicy, Slot,
    SpecError, Visit,
};
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread;

/// Requests whose messages the lower level takes together, if both are on one thread: few enough
/// for the processor's caches.
const REQUESTS: usize = 1024;
/// Messages, at least, that are handed to another thread together.
const PART: usize = 8192;
/// Parts that wait for the other thread, at most.
const PARTS: usize = 8;

/// What the upper level sends down.
#[derive(Clone, Copy, Debug)]
struct Message {
    block: u32,
    /// The length of the request; 0 if all are equal, or it is none.
    bytes: u32,
    kind: AccessKind,
    /// Whether it is a request that the upper level served: a write to a block that it has.
    is_served: bool,
}

impl Message {
    fn access(&self) -> Access {
        Access::of(block(self.block), self.kind)
    }
}

fn blocks_of(messages: &[Message]) -> impl Iterator<Item = BlockId> {
    messages.iter().map(|message| block(message.block))
}

/// The upper level.
struct Upper {
    level: Level<Lru, BackedIndex>,
    link: Link,
}

impl Upper {
    /// Sends requests, counts those that it serves, and adds its messages.
    fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served], messages: &mut Vec<Message>) {
        // What it does not serve, the lower level counts where it ends.
        let mut places = [Served::default(); 2];
        let upper = self;
        each_ahead(&mut Sending { upper, messages }, batch, &mut places);
        served[0].add(&places[0]);
    }
}

/// The upper level while it is fed.
struct Sending<'a> {
    upper: &'a mut Upper,
    messages: &'a mut Vec<Message>,
}

impl Ahead for Sending<'_> {
    #[inline(always)]
    fn prefetch(&self, blocks: &[u32]) {
        let blocks = blocks.iter().map(|&number| block(number));
        self.upper.level.prefetch(blocks);
    }
    #[inline(always)]
    fn look_ahead(&self, blocks: &[u32], likely: &mut [Slot]) {
        let blocks = blocks.iter().map(|&number| block(number));
        self.upper.level.look_ahead(blocks, likely, |_| {});
    }
    #[inline(always)]
    fn hit(&mut self, likely: Slot, access: &Access) -> bool {
        self.upper.level.access_in(likely, access)
    }
    /// The messages and their order are those of [`put`]; an LRU cache requests no blocks itself.
    #[inline(always)]
    fn put(&mut self, access: &Access, bytes: u32) -> u32 {
        let outcome = self.upper.level.access(access);
        let is_served = matches!(outcome, Outcome::Hit(_));
        let mut send = |block: BlockId, bytes, kind| {
            self.messages.push(Message {
                block: block.index() as u32,
                bytes,
                kind,
                is_served,
            });
        };
        if !is_served || access.kind == AccessKind::Write {
            send(access.block, bytes, access.kind);
        }
        if let Outcome::Admitted { evicted, .. } = outcome
            && let (Some(victim), Some(kind)) = (evicted, self.upper.link.message())
        {
            self.upper.level.note_sent_down(kind);
            send(victim.block, 0, kind);
        }
        u32::from(!is_served)
    }
}

/// The lower level, over the store.
///
/// It is asked mostly for demoted blocks that have left it again; an index with lazy removal would
/// need two look-ups for each.
struct Lower<Q> {
    reach: Reach<Q, DenseIndex>,
    store: Store,
}

impl<Q: RegisteredPolicy> Lower<Q> {
    /// Takes messages, and counts the requests among them that it or the store serves.
    fn take(&mut self, messages: &[Message], served: &mut [Served]) {
        let mut likely = [Slot(0); AHEAD];
        let mut groups = messages.chunks(AHEAD).peekable();
        while let Some(few) = groups.next() {
            let level = &self.reach.level;
            if let Some(next) = groups.peek() {
                level.prefetch(blocks_of(next));
            }
            level.look_ahead(blocks_of(few), &mut likely, |evicted| {
                level.prefetch_one(evicted);
            });
            for (message, &likely) in few.iter().zip(&likely) {
                let place = self.access(likely, &message.access());
                if message.kind.is_demand() && !message.is_served {
                    let is_write = message.kind == AccessKind::Write;
                    served[1 + place as usize].count(is_write, message.bytes);
                }
            }
        }
    }

    /// Takes an access whose block is probably in slot `likely`, or not here. Returns how far down
    /// it was served.
    #[inline(always)]
    fn access(&mut self, likely: Slot, access: &Access) -> u32 {
        let reach = &mut self.reach;
        if access.kind == AccessKind::Read && reach.level.access_in(likely, access) {
            load_reviewed(reach, Link::None, &mut self.store);
            0
        } else {
            put(reach, Link::None, &mut self.store, access)
        }
    }

    /// Takes parts until the last or until its policy fails, and returns them empty.
    fn take_all(
        &mut self,
        parts: &Receiver<Vec<Message>>,
        emptied: &Sender<Vec<Message>>,
    ) -> [Served; 3] {
        let mut served = [Served::default(); 3];
        for mut part in parts {
            self.take(&part, &mut served);
            if self.reach.level.fault().is_some() {
                break;
            }
            part.clear();
            // At the end nobody needs it.
            let _ = emptied.send(part);
        }
        served
    }
}

/// LRU above a policy known at compile time, for one guest.
pub struct TwoLevels<Q> {
    upper: Upper,
    lower: Lower<Q>,
    /// Empty between two calls.
    messages: Vec<Message>,
}

impl<Q: RegisteredPolicy> TwoLevels<Q> {
    /// Joins two levels, whose indexes must cover the blocks `0..blocks`.
    #[must_use]
    pub fn new(
        upper: Level<Lru, BackedIndex>,
        link: Link,
        lower: Level<Q, DenseIndex>,
        blocks: u64,
    ) -> Self {
        Self {
            upper: Upper { level: upper, link },
            lower: Lower {
                reach: Reach {
                    level: lower,
                    blocks: 0..blocks,
                },
                store: Store::default(),
            },
            messages: Vec::new(),
        }
    }
}

/// Builds [`TwoLevels`] with a lower policy.
pub(super) struct MakeTwo {
    pub(super) upper: u32,
    pub(super) link: Link,
    pub(super) slots: u32,
    pub(super) blocks: u64,
}

impl Visit for MakeTwo {
    type Output = Box<dyn Machine>;
    fn visit<Q: RegisteredPolicy + 'static>(self, policy: Q) -> Self::Output {
        let index = BackedIndex::new(0);
        let upper = Level::new(Lru::new(self.upper), index, self.upper);
        let mut lower = Level::new(policy, DenseIndex::new(0), self.slots);
        lower.number_blocks(0);
        Box::new(TwoLevels::new(upper, self.link, lower, self.blocks))
    }
}

impl<Q: RegisteredPolicy> Machine for TwoLevels<Q> {
    fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served]) {
        for begin in (0..batch.blocks.len()).step_by(REQUESTS) {
            let few = batch.part(begin..begin + REQUESTS);
            self.upper.feed(&few, served, &mut self.messages);
            self.lower.take(&self.messages, served);
            self.messages.clear();
        }
    }

    fn feed_spread(&mut self, batches: &mut dyn Batches, served: &mut [Served]) {
        let (upper, lower) = (&mut self.upper, &mut self.lower);
        thread::scope(|scope| {
            let (to_lower, parts) = sync_channel(PARTS);
            let (to_upper, emptied) = channel();
            let below = scope.spawn(move || lower.take_all(&parts, &to_upper));
            let mut messages = Vec::new();
            batches.each(&mut |batch| {
                upper.feed(batch, served, &mut messages);
                if messages.len() < PART {
                    return true;
                }
                let empty = emptied.try_recv().unwrap_or_default();
                to_lower
                    .send(std::mem::replace(&mut messages, empty))
                    .is_ok()
            });
            // It takes no more if its policy has failed.
            let _ = to_lower.send(messages);
            drop(to_lower);
            let found = below.join().unwrap_or_else(|thrown| resume_unwind(thrown));
            for (served, found) in served.iter_mut().zip(&found) {
                served.add(found);
            }
        });
    }

    fn counters(&self) -> Vec<Counters> {
        vec![
            self.upper.level.counters(),
            self.lower.reach.level.counters(),
        ]
    }
    fn remarks(&self) -> Vec<Vec<String>> {
        vec![Vec::new(), self.lower.reach.level.remarks().to_vec()]
    }
    fn fault(&self) -> Option<&SpecError> {
        self.lower.reach.level.fault()
    }
    fn store(&self) -> Store {
        self.lower.store
    }
}
