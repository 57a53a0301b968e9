//! LIRS: keeps blocks with few other blocks between their last two uses.
//!
//! # Source
//! Jiang and Zhang, "LIRS: an efficient low inter-reference recency set replacement policy", SIGMETRICS
//! 2002.
//! # Picture
//! S: [ bottom: a LIR block ... LIR blocks, HIR blocks and HIR ghosts by recency ... top ] ← every use;
//! victim ← Q: [ resident HIR blocks ]
//! # Transitions
//! hit of LIR: to the top of S | hit of HIR in S: becomes LIR; the LIR block at the bottom becomes HIR and
//! moves to the end of Q | hit of HIR not in S: to the top of S and the end of Q | miss, ghost in S: as a
//! hit of HIR in S | other miss: placed as HIR | victim: the front of Q, which stays in S as a ghost |
//! after each: S is pruned from the bottom up to a LIR block
//! # Parameters
//! hir 0.01: share of the slots for resident HIR blocks, rounded down, at least 1
//! stack 2: limit on the length of S, as a multiple of the slots; beyond it the ghost that was evicted
//! first is removed
//! # Deviations
//! the paper bounds S by memory only. libCacheSim also makes room among the LIR blocks, to no effect, when
//! a HIR block is hit in Q and not in S
//! # libCacheSim
//! libCacheSim also makes room among the LIR blocks when a HIR block is hit in Q and not in S
//! # Cost
//! O(1) per access, amortised; about 55 bytes per slot, and 46 per ghost in S

use crate::structures::{LogQueues, MissNote, Names, Table};
use crate::{
    Access, Admission, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot,
    SpecError,
};

const S: usize = 0;
/// Resident HIR blocks, the next victim first.
const Q: usize = 0;
/// Departed HIR blocks that are still in S, longest departed first.
const GONE: usize = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Status {
    /// Low inter-reference recency: resident and in S.
    Lir,
    /// Resident, in Q, perhaps in S.
    #[default]
    Hir,
    /// Not resident, in S.
    Gone,
}

/// A block by its number in `names`.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    slot: u32,
    status: Status,
    in_s: bool,
}

/// Stack S and queue Q over numbered blocks, resident and departed.
#[derive(Debug)]
pub struct Lirs {
    hir_share: f64,
    stack_share: f64,
    lir_limit: u32,
    stack_limit: u32,
    lirs: u32,
    names: Names,
    known: Table<Known>,
    /// The number of the block in each slot.
    numbers: Table<u32>,
    stack: LogQueues,
    queues: LogQueues<2>,
    was_in_s: MissNote<bool>,
}

/// Builds the policy; its parameters are `hir` and `stack`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Lirs, SpecError> {
    let stack = arguments.take("stack", "a number from 1 to 1000", |stack: &f64| {
        (1.0..=1000.0).contains(stack)
    })?;
    let mut policy = Lirs {
        hir_share: arguments.share("hir", 0.01)?,
        stack_share: stack.unwrap_or(2.0),
        lir_limit: 0,
        stack_limit: 0,
        lirs: 0,
        names: Names::default(),
        known: Table::new(shape.slots),
        numbers: Table::new(shape.slots),
        stack: LogQueues::new(shape.slots),
        queues: LogQueues::new(shape.slots),
        was_in_s: MissNote::new(),
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl Lirs {
    fn known(&mut self, number: Slot) -> &mut Known {
        self.known.at(number)
    }

    fn put_on_top(&mut self, number: Slot) {
        if std::mem::replace(&mut self.known(number).in_s, true) {
            self.stack.move_back(S, number);
        } else {
            self.stack.push_back(S, number);
        }
    }

    fn leave_s(&mut self, number: Slot) {
        if std::mem::take(&mut self.known(number).in_s) {
            self.stack.remove(number);
        }
    }

    /// Forgets a departed block.
    fn forget(&mut self, number: Slot) {
        self.leave_s(number);
        self.queues.remove(number);
        self.names.remove(number.0);
    }

    /// The paper's stack pruning: afterwards a LIR block is at the bottom of S.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.front(S) {
            match self.known(bottom).status {
                Status::Lir => break,
                Status::Hir => self.leave_s(bottom),
                Status::Gone => self.forget(bottom),
            }
        }
    }

    fn become_lir(&mut self, number: Slot) {
        self.known(number).status = Status::Lir;
        self.lirs += 1;
        self.put_on_top(number);
        self.demote_surplus();
    }

    /// Turns LIR blocks at the bottom of S into HIR blocks while there are too many.
    fn demote_surplus(&mut self) {
        while self.lirs > self.lir_limit {
            self.prune();
            let Some(bottom) = self.stack.front(S) else {
                return;
            };
            self.known(bottom).status = Status::Hir;
            self.lirs -= 1;
            self.leave_s(bottom);
            self.queues.push_back(Q, bottom);
        }
        self.prune();
    }

    fn limit_stack(&mut self) {
        while self.stack.len(S) > self.stack_limit {
            let Some(oldest) = self.queues.front(GONE) else {
                return;
            };
            self.forget(oldest);
        }
    }

    /// Removes `block` from the departed ones. Returns whether it was among them.
    fn recall(&mut self, block: BlockId) -> bool {
        let number = self.names.find(block);
        number.map(|number| self.forget(Slot(number))).is_some()
    }
}

impl Policy for Lirs {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        let was_in_s = self.recall(access.block);
        self.was_in_s.set(access.block, was_in_s);
        Admission::Admit
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        let was_in_s = match self.was_in_s.take(access.block) {
            Some(known) => known,
            None => self.recall(access.block),
        };
        let number = Slot(self.names.add(access.block));
        self.numbers.set(slot, number.0);
        let known = Known {
            slot: slot.0,
            ..Known::default()
        };
        self.known.set(number, known);
        if self.lirs < self.lir_limit || (was_in_s && self.lir_limit > 0) {
            self.become_lir(number);
        } else {
            self.queues.push_back(Q, number);
            if self.lir_limit > 0 {
                self.put_on_top(number);
            }
        }
        self.limit_stack();
    }

    fn hit(&mut self, slot: Slot, _access: &Access) {
        let number = Slot(self.numbers.get(slot));
        match self.known.get(number) {
            Known {
                status: Status::Lir,
                ..
            } => {
                self.put_on_top(number);
                self.prune();
            }
            Known { in_s, .. } if self.lir_limit > 0 && (in_s || self.lirs < self.lir_limit) => {
                self.queues.remove(number);
                self.become_lir(number);
            }
            _ => {
                self.queues.move_back(Q, number);
                if self.lir_limit > 0 {
                    self.put_on_top(number);
                }
            }
        }
        self.limit_stack();
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        let number = self.queues.front(Q).or_else(|| self.stack.front(S))?;
        Some(Slot(self.known(number).slot))
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        let number = Slot(self.numbers.get(slot));
        let Known { status, in_s, .. } = *self.known(number);
        if status == Status::Lir {
            self.lirs -= 1;
        } else {
            self.queues.remove(number);
        }
        if status == Status::Hir && in_s && why == Departure::Evicted {
            self.known(number).status = Status::Gone;
            self.queues.push_back(GONE, number);
        } else {
            self.leave_s(number);
            self.names.remove(number.0);
        }
        self.prune();
    }

    fn resize(&mut self, slots: u32) {
        let hirs = ((f64::from(slots) * self.hir_share) as u32).max(1);
        self.lir_limit = slots.saturating_sub(hirs);
        self.stack_limit = (f64::from(slots) * self.stack_share) as u32;
        self.demote_surplus();
        self.limit_stack();
    }

    /// As if only new blocks came: Q first, then the LIR blocks by recency.
    fn order(&self) -> Vec<Slot> {
        let known = |number: Slot| self.known.get(number);
        let lirs = self.stack.iter_back(S).map(known);
        let lirs = lirs.filter(|known| known.status == Status::Lir);
        let hirs = self.queues.iter_back(Q).map(known);
        lirs.chain(hirs).map(|known| Slot(known.slot)).collect()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.lirs + self.queues.len(Q), resident);
        assert!(self.lirs <= self.lir_limit);
        assert_eq!(self.names.len(), resident + self.queues.len(GONE));
        let bottom = self
            .stack
            .front(S)
            .map(|bottom| self.known.get(bottom).status);
        assert!(
            bottom.is_none_or(|status| status == Status::Lir),
            "S is not pruned"
        );
        for number in self.queues.iter(GONE) {
            assert!(self.known.get(number).in_s, "departed and not in S");
        }
    }
}

impl SimulatorHints for Lirs {
    fn number_blocks(&mut self, first: u64) {
        self.names.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.names.glance(block)
    }
}

/// The paper's cases on lists: S from bottom to top, Q from front to end.
#[cfg(test)]
mod reference {
    #[derive(Clone, Copy, PartialEq)]
    pub enum Status {
        Lir,
        Hir,
        Gone,
    }
    use Status::{Gone, Hir, Lir};

    #[derive(Default)]
    pub struct Lirs {
        pub slots: usize,
        pub s: Vec<(u64, Status)>,
        pub q: Vec<u64>,
        /// Departed blocks in S, longest departed first.
        pub gone: Vec<u64>,
    }

    impl Lirs {
        fn lirs(&self) -> usize {
            self.s.iter().filter(|held| held.1 == Lir).count()
        }

        fn prune(&mut self) {
            while self.s.first().is_some_and(|bottom| bottom.1 != Lir) {
                let (block, _) = self.s.remove(0);
                self.gone.retain(|&gone| gone != block);
            }
        }

        fn push_lir(&mut self, block: u64) {
            self.s.push((block, Lir));
            if self.lirs() > self.slots - 1 {
                self.prune();
                self.q.push(self.s.remove(0).0);
            }
            self.prune();
        }

        fn push_hir(&mut self, block: u64) {
            self.q.push(block);
            if self.slots > 1 {
                self.s.push((block, Hir));
            }
        }

        fn limit(&mut self) {
            while self.s.len() > 2 * self.slots && !self.gone.is_empty() {
                let oldest = self.gone.remove(0);
                self.s.retain(|held| held.0 != oldest);
            }
        }
    }

    impl crate::contract::Reference for Lirs {
        fn access(&mut self, block: u64) -> bool {
            let at = self.s.iter().position(|held| held.0 == block);
            let in_s = at.map(|at| self.s.remove(at).1);
            let in_q = self.q.iter().position(|&held| held == block);
            in_q.map(|at| self.q.remove(at));
            self.gone.retain(|&gone| gone != block);
            let hit = in_q.is_some() || in_s == Some(Lir);
            if !hit && self.lirs() + self.q.len() == self.slots {
                let victim = self.q.remove(0);
                if let Some(held) = self.s.iter_mut().find(|held| held.0 == victim) {
                    held.1 = Gone;
                    self.gone.push(victim);
                }
            }
            let fills = !hit && self.lirs() < self.slots - 1;
            if in_s.is_some() || fills {
                self.push_lir(block);
            } else {
                self.push_hir(block);
            }
            self.limit();
            hit
        }

        fn resident(&self) -> Vec<u64> {
            let lirs = self.s.iter().filter(|held| held.1 == Lir);
            lirs.map(|held| held.0)
                .chain(self.q.iter().copied())
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // 3 slots: 1 and 2 fill the LIR set; 3, then 4, pass through Q.
        assert_eq!(order_after("lirs", 3, &[1, 2, 3]), [2, 1, 3]);
        assert_eq!(order_after("lirs", 3, &[1, 2, 3, 4]), [2, 1, 4]);
        // 3 comes back while still in S: LIR; 1, at the bottom of S, becomes HIR, 4 goes.
        assert_eq!(order_after("lirs", 3, &[1, 2, 3, 4, 3]), [3, 2, 1]);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("lirs", |slots, _| reference::Lirs {
            slots,
            ..Default::default()
        });
    }
}
