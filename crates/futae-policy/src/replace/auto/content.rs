//! What the cache holds: what the policy in force decided, or what comes closest to it.

use super::agreed::Agreed;
use super::imitation::Imitation;
use super::shadow::Shadow;
use crate::{Access, Admission, BlockId, Class, Departure, Slot, StoreCosts};

/// How the policy in force orders the cache.
#[expect(
    clippy::large_enum_variant,
    reason = "each cache has one, and each request passes it"
)]
pub enum Content {
    /// Itself.
    Agreed(Agreed),
    /// The cache follows a level, which may hold other blocks.
    Imitation(Imitation),
}

/// Calls a method of either, which has the same name and arguments.
macro_rules! either {
    ($self:expr, $it:ident => $call:expr) => {
        match $self {
            Content::Agreed($it) => $call,
            Content::Imitation($it) => $call,
        }
    };
}

impl Content {
    /// Whether the policy in force held the last accessed block, which the cache held or not.
    #[inline]
    pub fn led(&self, is_hit: bool) -> bool {
        match self {
            Self::Agreed(_) => is_hit,
            Self::Imitation(imitation) => imitation.led(),
        }
    }

    /// Switches to a leader of the same size and returns the leader so far, unless the cache was ordered by
    /// its policy alone. Takes time for every resident block.
    pub fn follow(&mut self, leader: Shadow) -> Option<Shadow> {
        match self {
            Self::Agreed(agreed) => {
                let worst_first = agreed.order().into_iter().rev();
                let held = worst_first.map(|slot| (slot, agreed.block(slot)));
                *self = Self::Imitation(Imitation::of(leader, held));
                None
            }
            Self::Imitation(imitation) => Some(imitation.follow(leader)),
        }
    }

    /// If the cache holds what its leader holds, the leader's policy orders it itself from now on. The cache has
    /// seen `seen` accesses so far; `spare` makes a level that leads nothing.
    pub fn settle(&mut self, seen: u64, spare: impl FnOnce() -> Option<Shadow>) {
        if let Self::Imitation(imitation) = self
            && imitation.agrees()
            && let Some(spare) = spare()
        {
            *self = Self::Agreed(imitation.agree(seen, spare));
        }
    }

    /// Number of blocks that the leader does not hold.
    pub fn stray_count(&self) -> u32 {
        match self {
            Self::Agreed(_) => 0,
            Self::Imitation(imitation) => imitation.stray_count(),
        }
    }

    /// The block in a slot of the cache.
    pub fn block(&self, slot: Slot) -> BlockId {
        either!(self, it => it.block(slot))
    }

    #[inline]
    pub fn miss(&mut self, access: &Access) -> Admission {
        either!(self, it => it.miss(access))
    }

    /// Whether to place an absent block if the leader has changed since the access.
    pub fn expect(&mut self, block: BlockId) -> Admission {
        match self {
            Self::Agreed(_) => Admission::Admit,
            Self::Imitation(imitation) => imitation.expect(block),
        }
    }

    #[inline]
    pub fn insert(&mut self, slot: Slot, access: &Access) {
        either!(self, it => it.insert(slot, access));
    }

    #[inline]
    pub fn hit(&mut self, slot: Slot, access: &Access) {
        either!(self, it => it.hit(slot, access));
    }

    #[inline]
    pub fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        match self {
            Self::Agreed(agreed) => agreed.victim(incoming),
            Self::Imitation(imitation) => imitation.victim(),
        }
    }

    pub fn surplus(&mut self) -> Option<Slot> {
        match self {
            Self::Agreed(agreed) => agreed.surplus(),
            Self::Imitation(imitation) => imitation.victim(),
        }
    }

    #[inline]
    pub fn remove(&mut self, slot: Slot, why: Departure) {
        either!(self, it => it.remove(slot, why));
    }

    pub fn reclass(&mut self, slot: Slot, class: Class) {
        either!(self, it => it.reclass(slot, class));
    }

    pub fn reclass_at_once(&mut self, slot: Slot, access: &Access) {
        match self {
            Self::Agreed(agreed) => agreed.reclass_at_once(slot, access),
            Self::Imitation(imitation) => imitation.reclass_at_once(slot, access.class),
        }
    }

    pub fn note_costs(&mut self, costs: &StoreCosts) {
        match self {
            Self::Agreed(agreed) => agreed.policy_mut().note_costs(costs),
            Self::Imitation(imitation) => imitation.note_costs(costs),
        }
    }

    pub fn weights(&self) -> Vec<(String, f64)> {
        match self {
            Self::Agreed(agreed) => agreed.policy().weights(),
            Self::Imitation(imitation) => imitation.weights(),
        }
    }

    pub fn resize(&mut self, slots: u32) {
        match self {
            Self::Agreed(agreed) => agreed.policy_mut().resize(slots),
            Self::Imitation(imitation) => imitation.resize(slots),
        }
    }

    pub fn number_blocks(&mut self, first: u64) {
        match self {
            Self::Agreed(agreed) => agreed.policy_mut().number_blocks(first),
            Self::Imitation(imitation) => imitation.number_blocks(first),
        }
    }

    /// Reads what an access to `block` will need.
    #[inline]
    pub fn glance(&self, block: BlockId) -> u32 {
        match self {
            Self::Agreed(agreed) => agreed.policy().glance(block),
            Self::Imitation(imitation) => imitation.glance(block),
        }
    }

    /// About the victim after `ahead` others.
    #[inline]
    pub fn foresee(&self, ahead: u32) -> Option<Slot> {
        either!(self, it => it.foresee(ahead))
    }

    /// The next victims, in order; see [`crate::SimulatorHints::foresee_all`].
    #[inline]
    pub fn foresee_all(&self, victims: &mut [Slot]) -> usize {
        either!(self, it => it.foresee_all(victims))
    }

    /// Prefetches what a hit in this slot will need.
    #[inline]
    pub fn approach(&self, slot: Slot) {
        either!(self, it => it.approach(slot));
    }

    /// Safest first.
    pub fn order(&self) -> Vec<Slot> {
        either!(self, it => it.order())
    }

    pub fn rank(&self, slot: Slot) -> u64 {
        either!(self, it => it.rank(slot))
    }

    /// Panics unless the invariants hold.
    pub fn audit(&self, resident: u32) {
        either!(self, it => it.audit(resident));
    }
}
