//! Hierarchies for the inner loop of a simulation: fed in batches, and for the common shapes
//! (one level; LRU above anything) with every call known at compile time.

use crate::hierarchy::{Hierarchy, HierarchyShape};
use crate::index::BackedIndex;
use crate::link::{Below, Link, Place, Store, put};
use futae_policy::replace::lru::Lru;
use futae_policy::{
    Access, BlockId, Counters, DenseIndex, Index, Level, Policy, SpecError, Visit, visit,
};
use futae_trace::BlockRequest;
use std::hint::black_box;

/// A hierarchy that takes requests in batches.
pub trait Machine: Send {
    /// Takes the next requests. Blocks carry their number in the whole hierarchy, which must be
    /// below guests × blocks. Returns how many requests some level served.
    fn feed(&mut self, requests: &[BlockRequest]) -> u64;
    /// The counts of each level, top down, summed over guests.
    fn counters(&self) -> Vec<Counters>;
    /// The store's counts.
    fn store(&self) -> Store;
}

/// Builds the fastest machine for a shape.
pub fn build(shape: &HierarchyShape) -> Result<Box<dyn Machine>, SpecError> {
    shape.check();
    let bottom = shape.levels.len() - 1;
    let blocks = u64::from(shape.guests) * shape.blocks;
    let level = &shape.levels[bottom];
    let policy = shape.policy_shape(0, bottom);
    let lru_above = bottom == 1
        && shape.guests == 1
        && shape.levels[0].policy == futae_policy::PolicySpec::plain("lru");
    if bottom == 0 {
        visit(
            &level.policy,
            &policy,
            MakeOne {
                slots: level.slots,
                blocks,
            },
        )
    } else if lru_above {
        let upper = shape.levels[0].slots;
        let link = shape.links[0];
        visit(
            &level.policy,
            &policy,
            MakeTwo {
                upper,
                link,
                slots: level.slots,
                blocks,
            },
        )
    } else {
        Ok(Box::new(Hierarchy::new(shape)?))
    }
}

#[inline]
fn access_of(request: BlockRequest) -> Access {
    Access::of(BlockId::on_first(request.block()), request.kind())
}

/// Looks every block of a batch up before its turn comes, so that the memory reads of a whole
/// batch wait together and not one after the other.
#[inline]
fn look_ahead<P: Policy, I: Index>(level: &Level<P, I>, requests: &[BlockRequest]) {
    let mut resident = 0u64;
    for request in requests {
        resident += u64::from(level.find(BlockId::on_first(request.block())).is_some());
    }
    black_box(resident);
}

/// One level over the store.
struct One<P> {
    level: Level<P, BackedIndex>,
    store: Store,
}

struct MakeOne {
    slots: u32,
    blocks: u64,
}

impl Visit for MakeOne {
    type Output = Box<dyn Machine>;
    fn visit<P: Policy + 'static>(self, policy: P) -> Self::Output {
        let level = Level::new(policy, BackedIndex::new(0, self.blocks), self.slots);
        Box::new(One {
            level,
            store: Store::default(),
        })
    }
}

impl<P: Policy> Machine for One<P> {
    fn feed(&mut self, requests: &[BlockRequest]) -> u64 {
        look_ahead(&self.level, requests);
        let mut served = 0;
        for &request in requests {
            let access = access_of(request);
            let depth = put(&mut self.level, Link::Inclusive, &mut self.store, &access);
            served += u64::from(depth == 0);
        }
        served
    }
    fn counters(&self) -> Vec<Counters> {
        vec![*self.level.counters()]
    }
    fn store(&self) -> Store {
        self.store
    }
}

/// A level over the store, below another level.
struct Lower<'a, Q> {
    level: &'a mut Level<Q, DenseIndex>,
    store: &'a mut Store,
}

impl<Q: Policy> Below for Lower<'_, Q> {
    #[inline]
    fn access(&mut self, access: &Access) -> u32 {
        put(self.level, Link::Inclusive, self.store, access)
    }
    #[inline]
    fn fetch(&mut self, block: BlockId) {
        self.store.fetch(block);
    }
    fn invalidate(&mut self, block: BlockId) {
        Place::invalidate(self.level, block);
        self.store.invalidate(block);
    }
}

/// One level above another, for one guest, with policies known at compile time.
///
/// The lower level is asked for demoted blocks, of which most were there before and are no longer:
/// an index that forgets lazily would need two looks for each.
pub struct TwoLevels<P, Q> {
    upper: Level<P, BackedIndex>,
    link: Link,
    lower: Level<Q, DenseIndex>,
    store: Store,
}

impl<P: Policy, Q: Policy> TwoLevels<P, Q> {
    /// Joins two levels, whose indexes must cover the same blocks.
    #[must_use]
    pub fn new(upper: Level<P, BackedIndex>, link: Link, lower: Level<Q, DenseIndex>) -> Self {
        Self {
            upper,
            link,
            lower,
            store: Store::default(),
        }
    }
}

struct MakeTwo {
    upper: u32,
    link: Link,
    slots: u32,
    blocks: u64,
}

impl Visit for MakeTwo {
    type Output = Box<dyn Machine>;
    fn visit<Q: Policy + 'static>(self, policy: Q) -> Self::Output {
        let index = BackedIndex::new(0, self.blocks);
        let upper = Level::new(Lru::new(self.upper), index, self.upper);
        let lower = Level::new(policy, DenseIndex::new(self.blocks as usize), self.slots);
        Box::new(TwoLevels::new(upper, self.link, lower))
    }
}

impl<P: Policy, Q: Policy> Machine for TwoLevels<P, Q> {
    fn feed(&mut self, requests: &[BlockRequest]) -> u64 {
        look_ahead(&self.upper, requests);
        look_ahead(&self.lower, requests);
        let mut served = 0;
        for &request in requests {
            let below = &mut Lower {
                level: &mut self.lower,
                store: &mut self.store,
            };
            let depth = put(&mut self.upper, self.link, below, &access_of(request));
            served += u64::from(depth < 2);
        }
        served
    }
    fn counters(&self) -> Vec<Counters> {
        vec![*self.upper.counters(), *self.lower.counters()]
    }
    fn store(&self) -> Store {
        self.store
    }
}

impl Machine for Hierarchy {
    fn feed(&mut self, requests: &[BlockRequest]) -> u64 {
        let levels = self.levels() as u32;
        let mut served = 0;
        for &request in requests {
            let guest = self.guest_of(request.block());
            served += u64::from(self.put(guest, &access_of(request)) < levels);
        }
        served
    }

    fn counters(&self) -> Vec<Counters> {
        let levels = self.levels();
        let own = (0..levels - 1).map(|level| {
            (0..self.guests())
                .map(|guest| *Self::counters(self, guest, level))
                .fold(Counters::default(), |sum, more| sum_of(&sum, &more))
        });
        own.chain([*Self::counters(self, 0, levels - 1)]).collect()
    }

    fn store(&self) -> Store {
        *Self::store(self)
    }
}

fn sum_of(a: &Counters, b: &Counters) -> Counters {
    Counters {
        requests: a.requests + b.requests,
        hits: a.hits + b.hits,
        misses: a.misses + b.misses,
        admissions: a.admissions + b.admissions,
        bypasses: a.bypasses + b.bypasses,
        evictions: a.evictions + b.evictions,
        demotions_in: a.demotions_in + b.demotions_in,
        demotions_declined: a.demotions_declined + b.demotions_declined,
        demotions_out: a.demotions_out + b.demotions_out,
        notices_in: a.notices_in + b.notices_in,
        notices_out: a.notices_out + b.notices_out,
        invalidations: a.invalidations + b.invalidations,
    }
}
