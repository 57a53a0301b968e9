//! CLOCK-Pro: LIRS as a clock; a block is hot if it was used twice within the time since the last use of
//! the oldest hot block.
//!
//! # Source
//! Jiang, Chen and Zhang, "CLOCK-Pro: an effective improvement of the CLOCK replacement", USENIX ATC 2005,
//! section 3. The paper itself was not at hand; followed are its sentences as other implementations quote
//! them (Caffeine's simulator above all)
//! # Picture
//! one circle of hot blocks, cold blocks and ghosts of cold blocks, and three hands;
//! new → cold, in its test period, behind the hot hand; victim ← cold hand; marked in its test period → hot
//! # Transitions
//! hit: marked | miss, ghost in the circle: hot, behind the hot hand | other miss: cold, in a test period,
//! behind the hot hand | cold hand, at a cold block without a mark: the victim, which stays as a ghost for
//! the rest of its test period | cold hand, at one with a mark: hot if in its test period, else in a new
//! test period; behind the hot hand | hot hand, when there are too many hot blocks: clears marks of hot
//! blocks and ends test periods, until it finds a hot block without a mark, which becomes cold | test hand,
//! when there are more ghosts than slots: ends test periods
//! # Parameters
//! cold 0.01: initial and least share of the slots for cold blocks, but at least one slot
//! # Deviations
//! when a test period ends, the share of cold blocks grows by one if the block was used in it, and else
//! shrinks by one; a block that is marked when its period ends counts as used, as in Caffeine. While the
//! cache is filling, blocks are hot as long as there is room for hot ones, as in LIRS
//! # libCacheSim
//! libCacheSim 0.3.5 declines new blocks while there are as many cold ones as may be, half of the slots as
//! its Python package sets it, and so never evicts, and no block becomes hot: its counts are those of `fix`
//! with half of the slots
//! # Cost
//! O(1) per access, amortised; 30 bytes per slot, and as many and 24 per ghost

use crate::policy::order_by_evicting;
use crate::structures::{Names, Table};
use crate::{
    Access, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot, SpecError,
};

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Hot,
    /// Resident, not hot; whether in its test period.
    Cold {
        in_test: bool,
    },
    /// A name in its test period.
    Gone,
}

/// A block in the circle, by the number of its name.
#[derive(Clone, Copy, Debug)]
struct Node {
    before: u32,
    after: u32,
    slot: Slot,
    state: State,
    is_marked: bool,
}

/// The circle with its hands. A hand points to the node that it looks at next.
#[derive(Clone, Debug)]
pub struct ClockPro {
    slots: u32,
    cold_least_share: f64,
    /// Slots meant for cold blocks.
    cold_share: u32,
    hot: u32,
    cold: u32,
    gone: u32,
    names: Names,
    nodes: Vec<Node>,
    /// The number of the block in each slot.
    numbers: Table<u32>,
    hot_hand: u32,
    cold_hand: u32,
    test_hand: u32,
}

/// Builds the policy; its parameter is `cold`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<ClockPro, SpecError> {
    let mut policy = ClockPro {
        slots: 0,
        cold_least_share: arguments.share("cold", 0.01)?,
        cold_share: 0,
        hot: 0,
        cold: 0,
        gone: 0,
        names: Names::default(),
        nodes: Vec::new(),
        numbers: Table::new(shape.slots),
        hot_hand: NIL,
        cold_hand: NIL,
        test_hand: NIL,
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl ClockPro {
    #[inline]
    fn node(&mut self, number: u32) -> &mut Node {
        &mut self.nodes[number as usize]
    }

    fn hot_limit(&self) -> u32 {
        self.slots - self.cold_share
    }

    fn cold_least(&self) -> u32 {
        ((f64::from(self.slots) * self.cold_least_share) as u32).clamp(1, self.cold_most())
    }

    fn cold_most(&self) -> u32 {
        (self.slots - 1).max(1)
    }

    /// Adapts to the result of a test period.
    fn adapt(&mut self, was_used: bool) {
        let share = if was_used {
            self.cold_share + 1
        } else {
            self.cold_share - 1
        };
        self.cold_share = share.clamp(self.cold_least(), self.cold_most());
    }

    fn count(&mut self, state: State) -> &mut u32 {
        match state {
            State::Hot => &mut self.hot,
            State::Cold { .. } => &mut self.cold,
            State::Gone => &mut self.gone,
        }
    }

    /// Puts a node, which must not be in the circle, behind the hot hand.
    fn enter(&mut self, number: u32, slot: Slot, state: State) {
        *self.count(state) += 1;
        let after = self.hot_hand;
        let before = match after {
            NIL => NIL,
            after => self.node(after).before,
        };
        let mut node = Node {
            before,
            after,
            slot,
            state,
            is_marked: false,
        };
        if after == NIL {
            (node.before, node.after) = (number, number);
            (self.hot_hand, self.cold_hand, self.test_hand) = (number, number, number);
        } else {
            self.node(before).after = number;
            self.node(after).before = number;
        }
        match self.nodes.get_mut(number as usize) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        self.numbers.set(slot, number);
    }

    /// Removes a node from the circle; hands that pointed to it advance.
    fn leave(&mut self, number: u32) {
        let Node {
            before,
            after,
            state,
            ..
        } = *self.node(number);
        *self.count(state) -= 1;
        let next = if after == number { NIL } else { after };
        for hand in [&mut self.hot_hand, &mut self.cold_hand, &mut self.test_hand] {
            if *hand == number {
                *hand = next;
            }
        }
        self.node(before).after = after;
        self.node(after).before = before;
    }

    fn turn(&mut self, number: u32, state: State) {
        let old = std::mem::replace(&mut self.node(number).state, state);
        *self.count(old) -= 1;
        *self.count(state) += 1;
    }

    /// Ends the test period of a node, if it is in one. A name leaves the circle.
    fn end_test(&mut self, number: u32) {
        let Node {
            state, is_marked, ..
        } = *self.node(number);
        match state {
            State::Cold { in_test: true } => {
                self.node(number).state = State::Cold { in_test: false };
                self.adapt(is_marked);
            }
            State::Gone => {
                self.leave(number);
                self.names.remove(number);
                self.adapt(false);
            }
            _ => {}
        }
    }

    /// Makes a hot block cold; there must be one.
    fn run_hot_hand(&mut self) {
        let mut has_cooled = false;
        while self.hot > 0 || !has_cooled {
            let number = self.hot_hand;
            let after = self.node(number).after;
            match self.node(number).state {
                State::Hot if has_cooled => return,
                State::Hot => {
                    if !std::mem::take(&mut self.node(number).is_marked) {
                        self.turn(number, State::Cold { in_test: false });
                        has_cooled = true;
                    }
                    self.hot_hand = after;
                }
                _ => {
                    self.hot_hand = after;
                    self.end_test(number);
                }
            }
        }
    }

    /// Ends test periods until there are no more names than slots.
    fn run_test_hand(&mut self) {
        while self.gone > self.slots {
            let number = self.test_hand;
            self.test_hand = self.node(number).after;
            self.end_test(number);
        }
    }

    /// Places a node that was used in its test period.
    fn enter_hot(&mut self, number: u32, slot: Slot) {
        if self.hot_limit() == 0 {
            return self.enter(number, slot, State::Cold { in_test: true });
        }
        while self.hot >= self.hot_limit() {
            self.run_hot_hand();
        }
        self.enter(number, slot, State::Hot);
    }
}

impl Policy for ClockPro {
    fn insert(&mut self, slot: Slot, access: &Access) {
        if let Some(number) = self.names.find(access.block) {
            self.leave(number);
            self.adapt(true);
            return self.enter_hot(number, slot);
        }
        let number = self.names.add(access.block);
        // Once the cache is full, fewer resident blocks than this do not occur.
        let state = if self.hot + self.cold < self.hot_limit() {
            State::Hot
        } else {
            State::Cold { in_test: true }
        };
        self.enter(number, slot, state);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let number = self.numbers.get(slot);
        self.node(number).is_marked = true;
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        if self.hot + self.cold == 0 {
            return None;
        }
        loop {
            if self.cold == 0 {
                self.run_hot_hand();
            }
            let number = self.cold_hand;
            let Node {
                after,
                slot,
                state,
                is_marked,
                ..
            } = *self.node(number);
            match state {
                State::Cold { .. } if !is_marked => return Some(slot),
                State::Cold { in_test } => {
                    self.leave(number);
                    if in_test {
                        self.adapt(true);
                        self.enter_hot(number, slot);
                    } else {
                        self.enter(number, slot, State::Cold { in_test: true });
                    }
                }
                _ => self.cold_hand = after,
            }
        }
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        let number = self.numbers.get(slot);
        let in_test = self.node(number).state == State::Cold { in_test: true };
        if why == Departure::Evicted && in_test {
            self.turn(number, State::Gone);
            if self.cold_hand == number {
                self.cold_hand = self.node(number).after;
            }
        } else {
            self.leave(number);
            self.names.remove(number);
        }
        self.run_test_hand();
    }

    fn resize(&mut self, slots: u32) {
        self.slots = slots.max(1);
        self.cold_share = self.cold_share.clamp(self.cold_least(), self.cold_most());
        while self.hot > self.hot_limit() {
            self.run_hot_hand();
        }
        self.run_test_hand();
    }

    fn order(&self) -> Vec<Slot> {
        order_by_evicting(self)
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.hot + self.cold, resident);
        assert_eq!(self.names.len(), resident + self.gone);
        assert!(self.gone <= self.slots && self.hot <= self.slots);
        if self.hot_hand == NIL {
            return assert_eq!(self.names.len(), 0);
        }
        let (mut seen, mut at) = ([0; 3], self.hot_hand);
        for _ in 0..self.names.len() {
            let node = &self.nodes[at as usize];
            let kind = match node.state {
                State::Hot => 0,
                State::Cold { .. } => 1,
                State::Gone => 2,
            };
            seen[kind] += 1;
            assert!(node.state == State::Gone || self.numbers.get(node.slot) == at);
            assert_eq!(self.nodes[node.after as usize].before, at);
            at = node.after;
        }
        assert_eq!(at, self.hot_hand, "the circle is closed");
        assert_eq!(seen, [self.hot, self.cold, self.gone]);
    }
}

impl SimulatorHints for ClockPro {
    fn number_blocks(&mut self, first: u64) {
        self.names.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.names.glance(block)
    }
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after, run};

    #[test]
    fn worked_example() {
        // 3 slots, one of them cold. 1 and 2 come while hot blocks have room, 3 is cold. For 4 the cold hand
        // takes 3, whose name stays.
        assert_eq!(order_after("clock-pro", 3, &[1, 2, 3, 4]).last(), Some(&4));
        let held = |reads: &[u64]| {
            let mut held = order_after("clock-pro", 3, reads);
            held.sort_unstable();
            held
        };
        assert_eq!(held(&[1, 2, 3, 4]), [1, 2, 4]);
        // 3 comes back within its test period, for 4: two slots are cold from now on, so 3 is hot, and the hot
        // hand makes 1 and 2 cold. 5 takes the place of 1.
        assert_eq!(held(&[1, 2, 3, 4, 3]), [1, 2, 3]);
        assert_eq!(held(&[1, 2, 3, 4, 3, 5]), [2, 3, 5]);
        // If 1 is used meanwhile, it loses its mark and stays hot: 2 is the cold one, and goes.
        assert_eq!(held(&[1, 2, 3, 4, 1, 3, 5]), [1, 3, 5]);
    }

    #[test]
    fn a_loop_just_too_long_for_the_cache_is_hit() {
        let reads: Vec<u64> = (0..6000).map(|at| at % 60).collect();
        let counters = run("clock-pro", 50, 1, &reads).counters();
        assert!(counters.hits > 3000, "{counters:?}");
        assert_eq!(run("lru", 50, 1, &reads).counters().hits, 0);
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("clock-pro", |slots, _| reference::ClockPro::new(slots));
    }
}
