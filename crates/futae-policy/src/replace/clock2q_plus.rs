//! Clock2Q+: S3-FIFO with a window in which uses of a new block do not count, because they belong to one
//! access in several parts.
//!
//! # Source
//! Zhai, Marthen, Balivada, Bojji, Knauft, Rohilla, Zuo, Liu, Austruy, Wang and Yang, "Clock2Q+: a simple
//! and efficient replacement algorithm for metadata cache in VMware vSAN", arXiv 2511.21958, 2025, section
//! 3.4. Followed from its abstract and from what others state of sections 2 to 5; where these leave a
//! choice, the behaviour of the first authors' implementation in libCacheSim
//! # Picture
//! new → [ small, FIFO: window | old part ] → used in the old part: [ main, clock ] → evicted;
//! else ghost entry in ( ghost ), requested again → main
//! # Transitions
//! hit in main, or in the old part of small: marked | hit in the window: nothing | miss, in ghost: to main
//! | other miss: to small | victim, main over its share or small empty: the oldest of main without a mark;
//! marked ones are reinserted, mark cleared | other victim: the oldest of small without a mark; marked ones
//! move to main
//! # Parameters
//! small 0.1: share of the slots for the small queue, rounded down, at least 1
//! ghost 0.5: ghost entries as a share of the slots, rounded down
//! window 0.5: share of the small queue's slots that must be filled after a block before its uses count
//! fill_main true: until the first eviction, place in main what exceeds the share of small
//! # Deviations
//! each miss evicts one block, so main can exceed its share for a time, as in libCacheSim. The skipping of
//! dirty blocks and the limit on the steps of the clock's hand (sections 4.1 and 5.5) are left out
//! # libCacheSim
//! libCacheSim has ghost entries for 0.9 of the slots, the paper for half of them;
//! `clock2q-plus(ghost=0.9)` has the same counts
//! # Cost
//! O(1) per access, amortised; 31 bytes per slot, about 28 per ghost entry

use crate::policy::order_by_evicting;
use crate::structures::{Ghosts, LogQueues, MissNote, Table};
use crate::{
    Access, Admission, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot,
    SpecError,
};

const SMALL: usize = 0;
const MAIN: usize = 1;

/// Two queues, and the names of blocks evicted from the small one.
#[derive(Clone, Debug)]
pub struct Clock2QPlus {
    small_share: f64,
    ghost_share: f64,
    window_share: f64,
    fill_main: bool,
    has_evicted: bool,
    small_limit: u32,
    main_limit: u32,
    /// Number of arrivals in small after a block before its uses count.
    window: u64,
    /// Number of arrivals in small so far.
    arrivals: u64,
    queues: LogQueues<2>,
    is_marked: Table<bool>,
    /// `arrivals` when the block came to small.
    arrived: Table<u64>,
    names: Table<BlockId>,
    ghost: Ghosts,
    /// Whether the ghost queue had the name of the last missed block.
    found: MissNote<bool>,
}

/// Builds the policy; its parameters are `small`, `ghost`, `window` and `fill_main`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Clock2QPlus, SpecError> {
    let fill_main = arguments.take("fill_main", "true or false", |_: &bool| true)?;
    let mut policy = Clock2QPlus {
        small_share: arguments.share("small", 0.1)?,
        ghost_share: arguments.share("ghost", 0.5)?,
        window_share: arguments.share("window", 0.5)?,
        fill_main: fill_main.unwrap_or(true),
        has_evicted: false,
        small_limit: 1,
        main_limit: 0,
        window: 0,
        arrivals: 0,
        queues: LogQueues::new(shape.slots),
        is_marked: Table::new(shape.slots),
        arrived: Table::new(shape.slots),
        names: Table::new(shape.slots),
        ghost: Ghosts::new(0),
        found: MissNote::new(),
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl Clock2QPlus {
    /// The oldest of main without a mark.
    fn main_victim(&mut self) -> Option<Slot> {
        loop {
            let oldest = self.queues.front(MAIN)?;
            if !std::mem::take(self.is_marked.at(oldest)) {
                return Some(oldest);
            }
            self.queues.move_back(MAIN, oldest);
        }
    }

    /// The oldest of small without a mark.
    fn small_victim(&mut self) -> Option<Slot> {
        loop {
            let oldest = self.queues.front(SMALL)?;
            if !std::mem::take(self.is_marked.at(oldest)) {
                return Some(oldest);
            }
            self.queues.move_back(MAIN, oldest);
        }
    }
}

impl Policy for Clock2QPlus {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        // Before the victim's name can push this one out.
        let is_named = self.ghost.take(access.block).is_some();
        self.found.set(access.block, is_named);
        Admission::Admit
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        let is_named = match self.found.take(access.block) {
            Some(is_named) => is_named,
            None => self.ghost.take(access.block).is_some(),
        };
        let fills_main =
            self.fill_main && !self.has_evicted && self.queues.len(SMALL) >= self.small_limit;
        if is_named || fills_main {
            self.queues.push_back(MAIN, slot);
        } else {
            self.queues.push_back(SMALL, slot);
            self.arrivals += 1;
            self.arrived.set(slot, self.arrivals);
        }
        self.is_marked.set(slot, false);
        self.names.set(slot, access.block);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let counts = self.queues.queue_of(slot) == MAIN
            || self.arrivals - self.arrived.get(slot) >= self.window;
        if counts {
            self.is_marked.set(slot, true);
        }
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        if self.queues.len(MAIN) <= self.main_limit
            && let Some(slot) = self.small_victim()
        {
            return Some(slot);
        }
        self.main_victim().or_else(|| self.small_victim())
    }

    #[inline]
    fn remove(&mut self, slot: Slot, why: Departure) {
        self.has_evicted |= why == Departure::Evicted;
        if why == Departure::Evicted && self.queues.queue_of(slot) == SMALL {
            self.ghost.push(self.names.get(slot), ());
        }
        self.queues.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        let share = |whole: u32, of: f64| f64::from(whole) * of;
        self.small_limit = (share(slots, self.small_share) as u32).max(1);
        self.main_limit = slots.saturating_sub(self.small_limit);
        self.window = share(self.small_limit, self.window_share).ceil() as u64;
        self.ghost.set_limit(share(slots, self.ghost_share) as u32);
    }

    fn order(&self) -> Vec<Slot> {
        order_by_evicting(self)
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.queues.total(), resident);
        for slot in self.queues.iter(SMALL).chain(self.queues.iter(MAIN)) {
            assert!(
                self.ghost.get(self.names.get(slot)).is_none(),
                "resident and departed"
            );
        }
    }
}

impl SimulatorHints for Clock2QPlus {
    fn number_blocks(&mut self, first: u64) {
        self.ghost.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.ghost.glance(block)
    }

    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        self.queues.about(SMALL, ahead)
    }
}

/// Lists of (block, number of arrival, marked), oldest first.
#[cfg(test)]
mod reference {
    #[derive(Default)]
    pub struct Clock2QPlus {
        pub slots: usize,
        pub arrivals: usize,
        pub has_evicted: bool,
        pub small: Vec<(u64, usize, bool)>,
        pub main: Vec<(u64, bool)>,
        pub ghost: Vec<u64>,
    }

    impl Clock2QPlus {
        fn small_limit(&self) -> usize {
            (self.slots / 10).max(1)
        }

        fn evict(&mut self) {
            self.has_evicted = true;
            loop {
                let is_over = self.main.len() > self.slots - self.small_limit();
                if is_over || self.small.is_empty() {
                    match self.main.remove(0) {
                        (block, true) => self.main.push((block, false)),
                        _ => return,
                    }
                    continue;
                }
                while !self.small.is_empty() {
                    let (block, _, marked) = self.small.remove(0);
                    if marked {
                        self.main.push((block, false));
                        continue;
                    }
                    self.ghost.push(block);
                    if self.ghost.len() > self.slots / 2 {
                        self.ghost.remove(0);
                    }
                    return;
                }
            }
        }
    }

    impl crate::contract::Reference for Clock2QPlus {
        fn access(&mut self, block: u64) -> bool {
            let (arrivals, half) = (self.arrivals, self.small_limit());
            if let Some(held) = self.small.iter_mut().find(|held| held.0 == block) {
                held.2 |= 2 * (arrivals - held.1) >= half;
                return true;
            }
            if let Some(held) = self.main.iter_mut().find(|held| held.0 == block) {
                held.1 = true;
                return true;
            }
            let named = self.ghost.iter().position(|&name| name == block);
            named.map(|at| self.ghost.remove(at));
            if self.small.len() + self.main.len() == self.slots {
                self.evict();
            }
            let fills = !self.has_evicted && self.small.len() >= self.small_limit();
            if named.is_some() || fills {
                self.main.push((block, false));
            } else {
                self.arrivals += 1;
                self.small.push((block, self.arrivals, false));
            }
            false
        }

        fn resident(&self) -> Vec<u64> {
            let small = self.small.iter().map(|held| held.0);
            small.chain(self.main.iter().map(|held| held.0)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    /// 20 slots: small has 2, of which the newest is in the window; main has 18. The reads 1 to 20 fill
    /// small with 1 and 2 and main with the rest.
    fn after(reads: &[u64]) -> Vec<u64> {
        let filled: Vec<u64> = (1..=20).chain(reads.iter().copied()).collect();
        order_after("clock2q-plus", 20, &filled)
    }

    #[test]
    fn worked_example() {
        let next_victims = |reads: &[u64]| {
            let mut order = after(reads);
            order.reverse();
            order.truncate(3);
            order
        };
        assert_eq!(next_victims(&[]), [1, 2, 3]);
        // 2 came last to small: its use does not count. 1 came before it: its use does.
        assert_eq!(next_victims(&[2, 2, 2]), [1, 2, 3]);
        assert_eq!(next_victims(&[1]), [2, 3, 4]);
        // For 21 the marked 1 moves to main, and 2 goes. By its name 2 then comes back to main, and main, one
        // over its share since 1 is there, gives up 3.
        assert!(!after(&[1, 21]).contains(&2));
        let order = after(&[1, 21, 2]);
        assert!(order.contains(&2) && !order.contains(&3), "{order:?}");
    }

    #[test]
    fn a_use_in_the_window_saves_nobody_and_one_after_it_does() {
        // 40 slots: small has 4, and its newest 2 are in the window.
        let reads = |hit: u64| {
            let fill = 1..=40u64;
            let mut reads: Vec<u64> = fill.collect();
            reads.extend([hit, 41, 42, 43, 44]);
            order_after("clock2q-plus", 40, &reads)
        };
        assert!(reads(2).contains(&2));
        assert!(!reads(3).contains(&3) && !reads(4).contains(&4));
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("clock2q-plus", |slots, _| reference::Clock2QPlus {
            slots,
            ..Default::default()
        });
    }
}
