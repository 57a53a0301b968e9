//! Hierarchies for the inner loop of a simulation: fed in batches, and for the common shapes (one
//! level; LRU above any policy) with static dispatch of every call.

use crate::batch::{Batch, block};
use crate::hierarchy::{Hierarchy, HierarchyShape};
use crate::index::BackedIndex;
use crate::link::{Below, Link, Place, Reach, Store, load_reviewed, put};
use crate::write_back::{WriteMode, Written};
use futae_policy::replace::lru::Lru;
use futae_policy::{
    Access, BlockId, Counters, DenseIndex, Directive, Index, Kind, Level, Policy, PolicySpec,
    RegisteredPolicy, Slot, SpecError, Visit, visit,
};
use serde::Serialize;

/// Requests served by one level, or by the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Served {
    /// Reads.
    pub reads: u64,
    /// Writes. All of them go to the store, but they count where the block was found.
    pub writes: u64,
    /// Bytes of reads and writes.
    pub bytes: u64,
}

/// A hierarchy that takes requests in batches.
pub trait Machine: Send {
    /// Sends the next requests, and adds to `served`, which has for each guest an element for each
    /// level and one for the store, where each was served. Bytes are added only if the batch has
    /// them.
    fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served]);
    /// The counters of each level, top down, summed over guests.
    fn counters(&self) -> Vec<Counters>;
    /// The decisions of each level's policy about itself, top down, of all guests.
    fn remarks(&self) -> Vec<Vec<String>>;
    /// The error of the first level whose policy has failed.
    fn fault(&self) -> Option<&SpecError>;
    /// The store's counts.
    fn store(&self) -> Store;
    /// Where writes went under write-back.
    fn written(&self) -> Option<Written> {
        None
    }
}

/// Builds the fastest machine for a shape.
pub fn build(shape: &HierarchyShape) -> Result<Box<dyn Machine>, SpecError> {
    shape.check();
    let bottom = shape.levels.len() - 1;
    let blocks = u64::from(shape.guests) * shape.blocks;
    let level = &shape.levels[bottom];
    let policy = shape.policy_shape(0, bottom);
    let lru_above =
        bottom == 1 && shape.guests == 1 && shape.levels[0].policy == PolicySpec::of(Kind::lru);
    if shape.write_mode == WriteMode::WriteBack {
        Ok(Box::new(Hierarchy::new(shape)?))
    } else if bottom == 0 {
        build_last(shape)
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

/// Builds the last level of a shape alone, over the store.
pub fn build_last(shape: &HierarchyShape) -> Result<Box<dyn Machine>, SpecError> {
    let last = shape.levels.len() - 1;
    let level = &shape.levels[last];
    let alone = MakeOne {
        slots: level.slots,
        blocks: u64::from(shape.guests) * shape.blocks,
        guests: (shape.guests > 1).then_some(shape.blocks),
    };
    visit(&level.policy, &shape.policy_shape(0, last), alone)
}

/// Sends each request of a batch; `put` returns the place at which it was served.
fn each(batch: &Batch<'_>, served: &mut [Served], mut put: impl FnMut(&Access) -> u32) {
    for at in 0..batch.blocks.len() {
        let access = batch.access(at);
        count(&mut served[put(&access) as usize], batch, at);
    }
}

#[inline(always)]
fn count(place: &mut Served, batch: &Batch<'_>, at: usize) {
    let is_write = u64::from(batch.is_write(at));
    place.writes += is_write;
    place.reads += 1 - is_write;
    place.bytes += u64::from(batch.bytes_of(at));
}

/// The number of requests for which data is prefetched together: few enough for the processor's
/// nearest cache.
const AHEAD: usize = 128;

/// A machine whose first level serves most requests.
trait Ahead {
    /// Prefetches what [`look_ahead`](Self::look_ahead) will read first.
    fn prefetch(&self, blocks: &[u32]);
    /// Reads what requests for these blocks will need, and stores in `likely` the slot of each at
    /// the first level, or any slot.
    fn look_ahead(&self, blocks: &[u32], likely: &mut [Slot]);
    /// Sends a read whose block is in slot `likely` of the first level; does nothing and returns
    /// false if it is not.
    fn hit(&mut self, likely: Slot, access: &Access) -> bool;
    /// Sends any request; returns how far down it was served.
    fn put(&mut self, access: &Access) -> u32;
}

/// As [`each`], with a look-ahead before each group of requests.
#[inline(always)]
fn each_ahead(machine: &mut impl Ahead, batch: &Batch<'_>, served: &mut [Served]) {
    let mut likely = [Slot(0); AHEAD];
    for begin in (0..batch.blocks.len()).step_by(AHEAD) {
        let few = batch.part(begin..begin + AHEAD);
        machine.prefetch(batch.part(begin + AHEAD..begin + 2 * AHEAD).blocks);
        machine.look_ahead(few.blocks, &mut likely);
        // Most runs have none of these; checking for them at every request would cost a tenth of
        // the time.
        if few.next_uses.is_empty() && few.bytes.is_empty() && few.only_reads() {
            read_all(machine, few.blocks, &likely, served);
        } else {
            put_all(machine, &few, &likely, served);
        }
    }
}

/// Sends reads without additional facts.
#[inline(always)]
fn read_all(machine: &mut impl Ahead, blocks: &[u32], likely: &[Slot], served: &mut [Served]) {
    let mut others = 0;
    for (&number, &likely) in blocks.iter().zip(likely) {
        let access = Access::read(block(number));
        if !machine.hit(likely, &access) {
            others += 1;
            served[machine.put(&access) as usize].reads += 1;
        }
    }
    served[0].reads += blocks.len() as u64 - others;
}

#[inline(always)]
fn put_all(machine: &mut impl Ahead, batch: &Batch<'_>, likely: &[Slot], served: &mut [Served]) {
    let mut hits = Served::default();
    for (at, &likely) in (0..batch.blocks.len()).zip(likely) {
        if !batch.is_write(at) && machine.hit(likely, &batch.access(at)) {
            hits.reads += 1;
            hits.bytes += u64::from(batch.bytes_of(at));
        } else {
            let depth = machine.put(&batch.access(at));
            count(&mut served[depth as usize], batch, at);
        }
    }
    served[0].reads += hits.reads;
    served[0].bytes += hits.bytes;
}

#[inline]
fn look_ahead<P: RegisteredPolicy, I: Index>(
    level: &Level<P, I>,
    blocks: &[u32],
    likely: &mut [Slot],
) {
    let blocks = blocks.iter().map(|&number| block(number));
    level.look_ahead(blocks, likely, |_| {});
}

/// As [`each_ahead`], for a single level shared by guests with `blocks` blocks each.
fn each_of_guests(machine: &mut impl Ahead, batch: &Batch<'_>, blocks: u64, served: &mut [Served]) {
    let mut likely = [Slot(0); AHEAD];
    for begin in (0..batch.blocks.len()).step_by(AHEAD) {
        let few = batch.part(begin..begin + AHEAD);
        machine.prefetch(batch.part(begin + AHEAD..begin + 2 * AHEAD).blocks);
        machine.look_ahead(few.blocks, &mut likely);
        for (at, &likely) in (0..few.blocks.len()).zip(&likely) {
            let access = few.access(at);
            let is_hit = !few.is_write(at) && machine.hit(likely, &access);
            let depth = if is_hit { 0 } else { machine.put(&access) };
            let guest = u64::from(few.blocks[at]) / blocks;
            count(&mut served[2 * guest as usize + depth as usize], &few, at);
        }
    }
}

/// One level over the store.
struct One<P> {
    reach: Reach<P, BackedIndex>,
    store: Store,
    /// Blocks per guest, if several share it.
    guests: Option<u64>,
}

struct MakeOne {
    slots: u32,
    blocks: u64,
    guests: Option<u64>,
}

impl Visit for MakeOne {
    type Output = Box<dyn Machine>;
    fn visit<P: RegisteredPolicy + 'static>(self, policy: P) -> Self::Output {
        let mut level = Level::new(policy, BackedIndex::new(0), self.slots);
        level.number_blocks(0);
        Box::new(One {
            reach: Reach {
                level,
                blocks: 0..self.blocks,
            },
            store: Store::default(),
            guests: self.guests,
        })
    }
}

impl<P: RegisteredPolicy> Ahead for One<P> {
    #[inline(always)]
    fn prefetch(&self, blocks: &[u32]) {
        let blocks = blocks.iter().map(|&number| block(number));
        self.reach.level.prefetch(blocks);
    }
    #[inline(always)]
    fn look_ahead(&self, blocks: &[u32], likely: &mut [Slot]) {
        look_ahead(&self.reach.level, blocks, likely);
    }
    #[inline(always)]
    fn hit(&mut self, likely: Slot, access: &Access) -> bool {
        let hit = self.reach.level.access_in(likely, access);
        if hit {
            load_reviewed(&mut self.reach, Link::None, &mut self.store);
        }
        hit
    }
    #[inline(never)]
    fn put(&mut self, access: &Access) -> u32 {
        put(&mut self.reach, Link::None, &mut self.store, access)
    }
}

impl<P: RegisteredPolicy> Machine for One<P> {
    fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served]) {
        match self.guests {
            None => each_ahead(self, batch, served),
            Some(blocks) => each_of_guests(self, batch, blocks, served),
        }
    }
    fn counters(&self) -> Vec<Counters> {
        vec![self.reach.level.counters()]
    }
    fn remarks(&self) -> Vec<Vec<String>> {
        vec![self.reach.level.remarks().to_vec()]
    }
    fn fault(&self) -> Option<&SpecError> {
        self.reach.level.fault()
    }
    fn store(&self) -> Store {
        self.store
    }
}

/// A level over the store, below another level.
struct Lower<'a, Q> {
    reach: &'a mut Reach<Q, DenseIndex>,
    store: &'a mut Store,
}

impl<Q: Policy> Below for Lower<'_, Q> {
    #[inline(never)]
    fn access(&mut self, access: &Access) -> u32 {
        put(self.reach, Link::None, self.store, access)
    }
    #[inline]
    fn fetch(&mut self, block: BlockId) {
        self.store.fetch(block);
    }
    #[inline]
    fn preload(&mut self, block: BlockId) {
        self.store.preload(block);
    }
    fn read_ahead(&mut self, block: BlockId) {
        self.access(&Access::read(block));
    }
    fn invalidate(&mut self, block: BlockId) {
        self.reach.invalidate(block);
        self.store.invalidate(block);
    }
    #[inline]
    fn direct(&mut self, directive: &Directive) {
        self.reach.direct(directive);
    }
}

/// One level above another, for one guest, with policies known at compile time.
///
/// The lower level is asked mostly for demoted blocks that have left it again; an index with lazy
/// removal would need two look-ups for each.
pub struct TwoLevels<P, Q> {
    upper: Reach<P, BackedIndex>,
    link: Link,
    lower: Reach<Q, DenseIndex>,
    store: Store,
}

impl<P: Policy, Q: Policy> TwoLevels<P, Q> {
    /// Joins two levels, whose indexes must cover the blocks `0..blocks`.
    #[must_use]
    pub fn new(
        upper: Level<P, BackedIndex>,
        link: Link,
        lower: Level<Q, DenseIndex>,
        blocks: u64,
    ) -> Self {
        Self {
            upper: Reach {
                level: upper,
                blocks: 0..blocks,
            },
            link,
            lower: Reach {
                level: lower,
                blocks: 0..blocks,
            },
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
    fn visit<Q: RegisteredPolicy + 'static>(self, policy: Q) -> Self::Output {
        let index = BackedIndex::new(0);
        let upper = Level::new(Lru::new(self.upper), index, self.upper);
        let mut lower = Level::new(policy, DenseIndex::new(0), self.slots);
        lower.number_blocks(0);
        Box::new(TwoLevels::new(upper, self.link, lower, self.blocks))
    }
}

impl<P: RegisteredPolicy, Q: RegisteredPolicy> Ahead for TwoLevels<P, Q> {
    #[inline(always)]
    fn prefetch(&self, blocks: &[u32]) {
        let blocks = blocks.iter().map(|&number| block(number));
        self.upper.level.prefetch(blocks);
    }
    #[inline(always)]
    fn look_ahead(&self, blocks: &[u32], likely: &mut [Slot]) {
        let (upper, lower) = (&self.upper.level, &self.lower.level);
        let all = blocks.iter().map(|&number| block(number));
        upper.look_ahead(all.clone(), likely, |evicted| lower.prefetch_one(evicted));
        // Only these go down.
        let mut missed = [BlockId::on_first(0); AHEAD];
        let mut count = 0;
        for (block, &likely) in all.zip(likely.iter()) {
            missed[count] = block;
            count += usize::from(!upper.holds(likely, block));
        }
        let missed = missed[..count].iter().copied();
        lower.prefetch(missed.clone());
        lower.look_ahead(missed, &mut [Slot(0); AHEAD], |evicted| {
            lower.prefetch_one(evicted);
        });
    }
    #[inline(always)]
    fn hit(&mut self, likely: Slot, access: &Access) -> bool {
        let hit = self.upper.level.access_in(likely, access);
        if hit {
            let below = &mut Lower {
                reach: &mut self.lower,
                store: &mut self.store,
            };
            load_reviewed(&mut self.upper, self.link, below);
        }
        hit
    }
    #[inline(never)]
    fn put(&mut self, access: &Access) -> u32 {
        let below = &mut Lower {
            reach: &mut self.lower,
            store: &mut self.store,
        };
        put(&mut self.upper, self.link, below, access)
    }
}

impl<P: RegisteredPolicy, Q: RegisteredPolicy> Machine for TwoLevels<P, Q> {
    fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served]) {
        each_ahead(self, batch, served);
    }
    fn counters(&self) -> Vec<Counters> {
        vec![self.upper.level.counters(), self.lower.level.counters()]
    }
    fn remarks(&self) -> Vec<Vec<String>> {
        [self.upper.level.remarks(), self.lower.level.remarks()]
            .map(<[String]>::to_vec)
            .to_vec()
    }
    fn fault(&self) -> Option<&SpecError> {
        let upper = self.upper.level.fault();
        upper.or_else(|| self.lower.level.fault())
    }
    fn store(&self) -> Store {
        self.store
    }
}

impl Machine for Hierarchy {
    fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served]) {
        let places = self.levels() as u32 + 1;
        each(batch, served, |access| {
            let guest = self.guest_of(access.block.index());
            guest * places + self.put(guest, access)
        });
    }

    fn counters(&self) -> Vec<Counters> {
        let levels = self.levels();
        let own = (0..levels - 1).map(|level| {
            (0..self.guests())
                .map(|guest| Self::counters(self, guest, level))
                .fold(Counters::default(), |sum, more| sum_of(&sum, &more))
        });
        own.chain([Self::counters(self, 0, levels - 1)]).collect()
    }

    fn remarks(&self) -> Vec<Vec<String>> {
        let levels = self.levels();
        let own = (0..levels - 1).map(|level| {
            let of = |guest| Self::remarks(self, guest, level).to_vec();
            (0..self.guests()).flat_map(of).collect()
        });
        let last = Self::remarks(self, 0, levels - 1).to_vec();
        own.chain([last]).collect()
    }

    fn fault(&self) -> Option<&SpecError> {
        Self::fault(self)
    }

    fn store(&self) -> Store {
        *Self::store(self)
    }

    fn written(&self) -> Option<Written> {
        Self::written(self)
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
