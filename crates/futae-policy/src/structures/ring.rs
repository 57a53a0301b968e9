//! Slots in a circle, each with a mark, for clock policies.

use crate::Slot;

const ABSENT: u8 = u8::MAX;

/// The resident slots in a circle by number, each with a small mark. A newcomer takes the place of
/// the victim whose slot it gets, as in the page frames for which clocks were invented, so no links
/// are needed: one byte per slot.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    marks: Vec<u8>,
    length: u32,
}

impl Ring {
    /// An empty ring with room for `slots` slots; more are added as they come.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            marks: Vec::with_capacity(slots as usize),
            length: 0,
        }
    }

    /// Slots in the ring.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Whether the ring is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Places in the ring, taken or not.
    #[inline]
    #[must_use]
    pub fn places(&self) -> u32 {
        self.marks.len() as u32
    }

    /// Whether `slot` is in the ring.
    #[inline]
    #[must_use]
    pub fn has(&self, slot: Slot) -> bool {
        self.marks.get(slot.i()).is_some_and(|&mark| mark != ABSENT)
    }

    /// Puts `slot`, which must not be in the ring, into it with `mark`, at most 254.
    #[inline]
    pub fn insert(&mut self, slot: Slot, mark: u8) {
        debug_assert_ne!(mark, ABSENT);
        if self.marks.len() <= slot.i() {
            self.marks.resize(slot.i() + 1, ABSENT);
        }
        debug_assert_eq!(self.marks[slot.i()], ABSENT, "slot is in the ring");
        self.marks[slot.i()] = mark;
        self.length += 1;
    }

    /// The mark of `slot`, which must be in the ring.
    #[inline]
    #[must_use]
    pub fn mark(&self, slot: Slot) -> u8 {
        self.marks[slot.i()]
    }

    /// Changes the mark of `slot`, which must be in the ring.
    #[inline]
    pub fn set_mark(&mut self, slot: Slot, mark: u8) {
        debug_assert_ne!(self.marks[slot.i()], ABSENT, "slot is not in the ring");
        self.marks[slot.i()] = mark;
    }

    /// Removes `slot`, which must be in the ring.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        debug_assert_ne!(self.marks[slot.i()], ABSENT, "slot is not in the ring");
        self.marks[slot.i()] = ABSENT;
        self.length -= 1;
    }

    /// The first slot in the ring at or after position `hand`, wrapping around.
    #[inline]
    #[must_use]
    pub fn at_or_after(&self, hand: u32) -> Option<Slot> {
        if self.length == 0 {
            return None;
        }
        let hand = (hand as usize).min(self.marks.len());
        let held = |&mark: &u8| mark != ABSENT;
        self.marks[hand..]
            .iter()
            .position(held)
            .map(|at| at + hand)
            .or_else(|| self.marks[..hand].iter().position(held))
            .map(|at| Slot(at as u32))
    }

    /// Every slot in the ring once, from position `hand` on, wrapping around.
    pub fn iter_from(&self, hand: u32) -> impl Iterator<Item = Slot> + '_ {
        let hand = (hand as usize).min(self.marks.len());
        (hand..self.marks.len())
            .chain(0..hand)
            .filter(|&at| self.marks[at] != ABSENT)
            .map(|at| Slot(at as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Equal to a plain map from slot to mark under any sequence of operations.
        #[test]
        fn equal_to_a_plain_map(steps in prop::collection::vec((0u8..3, 0u32..20, 0u8..5), 0..300)) {
            let mut ring = Ring::new(4);
            let mut model = BTreeMap::new();
            for (what, slot, mark) in steps {
                match (what, model.contains_key(&slot)) {
                    (0, false) => {
                        ring.insert(Slot(slot), mark);
                        model.insert(slot, mark);
                    }
                    (1, true) => {
                        ring.remove(Slot(slot));
                        model.remove(&slot);
                    }
                    (2, true) => {
                        ring.set_mark(Slot(slot), mark);
                        model.insert(slot, mark);
                    }
                    _ => {}
                }
                let round: Vec<u32> = ring.iter_from(slot).map(|slot| slot.0).collect();
                let expected: Vec<u32> = model.range(slot..).chain(model.range(..slot)).map(|(&slot, _)| slot).collect();
                prop_assert_eq!(ring.at_or_after(slot).map(|slot| slot.0), expected.first().copied());
                prop_assert_eq!(round, expected);
                prop_assert_eq!(ring.len() as usize, model.len());
                for slot in 0..24 {
                    prop_assert_eq!(ring.has(Slot(slot)), model.contains_key(&slot));
                }
                for (&slot, &mark) in &model {
                    prop_assert_eq!(ring.mark(Slot(slot)), mark);
                }
            }
        }
    }
}
