//! Which blocks a kernel's lists hold as one.

use super::Table;
use crate::Slot;

/// Large folios of Linux: runs of 2^n blocks, aligned to their length, which enter and leave the kernel's lists as one entry.
///
/// Constant time per block that joins; a folio's length per block that leaves. 9 bytes per slot of a cache with large folios, none
/// in another.
#[derive(Clone, Debug, Default)]
pub struct Folios {
    /// The binary logarithm of the length with which each slot's folio was made.
    orders: Table<u8>,
    /// The next slot of the same folio, in a ring; none for a block that is its own folio.
    next: Table<Option<Slot>>,
}

impl Folios {
    /// `slot` is a block of a folio of 2^`order` blocks, of which `mate` is the one that joined last.
    pub fn join(&mut self, slot: Slot, order: u8, mate: Option<Slot>) {
        self.orders.set(slot, order);
        self.next.set(slot, None);
        if let Some(mate) = mate {
            let first = self.next.get(mate).unwrap_or(mate);
            self.next.set(slot, Some(first));
            self.next.set(mate, Some(slot));
        }
    }

    /// The block of `slot` leaves.
    pub fn leave(&mut self, slot: Slot) {
        let Some(next) = self.next.get(slot) else {
            return;
        };
        let before = self.of(slot).last().unwrap_or(slot);
        let rest = (before != next).then_some(next);
        self.next.set(before, rest);
        self.next.set(slot, None);
    }

    /// The binary logarithm of the length with which the folio of `slot` was made.
    #[inline]
    #[must_use]
    pub fn order(&self, slot: Slot) -> u32 {
        self.orders.get(slot).into()
    }

    /// The slots of the folio of `slot`: that one, then those that joined after it, then those before it.
    #[inline]
    pub fn of(&self, slot: Slot) -> impl Iterator<Item = Slot> + '_ {
        let mut following = Some(slot);
        std::iter::from_fn(move || {
            let one = following?;
            following = self.next.get(one).filter(|&next| next != slot);
            Some(one)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(folios: &Folios, slot: u32) -> Vec<u32> {
        folios.of(Slot(slot)).map(|slot| slot.0).collect()
    }

    #[test]
    fn blocks_join_and_leave_in_any_order() {
        let mut folios = Folios::default();
        assert_eq!(of(&folios, 9), [9]);
        folios.join(Slot(4), 2, None);
        folios.join(Slot(2), 2, Some(Slot(4)));
        folios.join(Slot(7), 2, Some(Slot(2)));
        folios.join(Slot(5), 0, None);
        assert_eq!([of(&folios, 4), of(&folios, 7)], [[4, 2, 7], [7, 4, 2]]);
        assert_eq!(of(&folios, 5), [5]);
        assert_eq!([7, 5].map(|slot| folios.order(Slot(slot))), [2, 0]);
        folios.leave(Slot(2));
        assert_eq!([of(&folios, 4), of(&folios, 7)], [[4, 7], [7, 4]]);
        folios.leave(Slot(4));
        assert_eq!(of(&folios, 7), [7]);
        folios.leave(Slot(7));
        // What was the slot of a block of a folio is that of any other.
        folios.join(Slot(7), 0, None);
        assert_eq!(of(&folios, 7), [7]);
    }
}
