//! Const: loads a chosen set of blocks and keeps them; keeps nothing else.
//!
//! # Source
//! Yoshida, Kourai and Yamaguchi 2018, Const Cache FS (sections 2.5 and 3.2).
//! # Picture
//! [ the chosen blocks ]; all others are served and not kept
//! # Transitions
//! start: the chosen blocks are loaded, as many as there are slots | hit: nothing | miss: placed if chosen
//! and there is a free slot, else served and not kept
//! # Parameters
//! pin first: the chosen blocks of the first volume, as ranges, e.g. `0-20+33`; `first` stands for the
//! blocks from 0 on, as many as there are slots
//! # Deviations
//! none. A chosen block that was lost is loaded again at its next request
//! # Cost
//! O(1) per access, O(log ranges) per miss; 8 bytes per slot

use crate::structures::Queues;
use crate::{
    Access, Admission, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot,
    SpecError, VolumeId,
};
use std::str::FromStr;

const ORDER: usize = 0;

/// Block numbers as disjoint ranges, both ends included, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pins(Vec<(u64, u64)>);

impl FromStr for Pins {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut ranges = Vec::new();
        for part in text.split('+') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let parse = |number: &str| number.trim().parse::<u64>().map_err(|_| ());
            let (first, last) = (parse(first)?, parse(last)?);
            if first > last || last >= BlockId::INDEX_LIMIT {
                return Err(());
            }
            ranges.push((first, last));
        }
        ranges.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Ok(Self(joined))
    }
}

impl Pins {
    fn has(&self, block: BlockId) -> bool {
        let at = self.0.partition_point(|range| range.1 < block.index());
        block.volume() == VolumeId(0) && self.0.get(at).is_some_and(|r| r.0 <= block.index())
    }

    /// The first chosen block at or after `index`.
    fn at_or_after(&self, index: u64) -> Option<u64> {
        let at = self.0.partition_point(|range| range.1 < index);
        self.0.get(at).map(|range| range.0.max(index))
    }
}

/// A set that is chosen before and never replaced.
#[derive(Debug)]
pub struct Const {
    /// The chosen blocks; none are written: the first ones.
    written: Option<Pins>,
    pins: Pins,
    slots: u32,
    arrivals: Queues,
    /// From which block on the chosen ones have not been asked for yet.
    next: Option<u64>,
}

/// Builds the policy; its parameter is `pin`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Const, SpecError> {
    let is_pins = |text: &String| text == "first" || text.parse::<Pins>().is_ok();
    let text = arguments.take("pin", "block ranges such as 0-20+33, or first", is_pins)?;
    let mut policy = Const {
        written: text.and_then(|text| text.parse().ok()),
        pins: Pins(Vec::new()),
        slots: shape.slots,
        arrivals: Queues::new(1, shape.slots),
        next: None,
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl Policy for Const {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        if self.pins.has(access.block) {
            Admission::Admit
        } else {
            Admission::Bypass
        }
    }

    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.arrivals.push_back(ORDER, slot);
    }

    #[inline]
    fn hit(&mut self, _slot: Slot, _access: &Access) {}

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        None
    }

    fn surplus(&mut self) -> Option<Slot> {
        self.arrivals.back(ORDER)
    }

    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.arrivals.remove(slot);
    }

    #[inline]
    fn review(&mut self) -> Option<BlockId> {
        let next = self.next.take()?;
        if self.arrivals.len(ORDER) >= self.slots {
            return None;
        }
        let index = self.pins.at_or_after(next)?;
        self.next = Some(index + 1);
        Some(BlockId::on_first(index))
    }

    fn resize(&mut self, slots: u32) {
        self.slots = slots;
        let first = || Pins(vec![(0, u64::from(slots).saturating_sub(1))]);
        self.pins = self.written.clone().unwrap_or_else(first);
        self.next = Some(0);
    }

    /// The latest arrival would be the first to go when the cache is made smaller.
    fn order(&self) -> Vec<Slot> {
        self.arrivals.iter(ORDER).collect()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.arrivals.len(ORDER), resident);
    }
}

impl SimulatorHints for Const {}

/// A set that is full after the first access.
#[cfg(test)]
mod reference {
    pub struct Const {
        pub slots: usize,
        pub pins: Vec<u64>,
        pub blocks: Vec<u64>,
    }

    impl crate::contract::Reference for Const {
        fn access(&mut self, block: u64) -> bool {
            let hit = self.blocks.contains(&block);
            let coming = [&[block], self.pins.as_slice()].concat();
            for block in coming {
                let chosen = self.pins.contains(&block) && !self.blocks.contains(&block);
                if chosen && self.blocks.len() < self.slots {
                    self.blocks.push(block);
                }
            }
            hit
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Pins, reference};
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        assert_eq!(order_after("const(pin=3-4+9)", 3, &[7, 9, 7]), [3, 4, 9]);
        assert_eq!(order_after("const(pin=3-4+9)", 2, &[7]), [3, 4]);
        assert_eq!(order_after("const", 2, &[7]), [0, 1]);
    }

    #[test]
    fn ranges_are_read_as_written_and_joined() {
        let pins = |text: &str| text.parse::<Pins>();
        assert_eq!(pins("7+0-2+3-5"), Ok(Pins(vec![(0, 5), (7, 7)])));
        for text in ["", "+", "5-3", "a", "1--2", "-1", "0-281474976710656"] {
            assert!(pins(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn equals_its_reference_model() {
        for (text, pins) in [
            ("const(pin=0-3+7+9-11)", vec![0, 1, 2, 3, 7, 9, 10, 11]),
            ("const(pin=5)", vec![5]),
        ] {
            equals_reference(text, |slots, _| reference::Const {
                slots,
                pins: pins.clone(),
                blocks: Vec::new(),
            });
        }
    }
}
