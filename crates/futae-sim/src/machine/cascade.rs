//! Levels that take messages from the level above and send messages to the level below.
//!
//! In a simulation under write-through, no level learns what happens below it. So each level is
//! ahead of the next one: its messages are kept, and the next level takes them in their order, many
//! together, or on a thread of its own. All guests' copies of a level are one tier.

use super::interface::{Machine, Served};
use super::message::{Message, Outbox};
use super::tier::{Feed, Places, Take, Tier};
use crate::batch::{Batch, Batches};
use crate::conveyor::{Filling, Taking, conveyor};
use crate::hierarchy::HierarchyShape;
use crate::index::BackedIndex;
use crate::link::{Link, Reach, Store};
use crate::write_back::WriteMode;
use futae_policy::replace::lru::Lru;
use futae_policy::{
    Counters, DenseIndex, Kind, Level, PolicySpec, RegisteredPolicy, SpecError, Visit, visit,
};
use std::panic::resume_unwind;
use std::thread;

/// Requests whose messages are kept together, if all levels are on one thread: few enough for the
/// processor's caches.
const REQUESTS: usize = 1024;
/// Messages, at least, that are handed to another thread together.
const PART: usize = 8192;

/// A tier above another one, and what it has sent down.
struct Upper {
    tier: Box<dyn Feed>,
    sent: Outbox,
}

/// Levels of any policies, for any number of guests, over one store.
pub struct Cascade {
    first: Upper,
    /// Top down, between the first and the last.
    middle: Vec<Upper>,
    last: Box<dyn Take<Store>>,
    store: Store,
}

impl Cascade {
    /// Whether it can simulate this shape: several levels, which know no future, direct no other
    /// levels, and keep no written data back.
    pub(super) fn fits(shape: &HierarchyShape) -> bool {
        let mut policies = shape.levels.iter().map(|level| &level.policy);
        !shape.links.is_empty()
            && shape.write_mode == WriteMode::WriteThrough
            && policies.all(|policy| !policy.directs() && !policy.needs_future())
    }

    /// Builds every level of a shape that [fits](Self::fits), empty.
    pub(super) fn build(shape: &HierarchyShape) -> Result<Self, SpecError> {
        let places = Places {
            guests: shape.guests,
            blocks: shape.blocks,
            places: shape.levels.len() + 1,
        };
        let upper = |(depth, &link): (usize, &Link)| {
            let tier = match shape.levels[depth].policy == PolicySpec::of(Kind::lru) {
                true => tier_above(shape, depth, link, places, |slots, _| Ok(Lru::new(slots)))?,
                false => tier_above(shape, depth, link, places, |_, guest| {
                    let level = &shape.levels[depth];
                    futae_policy::build(&level.policy, &shape.policy_shape(guest, depth))
                })?,
            };
            let sent = Outbox::default();
            Ok(Upper { tier, sent })
        };
        let uppers = shape.links.iter().enumerate().map(upper);
        let mut uppers = uppers.collect::<Result<Vec<_>, SpecError>>()?;
        let bottom = shape.levels.len() - 1;
        let last = &shape.levels[bottom];
        Ok(Self {
            first: uppers.remove(0),
            middle: uppers,
            last: visit(
                &last.policy,
                &shape.policy_shape(0, bottom),
                MakeLast {
                    slots: last.slots,
                    places,
                    volumes: shape.volumes_of(0..shape.guests),
                },
            )?,
            store: Store::default(),
        })
    }

    /// Joins two levels of one guest, whose indexes must cover the blocks `0..blocks`.
    #[must_use]
    pub fn of_two<Q: RegisteredPolicy + 'static>(
        upper: Level<Lru, BackedIndex>,
        link: Link,
        lower: Level<Q, DenseIndex>,
        blocks: u64,
    ) -> Self {
        let places = Places {
            guests: 1,
            blocks,
            places: 3,
        };
        let upper = Tier {
            levels: vec![Reach::new(upper, 0..blocks)],
            link,
            depth: 0,
            places,
        };
        Self {
            first: Upper {
                tier: Box::new(upper),
                sent: Outbox::default(),
            },
            middle: Vec::new(),
            last: Box::new(last(lower, places)),
            store: Store::default(),
        }
    }
}

impl Cascade {
    fn uppers(&self) -> impl Iterator<Item = &Upper> {
        std::iter::once(&self.first).chain(&self.middle)
    }
}

/// A level above the last one, with a copy for each guest.
fn tier_above<P: RegisteredPolicy + 'static>(
    shape: &HierarchyShape,
    depth: usize,
    link: Link,
    places: Places,
    policy: impl Fn(u32, u32) -> Result<P, SpecError>,
) -> Result<Box<dyn Feed>, SpecError> {
    let reads_ahead = shape.levels[depth].policy.reads_ahead();
    let copy = |guest: u32| {
        let first = u64::from(guest) * shape.blocks;
        let slots = shape.levels[depth].slots_of(guest);
        let index = BackedIndex::new(first);
        let mut level = Level::new(policy(slots, guest)?, index, slots);
        level.number_blocks(first);
        level.note_volumes(&shape.volumes_of(guest..guest + 1));
        let reach = Reach::new(level, first..first + shape.blocks);
        Ok(Reach {
            reads_ahead,
            ..reach
        })
    };
    Ok(Box::new(Tier {
        levels: (0..shape.guests).map(copy).collect::<Result<_, _>>()?,
        link,
        depth,
        places,
    }))
}

/// The level that all guests share.
///
/// It is asked mostly for demoted blocks that have left it again; an index with lazy removal would
/// need two look-ups for each.
fn last<Q: RegisteredPolicy>(
    mut level: Level<Q, DenseIndex>,
    places: Places,
) -> Tier<Q, DenseIndex> {
    level.number_blocks(0);
    Tier {
        levels: vec![Reach::new(
            level,
            0..u64::from(places.guests) * places.blocks,
        )],
        link: Link::None,
        depth: places.places - 2,
        places,
    }
}

struct MakeLast {
    slots: u32,
    places: Places,
    volumes: Vec<u64>,
}

impl Visit for MakeLast {
    type Output = Box<dyn Take<Store>>;
    fn visit<Q: RegisteredPolicy + 'static>(self, policy: Q) -> Self::Output {
        let mut level = Level::new(policy, DenseIndex::new(0), self.slots);
        level.note_volumes(&self.volumes);
        Box::new(last(level, self.places))
    }
}

impl Machine for Cascade {
    fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served]) {
        for begin in (0..batch.blocks.len()).step_by(REQUESTS) {
            let Upper { tier, sent } = &mut self.first;
            sent.messages.clear();
            tier.feed(&batch.part(begin..begin + REQUESTS), served, sent);
            let mut messages = &sent.messages;
            for Upper { tier, sent } in &mut self.middle {
                sent.messages.clear();
                tier.take(messages, served, sent);
                messages = &sent.messages;
            }
            self.last.take(messages, served, &mut self.store);
        }
    }

    /// Every level has a thread, the first level this one.
    fn feed_spread(&mut self, batches: &mut dyn Batches, served: &mut [Served]) {
        let Self {
            first,
            middle,
            last,
            store,
        } = self;
        let none = vec![Served::default(); served.len()];
        thread::scope(|scope| {
            let (to_next, mut from_above) = conveyor();
            let mut below = Vec::new();
            for upper in middle {
                let (to_next, next) = conveyor();
                let messages = std::mem::replace(&mut from_above, next);
                let mut served = none.clone();
                below.push(scope.spawn(move || {
                    take_all(upper, messages, &to_next, &mut served);
                    served
                }));
            }
            let mut of_last = none.clone();
            below.push(scope.spawn(move || {
                from_above.each(|messages| {
                    last.take(messages, &mut of_last, store);
                    last.fault().is_none()
                });
                of_last
            }));
            first.sent.messages.clear();
            batches.each(&mut |batch| {
                first.tier.feed(batch, served, &mut first.sent);
                first.goes_on(&to_next)
            });
            // Nobody takes it if a policy has failed.
            let _ = to_next.send(&mut first.sent.messages);
            drop(to_next);
            for thread in below {
                let found = thread.join().unwrap_or_else(|thrown| resume_unwind(thrown));
                for (served, found) in served.iter_mut().zip(&found) {
                    served.add(found);
                }
            }
        });
    }

    fn counters(&self) -> Vec<Counters> {
        let uppers = self.uppers().map(|upper| upper.tier.counters());
        uppers.chain([self.last.counters()]).collect()
    }
    fn remarks(&self) -> Vec<Vec<String>> {
        let uppers = self.uppers().map(|upper| upper.tier.remarks());
        uppers.chain([self.last.remarks()]).collect()
    }
    fn fault(&self) -> Option<&SpecError> {
        let mut uppers = self.uppers();
        let upper = uppers.find_map(|upper| upper.tier.fault());
        upper.or_else(|| self.last.fault())
    }
    fn store(&self) -> Store {
        let uppers = self.uppers().map(|upper| &upper.sent.store);
        uppers.fold(self.store, |sum, store| sum.plus(store))
    }
}

impl Upper {
    /// Hands messages on if they are many. Returns false if no more are to come, because a policy
    /// has failed.
    fn goes_on(&mut self, to_next: &Filling<Message>) -> bool {
        let sent = &mut self.sent.messages;
        let is_taken = sent.len() < PART || to_next.send(sent);
        is_taken && self.tier.fault().is_none()
    }
}

/// Takes what a level above sends, until the end or until a policy fails.
fn take_all(
    upper: &mut Upper,
    messages: Taking<Message>,
    to_next: &Filling<Message>,
    served: &mut [Served],
) {
    upper.sent.messages.clear();
    messages.each(|messages| {
        upper.tier.take(messages, served, &mut upper.sent);
        upper.goes_on(to_next)
    });
    // Nobody takes it if a policy has failed.
    let _ = to_next.send(&mut upper.sent.messages);
}
