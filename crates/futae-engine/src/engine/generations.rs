//! The generation, i.e. the connection of the store, under which each frame's data came.
//!
//! A cache outlives the connections of its stores. While a connection was lost, another client may
//! have written. Data from an earlier connection may therefore still answer reads, but must never
//! be demoted to the lower level (docs/reference/wire.md, promise 4).

use futae_policy::Slot;

/// The generation of data whose connection is unknown; no store has it.
pub const UNKNOWN: u64 = u64::MAX;

/// The generation of each slot's data, if the cache needs to know it.
#[derive(Debug, Default)]
pub struct Generations {
    slots: Vec<u64>,
}

impl Generations {
    /// The slot has a new block, whose data will come under `generation` or a later one.
    pub fn came(&mut self, slot: Slot, generation: u64) {
        if self.slots.len() <= slot.i() {
            self.slots.resize(slot.i() + 1, UNKNOWN);
        }
        self.slots[slot.i()] = generation;
    }

    /// Data that were requested under `generation` are in the slot now. Unless this is the
    /// generation at the decision, their connection is unknown.
    pub fn landed(&mut self, slot: Slot, generation: u64) {
        if let Some(known) = self
            .slots
            .get_mut(slot.i())
            .filter(|known| **known != generation)
        {
            *known = UNKNOWN;
        }
    }

    /// The generation of the slot's data.
    pub fn of(&self, slot: Slot) -> u64 {
        self.slots.get(slot.i()).copied().unwrap_or(UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_asked_for_before_the_decision_are_of_no_generation() {
        let mut generations = Generations::default();
        assert_eq!(generations.of(Slot(3)), UNKNOWN);
        generations.came(Slot(3), 2);
        generations.landed(Slot(3), 2);
        assert_eq!(
            (generations.of(Slot(3)), generations.of(Slot(0))),
            (2, UNKNOWN)
        );
        generations.landed(Slot(3), 1);
        assert_eq!(generations.of(Slot(3)), UNKNOWN);
        generations.landed(Slot(9), 1);
        assert_eq!(generations.of(Slot(9)), UNKNOWN);
    }
}
