//! Multi-Queue: several LRU queues by use count; a block that is not used for a lifetime moves down one
//! queue.
//!
//! # Source
//! Zhou, Philbin and Li, "The Multi-Queue replacement algorithm for second level buffer caches", USENIX
//! 2001; section 2.2.4 of Sugimoto and Yamaguchi 2015.
//! # Picture
//! victim ← [ Q0: 1 use ] ← [ Q1: 2-3 ] ← ... ← [ Q7: 128 or more ]; evicted → ( Qout: ghosts with counts )
//! # Transitions
//! hit: count + 1, to the MRU end of queue min(7, log2 count) | miss: the same, with the count in Qout |
//! each access: the LRU block of a queue moves to the MRU end of the queue below if it was not used for a
//! lifetime | victim: the LRU block of the lowest queue, which gets an entry in Qout
//! # Parameters
//! queues 8: number of queues, 1 to 32
//! history 4: ghost entries in Qout, as a multiple of the slots
//! life_time 0: accesses after which a block moves down; 0 stands for the number of resident blocks and
//! ghost entries, (1 + history) × slots
//! # Deviations
//! the paper measures the lifetime from the trace, as the peak of the distances between two uses. Here it
//! is a parameter; for uniform reads the number of distinct blocks is right
//! # Cost
//! O(queues) per access; 33 bytes per slot, about 28 per ghost entry

use crate::structures::{Ghosts, Queues, Table};
use crate::{
    Access, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot, SpecError,
};

/// State of a resident block.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    block: BlockId,
    expires: u64,
    uses: u32,
}

/// LRU queues by frequency.
#[derive(Debug)]
pub struct Mq {
    history: f64,
    life_time_given: u64,
    life_time: u64,
    now: u64,
    number: usize,
    queues: Queues,
    known: Table<Use>,
    out: Ghosts<u32>,
}

/// Builds the policy; its parameters are `queues`, `history` and `life_time`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Mq, SpecError> {
    let number = arguments.take("queues", "1 to 32", |n: &usize| (1..=32).contains(n))?;
    let history = arguments.take("history", "a number from 0 to 1000", |h: &f64| {
        (0.0..=1000.0).contains(h)
    })?;
    let number = number.unwrap_or(8);
    let mut policy = Mq {
        history: history.unwrap_or(4.0),
        life_time_given: arguments.count("life_time", 0, 0)?,
        life_time: 0,
        now: 0,
        number,
        queues: Queues::new(number, shape.slots),
        known: Table::new(shape.slots),
        out: Ghosts::new(0),
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl Mq {
    /// Counts one use of the block in `slot` and moves it to the queue of its count.
    #[inline]
    fn count(&mut self, slot: Slot) -> usize {
        let expires = self.now + self.life_time;
        let known = self.known.at(slot);
        known.uses = known.uses.saturating_add(1);
        known.expires = expires;
        (known.uses.ilog2() as usize).min(self.number - 1)
    }

    /// Moves the oldest block of each queue down if it has not been used for a lifetime.
    #[inline]
    fn adjust(&mut self) {
        self.now += 1;
        for queue in 1..self.number {
            let Some(oldest) = self.queues.front(queue) else {
                continue;
            };
            let known = self.known.at(oldest);
            if known.expires < self.now {
                known.expires = self.now + self.life_time;
                self.queues.move_back(queue - 1, oldest);
            }
        }
    }
}

impl Policy for Mq {
    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        let uses = self.out.take(access.block).unwrap_or(0);
        let known = Use {
            block: access.block,
            expires: 0,
            uses,
        };
        self.known.set(slot, known);
        let queue = self.count(slot);
        self.queues.push_back(queue, slot);
        self.adjust();
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let queue = self.count(slot);
        self.queues.remove(slot);
        self.queues.push_back(queue, slot);
        self.adjust();
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        (0..self.number).find_map(|queue| self.queues.front(queue))
    }

    #[inline]
    fn remove(&mut self, slot: Slot, why: Departure) {
        if why == Departure::Evicted {
            let known = self.known.get(slot);
            self.out.push(known.block, known.uses);
        }
        self.queues.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        let names = (f64::from(slots) * self.history) as u32;
        self.out.set_limit(names);
        self.life_time = match self.life_time_given {
            0 => u64::from(slots) + u64::from(names),
            given => given,
        };
    }

    fn rank(&self, slot: Slot) -> u64 {
        self.queues.queue_of(slot) as u64
    }

    fn order(&self) -> Vec<Slot> {
        let queues = (0..self.number).rev();
        queues
            .flat_map(|queue| self.queues.iter_back(queue))
            .collect()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.queues.total(), resident);
        for slot in (0..self.number).flat_map(|queue| self.queues.iter(queue)) {
            let known = self.known.get(slot);
            assert!(known.uses > 0 && self.out.get(known.block).is_none());
        }
    }
}

impl SimulatorHints for Mq {
    fn number_blocks(&mut self, first: u64) {
        self.out.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.out.glance(block)
    }
}

/// The paper's figure 5, with lists of (block, uses, expiry).
#[cfg(test)]
mod reference {
    pub struct Mq {
        pub slots: usize,
        pub life_time: u64,
        pub now: u64,
        pub queues: Vec<Vec<(u64, u32, u64)>>,
        pub out: Vec<(u64, u32)>,
    }

    impl Mq {
        fn take(&mut self, block: u64) -> Option<u32> {
            self.queues.iter_mut().find_map(|queue| {
                let at = queue.iter().position(|held| held.0 == block)?;
                Some(queue.remove(at).1)
            })
        }

        fn evict(&mut self) {
            if self.queues.iter().map(Vec::len).sum::<usize>() < self.slots {
                return;
            }
            let lowest = self.queues.iter_mut().find(|queue| !queue.is_empty());
            let victim = lowest.expect("full").remove(0);
            if self.out.len() == 4 * self.slots {
                self.out.remove(0);
            }
            self.out.push((victim.0, victim.1));
        }
    }

    impl crate::contract::Reference for Mq {
        fn access(&mut self, block: u64) -> bool {
            let held = self.take(block);
            let uses = held.unwrap_or_else(|| {
                self.evict();
                let at = self.out.iter().position(|name| name.0 == block);
                at.map_or(0, |at| self.out.remove(at).1)
            }) + 1;
            let queue = (f64::from(uses).log2().floor() as usize).min(7);
            self.queues[queue].push((block, uses, self.now + self.life_time));
            self.now += 1;
            for queue in 1..8 {
                if self.queues[queue]
                    .first()
                    .is_some_and(|held| held.2 < self.now)
                {
                    let mut oldest = self.queues[queue].remove(0);
                    oldest.2 = self.now + self.life_time;
                    self.queues[queue - 1].push(oldest);
                }
            }
            held.is_some()
        }

        fn resident(&self) -> Vec<u64> {
            self.queues.concat().iter().map(|held| held.0).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // 1 has two uses and stands in the second queue; 2 goes before it.
        assert_eq!(order_after("mq", 2, &[1, 1, 2, 3]), [1, 3]);
        // 2 comes back with the use that Qout remembers, its second: to the second queue.
        assert_eq!(order_after("mq", 2, &[1, 1, 2, 3, 2, 4]), [2, 4]);
        // After a lifetime of 2 without a use, 1 is back in the first queue, behind 3.
        assert_eq!(order_after("mq(life_time=2)", 2, &[1, 1, 2, 3, 3]), [3, 1]);
    }

    #[test]
    fn equals_its_reference_model() {
        for (text, life_time) in [("mq(life_time=5)", Some(5)), ("mq", None)] {
            equals_reference(text, |slots, _| reference::Mq {
                slots,
                life_time: life_time.unwrap_or(5 * slots as u64),
                now: 0,
                queues: vec![Vec::new(); 8],
                out: Vec::new(),
            });
        }
    }
}
