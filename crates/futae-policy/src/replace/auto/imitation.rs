//! Keeps the content of the cache close to that of a leading level. The two have slots of their
//! own.

use super::agreed::{Agreed, Numbers};
use super::shadow::{Shadow, number};
use crate::structures::{Queues, Table};
use crate::{Access, Admission, BlockId, Class, Departure, Outcome, Slot, StoreCosts};

/// No slot; other values are a slot's number plus one.
const NONE: u32 = 0;

/// State of a slot of the cache.
#[derive(Clone, Copy, Debug, Default)]
struct Resident {
    block: BlockId,
    /// The leader's slot for the same block; [`NONE`] for a stray.
    own: u32,
}

/// A leading level, and which of its blocks the cache holds.
///
/// The leader sees every access. The cache admits what the leader admits, and evicts a *stray* for
/// it: a block that the cache holds and the leader does not. After a change of the leader there are
/// many strays, and as many blocks that only the leader holds; the cache fetches each of them at
/// its next access.
pub struct Imitation {
    leader: Shadow,
    residents: Table<Resident>,
    resident_count: u32,
    /// The cache's slot for each slot of the leader, or [`NONE`].
    real: Table<u32>,
    /// Slots of the cache with strays, next victim first.
    strays: Queues,
    /// The block that is about to be placed, and the leader's slot for it.
    pending: Option<(BlockId, Slot)>,
    /// Whether the leader held the last accessed block.
    led: bool,
}

impl Imitation {
    /// An empty cache that follows `leader`, which must be empty, too.
    pub fn new(leader: Shadow) -> Self {
        Self {
            residents: Table::new(leader.capacity()),
            resident_count: 0,
            real: Table::new(leader.capacity()),
            strays: Queues::new(1, 0),
            leader,
            pending: None,
            led: false,
        }
    }

    /// A cache that holds these blocks, the next victim first, and follows `leader` from now on.
    pub fn of(leader: Shadow, held: impl Iterator<Item = (Slot, BlockId)>) -> Self {
        let mut imitation = Self::new(leader);
        for (slot, block) in held {
            imitation.resident_count += 1;
            imitation.residents.at(slot).block = block;
            imitation.join(slot);
        }
        imitation
    }

    /// Whether cache and leader are full and hold the same.
    pub fn agrees(&self) -> bool {
        let full = self.leader.capacity();
        let is_full = self.resident_count == full && self.leader.resident() == full;
        is_full && self.stray_count() == 0
    }

    /// If they [agree](Self::agrees), the leader's policy over the slots of the cache. The cache has seen
    /// `seen` accesses so far. The leader becomes `spare`, which leads nothing.
    pub fn agree(&mut self, seen: u64, spare: Shadow) -> Agreed {
        let slots = self.leader.slots().into_iter();
        let pairs = slots.map(|own| (Slot(self.real.get(own).wrapping_sub(1)), own));
        let numbers = Numbers::new(pairs);
        let mut blocks = Table::new(self.resident_count);
        for slot in self.order() {
            blocks.set(slot, self.block(slot));
        }
        let leader = std::mem::replace(&mut self.leader, spare);
        let late = seen.wrapping_sub(leader.seen());
        Agreed::from_pairs(leader.into_policy(), numbers, blocks, late)
    }

    /// Whether the leader held the last accessed block.
    pub fn led(&self) -> bool {
        self.led
    }

    /// Switches to another leader of the same size and returns the old one. Takes time for every
    /// resident block.
    pub fn follow(&mut self, leader: Shadow) -> Shadow {
        let worst_first: Vec<Slot> = self.order().into_iter().rev().collect();
        let old = std::mem::replace(&mut self.leader, leader);
        self.real.clear();
        self.strays = Queues::new(1, 0);
        for slot in worst_first {
            self.join(slot);
        }
        old
    }

    /// A block of the cache, which the leader may hold, too.
    fn join(&mut self, slot: Slot) {
        match self.leader.find(self.block(slot)) {
            Some(own) => self.pair(slot, own),
            None => self.stray(slot),
        }
    }

    /// Number of strays.
    pub fn stray_count(&self) -> u32 {
        self.strays.len(0)
    }

    /// The block in a slot of the cache.
    pub fn block(&self, slot: Slot) -> BlockId {
        self.residents.get(slot).block
    }

    fn pair(&mut self, slot: Slot, own: Slot) {
        self.residents.at(slot).own = own.0 + 1;
        self.real.set(own, slot.0 + 1);
    }

    fn stray(&mut self, slot: Slot) {
        self.residents.at(slot).own = NONE;
        self.strays.push_back(0, slot);
    }

    /// The leader gave up the block in its slot `own`.
    fn left(&mut self, own: Slot) {
        let slot = std::mem::replace(self.real.at(own), NONE);
        if slot != NONE {
            self.stray(Slot(slot - 1));
        }
    }

    fn own(&self, slot: Slot) -> Option<Slot> {
        let own = self.residents.get(slot).own;
        (own != NONE).then(|| Slot(own - 1))
    }

    #[inline]
    pub fn miss(&mut self, access: &Access) -> Admission {
        let outcome = self.leader.access(access);
        self.led = matches!(outcome, Outcome::Hit(_));
        let own = match outcome {
            Outcome::Hit(own) => Some(own),
            Outcome::Admitted { slot: own, evicted } => {
                if evicted.is_some() {
                    self.left(own);
                }
                Some(own)
            }
            Outcome::Bypassed => None,
        };
        self.await_block(access.block, own)
    }

    fn await_block(&mut self, block: BlockId, own: Option<Slot>) -> Admission {
        self.pending = own.map(|own| (block, own));
        match own {
            Some(_) => Admission::Admit,
            None => Admission::Bypass,
        }
    }

    /// Whether to place an absent block if the leader has changed since the access.
    pub fn expect(&mut self, block: BlockId) -> Admission {
        let own = self.leader.find(block);
        self.await_block(block, own)
    }

    #[inline]
    pub fn insert(&mut self, slot: Slot, access: &Access) {
        self.resident_count += 1;
        self.residents.at(slot).block = access.block;
        match self.pending.take() {
            Some((block, own)) if block == access.block => self.pair(slot, own),
            _ => self.insert_unasked(slot, access),
        }
    }

    /// A block comes that was not asked for, as a policy around this one may have it, or that the leader declined.
    #[cold]
    fn insert_unasked(&mut self, slot: Slot, access: &Access) {
        match self.leader.access(access) {
            Outcome::Hit(own) => self.pair(slot, own),
            Outcome::Admitted { slot: own, evicted } => {
                if evicted.is_some() {
                    self.left(own);
                }
                self.pair(slot, own);
            }
            Outcome::Bypassed => self.stray(slot),
        }
    }

    #[inline]
    pub fn hit(&mut self, slot: Slot, access: &Access) {
        if let Some(own) = self.own(slot) {
            self.led = true;
            return self.leader.hit_known(own, access);
        }
        self.led = false;
        if let Outcome::Admitted { slot: own, evicted } = self.leader.access(access) {
            if evicted.is_some() {
                self.left(own);
            }
            self.strays.remove(slot);
            self.pair(slot, own);
        } else {
            self.strays.move_back(0, slot);
        }
    }

    /// A stray. A full cache has one: the leader has as many slots, one of which is for the
    /// incoming block. If there is no stray, the leader is made to evict.
    pub fn victim(&mut self) -> Option<Slot> {
        while self.strays.is_empty(0) {
            let gone = self.leader.give_up()?;
            self.pending.take_if(|(_, own)| *own == gone.slot);
            self.left(gone.slot);
        }
        self.strays.front(0)
    }

    pub fn remove(&mut self, slot: Slot, why: Departure) {
        self.resident_count -= 1;
        let resident = self.residents.get(slot);
        if resident.own == NONE {
            self.strays.remove(slot);
            return;
        }
        self.real.set(Slot(resident.own - 1), NONE);
        self.leader.remove(resident.block, why);
    }

    pub fn reclass(&mut self, slot: Slot, class: Class) {
        self.leader.reclass(self.residents.get(slot).block, class);
    }

    pub fn reclass_at_once(&mut self, slot: Slot, class: Class) {
        self.leader
            .reclass_at_once(self.residents.get(slot).block, class);
    }

    pub fn note_costs(&mut self, costs: &StoreCosts) {
        self.leader.note_costs(costs);
    }

    pub fn weights(&self) -> Vec<(String, f64)> {
        self.leader.weights()
    }

    pub fn resize(&mut self, slots: u32) {
        for gone in self.leader.resize(slots) {
            self.left(gone.slot);
        }
    }

    pub fn number_blocks(&mut self, first: u64) {
        number(&mut self.leader, first);
    }

    /// Reads what an access to `block` will need.
    #[inline]
    pub fn glance(&self, block: BlockId) -> u32 {
        self.leader.glance(block)
    }

    /// About the victim after `ahead` others.
    #[inline]
    pub fn foresee(&self, ahead: u32) -> Option<Slot> {
        let own = self.leader.foresee(ahead)?;
        let slot = Slot(self.real.get(own).checked_sub(1)?);
        std::hint::black_box(self.residents.get(slot).own);
        Some(slot)
    }

    /// The next victims, as far as the leader finds them.
    #[inline]
    pub fn foresee_all(&self, victims: &mut [Slot]) -> usize {
        for (ahead, victim) in (0..).zip(victims.iter_mut()) {
            let Some(slot) = self.foresee(ahead) else {
                return ahead as usize;
            };
            *victim = slot;
        }
        victims.len()
    }

    /// Reads what a hit in this slot will need.
    #[inline]
    pub fn approach(&self, slot: Slot) {
        std::hint::black_box(self.residents.get(slot).own);
    }

    /// As the leader has it, then strays.
    pub fn order(&self) -> Vec<Slot> {
        let mut order: Vec<Slot> = self
            .leader
            .slots()
            .into_iter()
            .filter_map(|own| self.real.get(own).checked_sub(1).map(Slot))
            .collect();
        order.extend(self.strays.iter_back(0));
        order
    }

    pub fn rank(&self, slot: Slot) -> u64 {
        self.own(slot).map_or(0, |own| 1 + self.leader.rank(own))
    }

    /// Panics unless leader and cache agree on which blocks both hold.
    pub fn audit(&self, resident: u32) {
        assert_eq!(resident, self.resident_count);
        self.leader.audit();
        let pairs = self.leader.slots().into_iter().filter(|&own| {
            let Some(slot) = self.real.get(own).checked_sub(1) else {
                return false;
            };
            let resident = self.residents.get(Slot(slot));
            assert_eq!(resident.own, own.0 + 1, "slots that are no pair");
            assert_eq!(resident.block, self.leader.block_in(own), "two blocks");
            true
        });
        assert_eq!(pairs.count() as u32 + self.stray_count(), resident);
        for slot in self.strays.iter(0) {
            let block = self.residents.get(slot).block;
            assert_eq!(self.leader.find(block), None, "a stray that is led");
        }
    }
}
