//! One queue of slots as a log, consumed from the front.

use crate::Slot;
use std::collections::VecDeque;
use std::hint::black_box;

/// Places are below this, which leaves the policy two bits beside a stored place.
const PLACES: u32 = 1 << 30;
/// A place that its slot has left.
const GAP: u32 = u32::MAX;
/// The number of gaps tolerated beyond one per slot.
const GAPS_SPARE: usize = 64;

/// Slots in order of arrival. A slot that leaves elsewhere than at the front leaves a gap. It is
/// found by its place, which the caller stores: 4 bytes per slot.
#[derive(Clone, Debug)]
pub struct LogQueue {
    cells: VecDeque<u32>,
    /// The place of the first cell; later ones count up, below 2^30, and then from 0 again.
    first: u32,
    length: u32,
}

impl LogQueue {
    /// An empty queue with room for `slots` slots; more are added as they come.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            cells: VecDeque::with_capacity(slots as usize),
            first: 0,
            length: 0,
        }
    }

    /// Number of slots in the queue.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Whether the queue is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The first slot.
    #[inline]
    #[must_use]
    pub fn front(&self) -> Option<Slot> {
        self.cells.front().map(|&slot| Slot(slot))
    }

    /// Appends a slot; returns its place.
    #[inline]
    pub fn push(&mut self, slot: Slot) -> u32 {
        let place = (self.first + self.cells.len() as u32) % PLACES;
        self.cells.push_back(slot.0);
        self.length += 1;
        place
    }

    /// Removes the first slot.
    #[inline]
    pub fn pop(&mut self) {
        if self.cells.pop_front().is_some() {
            self.first = (self.first + 1) % PLACES;
            self.length -= 1;
            self.pass_gaps();
        }
    }

    /// Removes the slot at a place.
    #[inline]
    pub fn leave(&mut self, place: u32) {
        if place == self.first {
            return self.pop();
        }
        let at = (place.wrapping_sub(self.first) % PLACES) as usize;
        debug_assert_ne!(self.cells[at], GAP, "nobody stands there");
        self.cells[at] = GAP;
        self.length -= 1;
    }

    /// Gaps never come first.
    #[inline]
    fn pass_gaps(&mut self) {
        while self.cells.front() == Some(&GAP) {
            self.cells.pop_front();
            self.first = (self.first + 1) % PLACES;
        }
    }

    /// Whether there are enough gaps to [`close`](Self::close) them.
    #[inline]
    #[must_use]
    pub fn is_gappy(&self) -> bool {
        self.cells.len() > 2 * self.length as usize + GAPS_SPARE
    }

    /// Closes all gaps; calls `moved` with every slot, first to last, and its new place.
    pub fn close(&mut self, mut moved: impl FnMut(Slot, u32)) {
        self.cells.retain(|&slot| slot != GAP);
        for (ahead, &slot) in (0..).zip(&self.cells) {
            moved(Slot(slot), (self.first + ahead) % PLACES);
        }
    }

    /// Roughly the slot `ahead` places behind the first, for look-ahead: gaps count as places.
    /// `None` behind the last, or at a gap.
    #[inline]
    #[must_use]
    pub fn about(&self, ahead: u32) -> Option<Slot> {
        let slot = *self.cells.get(ahead as usize)?;
        black_box((slot != GAP).then_some(Slot(slot)))
    }

    /// Places from the first to the last, gaps among them.
    #[inline]
    #[must_use]
    pub fn places(&self) -> u32 {
        self.cells.len() as u32
    }

    /// All slots, first to last.
    pub fn iter(&self) -> impl Iterator<Item = Slot> {
        let slots = self.cells.iter().filter(|&&slot| slot != GAP);
        slots.map(|&slot| Slot(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(row: &LogQueue) -> Vec<u32> {
        row.iter().map(|slot| slot.0).collect()
    }

    #[test]
    fn who_leaves_is_passed_and_the_others_keep_their_order() {
        let mut row = LogQueue::new(4);
        let places: Vec<_> = (0..6).map(|slot| row.push(Slot(slot))).collect();
        row.leave(places[1]);
        row.leave(places[2]);
        row.leave(places[4]);
        assert_eq!((order(&row), row.len()), (vec![0, 3, 5], 3));
        assert_eq!((row.about(1), row.about(3)), (None, Some(Slot(3))));
        row.leave(places[0]);
        assert_eq!((row.front(), row.places()), (Some(Slot(3)), 3));
        row.pop();
        row.pop();
        assert!(row.is_empty() && row.front().is_none() && row.places() == 0);
    }

    #[test]
    fn gaps_are_closed_and_places_told() {
        let mut row = LogQueue::new(4);
        let mut places: Vec<_> = (0..200).map(|slot| row.push(Slot(slot))).collect();
        for slot in (0..200).filter(|slot| slot % 10 != 7) {
            assert!(!row.is_gappy() || row.len() < 70);
            row.leave(places[slot]);
        }
        assert!(row.is_gappy());
        row.close(|slot, place| places[slot.i()] = place);
        assert!(!row.is_gappy());
        row.leave(places[57]);
        let wanted: Vec<u32> = (0..200)
            .filter(|slot| slot % 10 == 7 && *slot != 57)
            .collect();
        assert_eq!(order(&row), wanted);
    }
}
