//! Levels joined by links, for any number of levels and guests.
//!
//! Every guest has its own copy of each level except the last, which all share; a single level is
//! shared. Guests never share blocks: in a hierarchy of *n* blocks per guest, guest *g* has the
//! blocks `g * n .. (g + 1) * n` of volume 0.

use crate::index::BackedIndex;
use crate::link::{Below, Link, Place, Reach, Store, put};
use crate::write_back::{BelowBack, Dirt, DirtyPlace, Landed, WriteMode, Written, put_back};
use futae_policy::{
    Access, AccessKind, BlockId, Class, Counters, Decision, Directive, Level, Outcome, PolicySpec,
    Prng, RegisteredPolicy, Shape, SpecError,
};
use std::ops::Range;

/// The parameters of one level.
#[derive(Clone, Debug)]
pub struct LevelShape {
    /// Its policy.
    pub policy: PolicySpec,
    /// Its capacity in slots, at least 1.
    pub slots: u32,
    /// The capacities of the second and later guests' copies; empty if all equal the first.
    pub others: Vec<u32>,
}

impl LevelShape {
    /// The capacity of a guest's copy.
    #[must_use]
    pub fn slots_of(&self, guest: u32) -> u32 {
        let others = guest
            .checked_sub(1)
            .and_then(|at| self.others.get(at as usize));
        others.copied().unwrap_or(self.slots)
    }

    /// The capacity of the copies of the first `guests` guests together.
    #[must_use]
    pub fn slots_together(&self, guests: u32) -> u64 {
        (0..guests)
            .map(|guest| u64::from(self.slots_of(guest)))
            .sum()
    }

    /// The capacity of the largest copy.
    #[must_use]
    pub fn slots_max(&self) -> u32 {
        self.others.iter().copied().fold(self.slots, u32::max)
    }
}

/// The parameters of a hierarchy.
#[derive(Clone, Debug)]
pub struct HierarchyShape {
    /// Top down, at least one.
    pub levels: Vec<LevelShape>,
    /// The links between adjacent levels, top down: one less than levels.
    pub links: Vec<Link>,
    /// When written data goes to the store.
    pub write_mode: WriteMode,
    /// Guests, at least 1.
    pub guests: u32,
    /// Blocks of each guest.
    pub blocks: u64,
    /// For each guest the numbers, among its own, at which its volumes begin, in order; empty if each guest has one volume.
    pub volumes: Vec<Vec<u32>>,
    /// The seed from which every level's policy gets its own.
    pub seed: u64,
}

impl HierarchyShape {
    /// The seed of the policy at level `level` (from the top, 0) of `guest`.
    #[must_use]
    pub fn policy_seed(&self, guest: u32, level: usize) -> u64 {
        derived_seed(self.seed, u64::from(guest) << 32 | (level as u64 + 1))
    }

    /// The shape of the policy at level `level` (from the top, 0) of `guest`.
    #[must_use]
    pub fn policy_shape(&self, guest: u32, level: usize) -> Shape {
        Shape {
            slots: self.levels[level].slots_of(guest),
            seed: self.policy_seed(guest, level),
        }
    }

    /// Where the volumes of these guests begin, by numbers in the whole hierarchy.
    pub(crate) fn volumes_of(&self, guests: Range<u32>) -> Vec<u64> {
        let of = |guest: u32| {
            let own = self
                .volumes
                .get(guest as usize)
                .filter(|own| !own.is_empty());
            let own = own.map_or(&[0][..], Vec::as_slice).iter();
            let first = u64::from(guest) * self.blocks;
            own.map(move |&begin| first + u64::from(begin))
        };
        guests.flat_map(of).collect()
    }

    pub(crate) fn check(&self) {
        assert!(
            !self.levels.is_empty() && self.guests > 0,
            "at least one level and one guest"
        );
        assert_eq!(
            self.links.len() + 1,
            self.levels.len(),
            "one link between two levels"
        );
    }
}

/// A seed for stream number `stream` under `seed`. Stream 0 is `seed` itself.
pub(crate) fn derived_seed(seed: u64, stream: u64) -> u64 {
    if stream == 0 {
        return seed;
    }
    let mixed = Prng::new(stream).bits();
    Prng::new(seed ^ mixed).bits()
}

/// Receives every decision of one level, in order.
pub type DecisionLog = Box<dyn FnMut(&Decision) + Send>;

/// One level, with the link to the next lower one.
struct Stage {
    reach: Reach<Box<dyn RegisteredPolicy>, BackedIndex>,
    link: Link,
    dirt: Dirt,
    log: Option<DecisionLog>,
}

impl Place for Stage {
    #[inline]
    fn access(&mut self, access: &Access) -> Outcome {
        let outcome = self.reach.access(access);
        if let Some(log) = &mut self.log {
            log(&Decision::new(access, &outcome));
        }
        outcome
    }
    #[inline]
    fn review(&mut self) -> Option<BlockId> {
        self.reach.review()
    }
    fn reads_ahead(&self) -> bool {
        self.reach.reads_ahead
    }
    #[inline]
    fn note_sent_down(&mut self, kind: AccessKind) {
        self.reach.note_sent_down(kind);
    }
    fn invalidate(&mut self, block: BlockId) {
        if self.is_dirty(block) {
            self.dirt.discard();
        }
        self.reach.invalidate(block);
    }
    fn directive(&self, block: BlockId) -> Option<Directive> {
        self.reach.directive(block)
    }
    fn direct(&mut self, directive: &Directive) {
        self.reach.direct(directive);
    }
}

impl DirtyPlace for Stage {
    fn is_dirty(&self, block: BlockId) -> bool {
        let level = &self.reach.level;
        let slot = level.find(block);
        slot.is_some_and(|slot| level.class_in(slot).has(Class::DIRTY))
    }
    fn dirt(&mut self) -> &mut Dirt {
        &mut self.dirt
    }
}

/// The part of a hierarchy below a level: a guest's own levels, then the shared one, then the
/// store.
struct Rest<'a> {
    own: &'a mut [Stage],
    shared: Option<&'a mut Stage>,
    store: &'a mut Store,
}

impl Below for Rest<'_> {
    fn access(&mut self, access: &Access) -> u32 {
        if let Some((stage, own)) = self.own.split_first_mut() {
            let shared = self.shared.as_deref_mut();
            let link = stage.link;
            put(
                stage,
                link,
                &mut Rest {
                    own,
                    shared,
                    store: self.store,
                },
                access,
            )
        } else if let Some(stage) = self.shared.as_deref_mut() {
            put(stage, Link::None, self.store, access)
        } else {
            self.store.access(access)
        }
    }
    fn fetch(&mut self, block: BlockId) {
        if !self.is_dirty(block) {
            self.store.fetch(block);
        }
    }
    fn preload(&mut self, block: BlockId) {
        if !self.is_dirty(block) {
            self.store.preload(block);
        }
    }
    fn read_ahead(&mut self, block: BlockId) {
        if self.store_depth() > 0 {
            self.access(&Access::read(block));
        } else {
            self.store.read_ahead(block);
        }
    }
    fn invalidate(&mut self, block: BlockId) {
        let all = self.own.iter_mut().chain(self.shared.as_deref_mut());
        all.for_each(|stage| Place::invalidate(stage, block));
        self.store.invalidate(block);
    }
    fn direct(&mut self, directive: &Directive) {
        let next = self.own.first_mut().or(self.shared.as_deref_mut());
        if let Some(stage) = next {
            stage.direct(directive);
        }
    }
}

impl Rest<'_> {
    /// Whether some level has data for the block that the store does not have.
    fn is_dirty(&self, block: BlockId) -> bool {
        let mut all = self.own.iter().chain(self.shared.as_deref());
        all.any(|stage| stage.is_dirty(block))
    }
}

impl BelowBack for Rest<'_> {
    fn put_back(&mut self, access: &Access) -> Landed {
        if let Some((stage, own)) = self.own.split_first_mut() {
            let shared = self.shared.as_deref_mut();
            let link = stage.link;
            let store = &mut *self.store;
            put_back(stage, link, &mut Rest { own, shared, store }, access)
        } else if let Some(stage) = self.shared.as_deref_mut() {
            put_back(stage, Link::None, self.store, access)
        } else {
            self.store.put_back(access)
        }
    }
    fn store_depth(&self) -> u32 {
        self.own.len() as u32 + u32::from(self.shared.is_some())
    }
}

/// Levels of any policies, joined by links, over one store.
pub struct Hierarchy {
    own: Vec<Vec<Stage>>,
    shared: Stage,
    store: Store,
    blocks: u64,
    /// Under write-back, the application's writes by the level that accepted them.
    taken: Option<Vec<u64>>,
}

impl Hierarchy {
    /// Builds every level, empty. Panics unless the shape has levels, guests and one link less than
    /// levels.
    pub fn new(shape: &HierarchyShape) -> Result<Self, SpecError> {
        shape.check();
        let bottom = shape.levels.len() - 1;
        let stage = |guests: Range<u32>, at: usize| {
            let guest = guests.start;
            let first = u64::from(guest) * shape.blocks;
            let end = u64::from(guests.end) * shape.blocks;
            let level = &shape.levels[at];
            let mut spec = level.policy.clone();
            if let Some(below) = shape.levels.get(at + 1) {
                spec.set_below(below.slots);
            }
            let policy = futae_policy::build(&spec, &shape.policy_shape(guest, at))?;
            let index = BackedIndex::new(first);
            let mut level = Level::new(policy, index, level.slots_of(guest));
            level.number_blocks(first);
            level.note_volumes(&shape.volumes_of(guests));
            Ok(Stage {
                reach: Reach {
                    level,
                    blocks: first..end,
                    reads_ahead: spec.reads_ahead(),
                },
                link: shape.links.get(at).copied().unwrap_or_default(),
                dirt: Dirt::default(),
                log: None,
            })
        };
        let own = |guest: u32| {
            let levels = 0..bottom;
            levels.map(|at| stage(guest..guest + 1, at)).collect()
        };
        Ok(Self {
            own: (0..shape.guests)
                .map(own)
                .collect::<Result<_, SpecError>>()?,
            shared: stage(0..shape.guests, bottom)?,
            store: Store::default(),
            blocks: shape.blocks,
            taken: (shape.write_mode == WriteMode::WriteBack)
                .then(|| vec![0; shape.levels.len() + 1]),
        })
    }

    /// Number of levels.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.own[0].len() + 1
    }

    /// Number of guests.
    #[must_use]
    pub fn guests(&self) -> u32 {
        self.own.len() as u32
    }

    /// Sends one demand access of `guest` to one of its own blocks, numbered from 0. Returns the
    /// level that served it, from 0; the number of levels stands for the store.
    pub fn access(&mut self, guest: u32, block: u64, kind: AccessKind) -> u32 {
        let block = self.block(guest, block);
        self.put(guest, &Access::of(block, kind))
    }

    /// Sends an access to a block of `guest` under its number in the whole hierarchy.
    #[inline]
    pub(crate) fn put(&mut self, guest: u32, access: &Access) -> u32 {
        if self.taken.is_none() {
            return self.rest(guest).access(access);
        }
        let landed = self.rest(guest).put_back(access);
        if let (Some(taken), AccessKind::Write) = (&mut self.taken, access.kind) {
            taken[landed.ended as usize] += 1;
        }
        landed.served
    }

    /// Drops a block of `guest` at every level, because it was trimmed or changed outside the
    /// caches.
    pub fn invalidate(&mut self, guest: u32, block: u64) {
        let block = self.block(guest, block);
        self.rest(guest).invalidate(block);
    }

    fn rest(&mut self, guest: u32) -> Rest<'_> {
        let own = &mut self.own[guest as usize];
        Rest {
            own,
            shared: Some(&mut self.shared),
            store: &mut self.store,
        }
    }

    fn block(&self, guest: u32, block: u64) -> BlockId {
        assert!(
            block < self.blocks,
            "block {block} of a guest with {} blocks",
            self.blocks
        );
        BlockId::on_first(u64::from(guest) * self.blocks + block)
    }

    /// The guest to which a block belongs, by its number in the whole hierarchy.
    #[inline]
    pub(crate) fn guest_of(&self, block: u64) -> u32 {
        if self.own.len() == 1 {
            0
        } else {
            (block / self.blocks) as u32
        }
    }

    fn stage(&self, guest: u32, level: usize) -> &Stage {
        self.own[guest as usize].get(level).unwrap_or(&self.shared)
    }

    /// The counters of one level; the last level has the same for every guest.
    #[must_use]
    pub fn counters(&self, guest: u32, level: usize) -> Counters {
        self.stage(guest, level).reach.level.counters()
    }

    /// The decisions of one level's policy about itself.
    #[must_use]
    pub fn remarks(&self, guest: u32, level: usize) -> &[String] {
        self.stage(guest, level).reach.level.remarks()
    }

    /// Why some level's policy has failed, if one has.
    #[must_use]
    pub fn fault(&self) -> Option<&SpecError> {
        let own = self.own.iter().flatten();
        let mut stages = own.chain([&self.shared]);
        stages.find_map(|stage| stage.reach.level.fault())
    }

    /// Where writes went; `None` under write-through, where all go to the store.
    #[must_use]
    pub fn written(&self) -> Option<Written> {
        let taken = self.taken.clone()?;
        let own = (0..self.levels() - 1).map(|level| {
            let all = self.own.iter().map(|stages| stages[level].dirt);
            all.fold(Dirt::default(), |sum, dirt| sum.plus(&dirt))
        });
        let levels = own.chain([self.shared.dirt]).collect();
        Some(Written { levels, taken })
    }

    /// The store's counts.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The blocks at one level, safest first, next victim last, by their numbers in the whole
    /// hierarchy.
    #[must_use]
    pub fn order(&self, guest: u32, level: usize) -> Vec<u64> {
        self.stage(guest, level)
            .reach
            .level
            .order()
            .into_iter()
            .map(BlockId::index)
            .collect()
    }

    /// Passes every later decision of one level to `log`, with block numbers of the whole
    /// hierarchy, on volume 0.
    pub fn set_log(&mut self, guest: u32, level: usize, log: DecisionLog) {
        let own = &mut self.own[guest as usize];
        own.get_mut(level).unwrap_or(&mut self.shared).log = Some(log);
    }

    /// Panics unless every level is consistent with its policy and with its number of dirty blocks.
    /// For tests.
    pub fn audit(&self) {
        for stage in self.own.iter().flatten().chain([&self.shared]) {
            let level = &stage.reach.level;
            level.audit();
            let blocks = level.order().into_iter();
            let dirty = blocks.filter(|&block| stage.is_dirty(block)).count();
            assert_eq!(dirty as u64, stage.dirt.blocks, "dirty blocks miscounted");
        }
    }
}
