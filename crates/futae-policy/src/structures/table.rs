//! One value per slot, in a plain array that grows with the slots.

use crate::Slot;

/// One value per slot. A slot that was never set has the default value.
#[derive(Clone, Debug, Default)]
pub struct Table<T> {
    values: Vec<T>,
}

impl<T: Copy + Default> Table<T> {
    /// A table with room for `slots` slots; more are added as they come.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            values: Vec::with_capacity(slots as usize),
        }
    }

    /// The value of `slot`.
    #[inline]
    #[must_use]
    pub fn get(&self, slot: Slot) -> T {
        self.values.get(slot.i()).copied().unwrap_or_default()
    }

    /// Sets the value of `slot`.
    #[inline]
    pub fn set(&mut self, slot: Slot, value: T) {
        *self.at(slot) = value;
    }

    /// The value of `slot`, for modification.
    #[inline]
    pub fn at(&mut self, slot: Slot) -> &mut T {
        if self.values.len() <= slot.i() {
            self.values.resize(slot.i() + 1, T::default());
        }
        &mut self.values[slot.i()]
    }

    /// An upper bound of the slots that have been set: all others have the default value.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether no slot has been set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Sets the value of every slot back to the default.
    pub fn clear(&mut self) {
        self.values.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use crate::Slot;

    #[test]
    fn a_slot_has_the_value_that_was_set_last_and_at_first_the_default() {
        let mut table = Table::<u8>::new(2);
        assert_eq!(table.get(Slot(7)), 0);
        table.set(Slot(7), 3);
        *table.at(Slot(2)) += 1;
        assert_eq!([2, 6, 7, 8].map(|slot| table.get(Slot(slot))), [1, 0, 3, 0]);
        table.clear();
        assert!(table.is_empty() && table.get(Slot(7)) == 0);
    }
}
