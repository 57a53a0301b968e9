//! Automatic choice: candidates run as sampled shadow caches on the same requests, and the one with the most
//! hits orders the cache.
//!
//! # Source
//! Shadow caches after Waldspurger, Park, Garthwaite and Ahmad, "Efficient MRC construction with SHARDS", FAST 2015,
//! and Waldspurger, Saemundsson, Ahmad and Park, "Cache modeling and optimization using miniature simulations", ATC
//! 2017; the choice among them is futae's own.
//! # Picture
//! request → hashed sample → shadow of each candidate → window of hits → the order in force; after a change the old order
//! hands its blocks over, next victim first: victim ← [ old order ] then [ new order ]
//! # Transitions
//! hit, miss, demotion, notice: as the order in force has it, and before it as each shadow has it if the block is of the
//! sample | a window is over: a candidate that had more hits than the order in force, by more than chance and by
//! `margin`, orders the cache from now on | after a change: each access moves four blocks from the old order to the new
//! one, and victims come from the old order while it has any
//! # Parameters
//! margin 0.0025: more hits, as a share of requests, that a candidate must have
//! window 0.5: length of a window, in requests of the sample for each block of a shadow; at least 256 requests
//! # Deviations
//! none of a published rule; candidates are the policies that the registry marks so. A shadow has a 64th of the slots,
//! and 1,024 at least, or all of a smaller cache
//! # Cost
//! that of the order in force, and of each candidate for the requests of the sample; 11 bytes a slot, and shadows of at
//! most a 64th of the slots with about 100 bytes a block and candidate

mod shadows;

use crate::structures::Table;
use crate::{
    Access, AccessKind, Admission, Arguments, BlockId, Class, Departure, Policy, RegisteredPolicy,
    Shape, SimulatorHints, Slot, SpecError, StoreCosts,
};
use shadows::Shadows;

/// Blocks that each access moves from the old order to the new one.
const MOVES: u32 = 4;
/// Remarks that wait for somebody who reads them.
const REMARKS_MAX: usize = 64;

/// What is known of the block in a slot, to put it into another order.
#[derive(Clone, Copy, Debug, Default)]
struct Resident {
    block: BlockId,
    class: Class,
    /// Whether the block was last used by a demotion or a notice.
    is_from_above: bool,
    is_in_old: bool,
}

/// The order in force, the one before it while it still has blocks, and the candidates.
pub struct Auto {
    shadows: Shadows,
    order: Box<dyn RegisteredPolicy>,
    old: Option<Box<dyn RegisteredPolicy>>,
    old_count: u32,
    residents: Table<Resident>,
    resident_count: u32,
    shape: Shape,
    numbered_from: Option<u64>,
    remarks: Vec<String>,
}

/// Builds the policy; its parameters are `margin` and `window`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Auto, SpecError> {
    let margin = arguments.share("margin", 0.0025)?;
    let window = arguments.take("window", "a number above 0, at most 100", |window: &f64| {
        *window > 0.0 && *window <= 100.0
    })?;
    let shadows = Shadows::new(shape, margin, window.unwrap_or(0.5))?;
    Ok(Auto {
        order: crate::build(shadows.in_force(), shape)?,
        shadows,
        old: None,
        old_count: 0,
        residents: Table::new(shape.slots),
        resident_count: 0,
        shape: *shape,
        numbered_from: None,
        remarks: Vec::new(),
    })
}

impl Auto {
    /// Lets the shadows see an access, changes the order if they say so, and goes on with a change that is under way.
    #[inline]
    fn see(&mut self, access: &Access) {
        let is_over = self.shadows.see(access);
        if is_over && self.old.is_none() {
            self.judge();
        }
        if self.old.is_some() {
            self.move_some();
        }
    }

    fn judge(&mut self) {
        let Some(change) = self.shadows.judge() else {
            return;
        };
        let Ok(mut new) = crate::build(self.shadows.in_force(), &self.shape) else {
            return; // It was built before, as a shadow.
        };
        if let Some(first) = self.numbered_from {
            new.number_blocks(first);
        }
        if self.remarks.len() < REMARKS_MAX {
            self.remarks.push(change);
        }
        let old = std::mem::replace(&mut self.order, new);
        if self.resident_count == 0 {
            return;
        }
        self.old_count = self.resident_count;
        for slot in old.order() {
            self.resident(slot, |resident| resident.is_in_old = true);
        }
        self.old = Some(old);
    }

    fn resident(&mut self, slot: Slot, change: impl FnOnce(&mut Resident)) {
        let mut resident = self.residents.get(slot);
        change(&mut resident);
        self.residents.set(slot, resident);
    }

    fn move_some(&mut self) {
        for _ in 0..MOVES {
            let Some(old) = &mut self.old else { return };
            let slot = old.surplus().or_else(|| old.order().pop());
            let Some(slot) = slot else { return };
            self.move_over(slot);
        }
    }

    /// Moves a slot from the old order to the new one, as its block last came.
    fn move_over(&mut self, slot: Slot) {
        self.leave_old(slot, Departure::Promoted);
        let Resident {
            block,
            class,
            is_from_above,
            ..
        } = self.residents.get(slot);
        let kind = if is_from_above {
            AccessKind::Demotion
        } else {
            AccessKind::Read
        };
        let access = Access::of(block, kind).classed(class);
        // Whether or not the new order would admit it: it is here.
        self.order.miss(&access);
        self.order.insert(slot, &access);
    }

    fn leave_old(&mut self, slot: Slot, why: Departure) {
        self.resident(slot, |resident| resident.is_in_old = false);
        if let Some(old) = &mut self.old {
            old.remove(slot, why);
        }
        self.old_count -= 1;
        if self.old_count == 0 {
            self.old = None;
        }
    }

    fn is_in_old(&self, slot: Slot) -> bool {
        self.old.is_some() && self.residents.get(slot).is_in_old
    }

    fn home(&mut self, slot: Slot) -> &mut dyn RegisteredPolicy {
        let is_in_old = self.is_in_old(slot);
        match &mut self.old {
            Some(old) if is_in_old => &mut **old,
            _ => &mut *self.order,
        }
    }
}

impl Policy for Auto {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        self.see(access);
        self.order.miss(access)
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.resident_count += 1;
        let resident = Resident {
            block: access.block,
            class: access.class,
            is_from_above: is_from_above(access),
            is_in_old: false,
        };
        self.residents.set(slot, resident);
        self.order.insert(slot, access);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.see(access);
        if self.is_in_old(slot) {
            self.move_over(slot);
        }
        self.resident(slot, |resident| {
            resident.class = access.class;
            resident.is_from_above = is_from_above(access);
        });
        self.order.hit(slot, access);
    }

    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        match &mut self.old {
            // What the old order declines is for the new one to keep.
            Some(old) => old
                .victim(incoming)
                .or_else(|| old.surplus())
                .or_else(|| old.order().pop()),
            None => self.order.victim(incoming),
        }
    }

    fn surplus(&mut self) -> Option<Slot> {
        match &mut self.old {
            Some(old) => old.surplus().or_else(|| old.order().pop()),
            None => self.order.surplus(),
        }
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        self.resident_count -= 1;
        if self.is_in_old(slot) {
            self.leave_old(slot, why);
        } else {
            self.order.remove(slot, why);
        }
    }

    fn reclass(&mut self, slot: Slot, class: Class) {
        self.resident(slot, |resident| resident.class = class);
        self.home(slot).reclass(slot, class);
    }

    fn reclass_at_once(&mut self, slot: Slot, access: &Access) {
        self.resident(slot, |resident| resident.class = access.class);
        self.home(slot).reclass_at_once(slot, access);
    }

    fn note_costs(&mut self, costs: &StoreCosts) {
        self.order.note_costs(costs);
    }

    fn weights(&self) -> Vec<(String, f64)> {
        self.order.weights()
    }

    fn remark(&mut self) -> Option<String> {
        (!self.remarks.is_empty()).then(|| self.remarks.remove(0))
    }

    fn resize(&mut self, slots: u32) {
        self.shape.slots = slots;
        self.shadows.resize(slots);
        self.order.resize(slots);
        if let Some(old) = &mut self.old {
            old.resize(slots);
        }
    }

    fn order(&self) -> Vec<Slot> {
        let mut order = self.order.order();
        order.extend(self.old.iter().flat_map(|old| old.order()));
        order
    }

    fn rank(&self, slot: Slot) -> u64 {
        if self.is_in_old(slot) {
            return 0;
        }
        1 + self.order.rank(slot)
    }

    fn audit(&self, resident: u32) {
        assert_eq!(resident, self.resident_count);
        self.order.audit(resident - self.old_count);
        match &self.old {
            Some(old) => old.audit(self.old_count),
            None => assert_eq!(self.old_count, 0),
        }
        self.shadows.audit();
    }
}

fn is_from_above(access: &Access) -> bool {
    matches!(access.kind, AccessKind::Demotion | AccessKind::Notice)
}

impl SimulatorHints for Auto {
    fn number_blocks(&mut self, first: u64) {
        self.numbered_from = Some(first);
        self.order.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.order.glance(block)
    }
}
