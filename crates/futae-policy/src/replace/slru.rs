//! Segmented LRU: a hit protects a block from eviction by blocks that are requested once.
//!
//! # Source
//! Karedla, Love and Wherry, "Caching strategies to improve disk system performance", IEEE Computer 27(3),
//! 1994.
//! # Picture
//! evicted ← [ probationary, LRU ] ← new; hit → [ protected, LRU ] (→ [ more protected, LRU ] ...);
//! protected segment full: its LRU block moves down one segment
//! # Transitions
//! hit: to the MRU end of the next higher segment; if that is over its share, its LRU block moves to the
//! MRU end of the segment below, and so on down | miss: to the MRU end of probationary | victim: the LRU
//! block of the lowest segment that is not empty
//! # Parameters
//! segments 2: number of segments, 2 to 4, of which one is probationary; `slru(segments=4)` is S4LRU
//! (Huang, Birman, van Renesse, Lloyd, Kumar and Li, "An analysis of Facebook photo caching", SOSP 2013)
//! protected 0.8: share of the slots for all protected segments together, rounded down in each. With more
//! than two segments the default is equal shares for all segments
//! fill false: place a new block in the lowest segment that has room, where the paper has probationary only
//! # Deviations
//! the paper leaves the share open and finds it best between a half and nearly all
//! # libCacheSim
//! libCacheSim has four equal segments and puts a new block into the lowest that has room; the paper has
//! two. `slru(segments=4,fill=true)` has the same counts
//! # Cost
//! O(1) per access; 14 bytes per slot

use crate::structures::LogQueues;
use crate::{Access, Arguments, Departure, Policy, Shape, SimulatorHints, Slot, SpecError};

const MOST: usize = 4;
const PROBATION: usize = 0;

/// LRU segments, the lowest first.
#[derive(Debug)]
pub struct Slru {
    segments: usize,
    share: f64,
    fill: bool,
    /// The limit of each segment; probationary has the remaining slots.
    limits: [u32; MOST],
    queues: LogQueues<MOST>,
}

/// Builds the policy; its parameters are `segments`, `protected` and `fill`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Slru, SpecError> {
    let segments = arguments.take("segments", "a number from 2 to 4", |n| {
        (2..=MOST).contains(n)
    })?;
    let segments = segments.unwrap_or(2);
    let share = if segments == 2 {
        0.8
    } else {
        (segments - 1) as f64 / segments as f64
    };
    let fill = arguments.take("fill", "true or false", |_: &bool| true)?;
    let mut policy = Slru {
        segments,
        share: arguments.share("protected", share)?,
        fill: fill.unwrap_or(false),
        limits: [0; MOST],
        queues: LogQueues::new(shape.slots),
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl Slru {
    /// Moves the excess of segment `from` and of those below it down.
    #[inline]
    fn cool(&mut self, from: usize) {
        for segment in (1..=from).rev() {
            while self.queues.len(segment) > self.limits[segment] {
                if let Some(oldest) = self.queues.front(segment) {
                    self.queues.move_back(segment - 1, oldest);
                }
            }
        }
    }

    fn lowest_with_room(&self) -> usize {
        let has_room = |&segment: &usize| self.queues.len(segment) < self.limits[segment];
        (0..self.segments).find(has_room).unwrap_or(PROBATION)
    }
}

impl Policy for Slru {
    #[inline]
    fn insert(&mut self, slot: Slot, _access: &Access) {
        let segment = if self.fill {
            self.lowest_with_room()
        } else {
            PROBATION
        };
        self.queues.push_back(segment, slot);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, _access: &Access) {
        let segment = (self.queues.queue_of(slot) + 1).min(self.segments - 1);
        self.queues.move_back(segment, slot);
        self.cool(segment);
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        (0..self.segments).find_map(|segment| self.queues.front(segment))
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.queues.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        let protected = self.segments - 1;
        let each = f64::from(slots) * self.share / protected as f64;
        // A share such as 3/4 of 3 segments must not come out just below a whole number.
        let each = (each + 1e-9) as u32;
        self.limits = [each; MOST];
        self.limits[PROBATION] = slots - each * protected as u32;
        self.cool(protected);
    }

    fn rank(&self, slot: Slot) -> u64 {
        self.queues.queue_of(slot) as u64
    }

    fn order(&self) -> Vec<Slot> {
        let segments = (0..self.segments).rev();
        segments
            .flat_map(|segment| self.queues.iter_back(segment))
            .collect()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.queues.total(), resident);
        for segment in 1..self.segments {
            assert!(self.queues.len(segment) <= self.limits[segment]);
        }
    }
}

impl SimulatorHints for Slru {
    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        self.queues.about(PROBATION, ahead)
    }
}

/// Lists, oldest first, the lowest segment first.
#[cfg(test)]
mod reference {
    pub struct Slru {
        pub slots: usize,
        pub fill: bool,
        /// How many each protected segment may have.
        pub limit: usize,
        pub segments: Vec<Vec<u64>>,
    }

    impl Slru {
        fn room(&self, segment: usize) -> usize {
            let protected = self.segments.len() - 1;
            match segment {
                0 => self.slots - protected * self.limit,
                _ => self.limit,
            }
        }
    }

    impl crate::contract::Reference for Slru {
        fn access(&mut self, block: u64) -> bool {
            let at = |list: &Vec<u64>| list.iter().position(|&held| held == block);
            let found = self.segments.iter().position(|list| at(list).is_some());
            if let Some(segment) = found {
                self.segments[segment].retain(|&held| held != block);
                let next = (segment + 1).min(self.segments.len() - 1);
                self.segments[next].push(block);
                for above in (1..=next).rev() {
                    if self.segments[above].len() > self.limit {
                        let oldest = self.segments[above].remove(0);
                        self.segments[above - 1].push(oldest);
                    }
                }
                return true;
            }
            if self.segments.concat().len() == self.slots {
                let lowest = self.segments.iter_mut().find(|list| !list.is_empty());
                lowest.expect("full").remove(0);
            }
            let has_room = |&n: &usize| self.segments[n].len() < self.room(n);
            let lowest = (0..self.segments.len()).find(has_room).unwrap_or(0);
            self.segments[if self.fill { lowest } else { 0 }].push(block);
            false
        }

        fn resident(&self) -> Vec<u64> {
            self.segments.concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // 3 slots, 2 of them protected: the third hit sends 1 back to probation, behind nobody.
        assert_eq!(order_after("slru", 3, &[1, 2, 3, 1]), [1, 3, 2]);
        assert_eq!(order_after("slru", 3, &[1, 2, 3, 1, 2, 3]), [3, 2, 1]);
        assert_eq!(order_after("slru", 3, &[1, 2, 3, 1, 2, 4]), [2, 1, 4]);
    }

    #[test]
    fn worked_example_of_four_segments() {
        // 4 slots, one in each segment. 1 rises with each hit; 2 then takes its place in the second, so 1, which is
        // above, stays, and 3 comes to the second for 2, which goes back to the lowest.
        let text = "slru(segments=4)";
        assert_eq!(order_after(text, 4, &[1, 1, 1, 2, 2, 3, 3]), [1, 3, 2]);
        // A fourth hit changes nothing for 1, and the lowest segment's oldest goes first.
        let reads = [1, 1, 1, 1, 2, 2, 3, 3, 4, 5];
        assert_eq!(order_after(text, 4, &reads), [1, 3, 5, 4]);
        // With room above, new blocks fill the segments from below.
        let text = "slru(segments=4,fill=true)";
        assert_eq!(order_after(text, 4, &[1, 2, 3, 4]), [4, 3, 2, 1]);
    }

    #[test]
    fn equals_its_reference_model() {
        for (text, segments, fill, protected) in [
            ("slru", 2, false, 8),
            ("slru(segments=2,fill=true,protected=0.5)", 2, true, 5),
            ("slru(segments=3,protected=0.6)", 3, false, 6),
            ("slru(segments=4,protected=0.9,fill=true)", 4, true, 9),
        ] {
            equals_reference(text, |slots, _| reference::Slru {
                slots,
                fill,
                limit: slots * protected / 10 / (segments - 1),
                segments: vec![Vec::new(); segments],
            });
        }
    }
}
