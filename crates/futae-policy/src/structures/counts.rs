//! Slots ordered by their number of uses: frequency lists.

use crate::Slot;

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
    list: u32,
}

/// The slots with one count, in the order in which they reached it.
#[derive(Clone, Copy, Debug)]
struct List {
    count: u32,
    first: u32,
    last: u32,
    lower: u32,
    higher: u32,
}

/// Slots ordered by a count of uses, and for equal counts by the time of the last use (Shah, Mitra
/// and Matani, "An O(1) algorithm for implementing the LFU cache eviction scheme", 2010). Counting
/// a use takes constant time; insertion with a count of `f` takes as many steps as there are
/// different lower counts. 12 bytes per slot.
#[derive(Clone, Debug)]
pub struct Counts {
    links: Vec<Link>,
    lists: Vec<List>,
    unused_lists: Vec<u32>,
    lowest: u32,
    length: u32,
}

impl Counts {
    /// Empty, with room for `slots` slots; more are added as they come.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            links: Vec::with_capacity(slots as usize),
            lists: Vec::new(),
            unused_lists: Vec::new(),
            lowest: NIL,
            length: 0,
        }
    }

    /// Slots that are counted.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Whether no slot is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The slot with the lowest count, and among equals the one used longest ago.
    #[inline]
    #[must_use]
    pub fn lowest(&self) -> Option<Slot> {
        let list = self.lists.get(self.lowest as usize)?;
        Some(Slot(list.first))
    }

    /// The slot with the lowest count, and among equals the one used last.
    #[inline]
    #[must_use]
    pub fn lowest_latest(&self) -> Option<Slot> {
        let list = self.lists.get(self.lowest as usize)?;
        Some(Slot(list.last))
    }

    /// The count of `slot`, which must be in.
    #[inline]
    #[must_use]
    pub fn count(&self, slot: Slot) -> u32 {
        self.lists[self.links[slot.i()].list as usize].count
    }

    /// Puts `slot`, which must not be in, in with `count`.
    #[inline]
    pub fn insert(&mut self, slot: Slot, count: u32) {
        if self.links.len() <= slot.i() {
            let absent = Link {
                previous: NIL,
                next: NIL,
                list: NIL,
            };
            self.links.resize(slot.i() + 1, absent);
        }
        let (mut below, mut at) = (NIL, self.lowest);
        while at != NIL && self.lists[at as usize].count < count {
            (below, at) = (at, self.lists[at as usize].higher);
        }
        let list = if at != NIL && self.lists[at as usize].count == count {
            at
        } else {
            self.new_list(count, below, at)
        };
        self.append(list, slot);
        self.length += 1;
    }

    /// Counts one more use of `slot`, which must be in.
    #[inline]
    pub fn bump(&mut self, slot: Slot) {
        let old = self.links[slot.i()].list;
        let List {
            count,
            first,
            last,
            higher,
            ..
        } = self.lists[old as usize];
        let Some(more) = count.checked_add(1) else {
            return;
        };
        let next_exists = higher != NIL && self.lists[higher as usize].count == more;
        if first == last && !next_exists {
            self.lists[old as usize].count = more;
            return;
        }
        let list = if next_exists {
            higher
        } else {
            self.new_list(more, old, higher)
        };
        self.detach(slot);
        self.append(list, slot);
    }

    /// Takes `slot`, which must be in, out.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        self.detach(slot);
        self.length -= 1;
    }

    /// Every slot, lowest count first.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        let lists = std::iter::successors(self.lists.get(self.lowest as usize), |list| {
            self.lists.get(list.higher as usize)
        });
        lists.flat_map(|list| {
            std::iter::successors(Some(Slot(list.first)), |slot| {
                let next = self.links[slot.i()].next;
                (next != NIL).then_some(Slot(next))
            })
        })
    }

    fn new_list(&mut self, count: u32, lower: u32, higher: u32) -> u32 {
        let list = List {
            count,
            first: NIL,
            last: NIL,
            lower,
            higher,
        };
        let at = if let Some(at) = self.unused_lists.pop() {
            self.lists[at as usize] = list;
            at
        } else {
            self.lists.push(list);
            self.lists.len() as u32 - 1
        };
        self.join(lower, at);
        self.join(at, higher);
        at
    }

    fn join(&mut self, lower: u32, higher: u32) {
        if lower == NIL {
            self.lowest = higher;
        } else {
            self.lists[lower as usize].higher = higher;
        }
        if higher != NIL {
            self.lists[higher as usize].lower = lower;
        }
    }

    #[inline]
    fn append(&mut self, at: u32, slot: Slot) {
        let list = &mut self.lists[at as usize];
        let previous = std::mem::replace(&mut list.last, slot.0);
        if previous == NIL {
            list.first = slot.0;
        } else {
            self.links[previous as usize].next = slot.0;
        }
        self.links[slot.i()] = Link {
            previous,
            next: NIL,
            list: at,
        };
    }

    #[inline]
    fn detach(&mut self, slot: Slot) {
        let Link {
            previous,
            next,
            list: at,
        } = self.links[slot.i()];
        let list = &mut self.lists[at as usize];
        if previous == NIL {
            list.first = next;
        } else {
            self.links[previous as usize].next = next;
        }
        if next == NIL {
            list.last = previous;
        } else {
            self.links[next as usize].previous = previous;
        }
        if previous == NIL && next == NIL {
            let (lower, higher) = (list.lower, list.higher);
            self.join(lower, higher);
            self.unused_lists.push(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Equal to a plain list sorted by (count, time) under any sequence of operations.
        #[test]
        fn equal_to_a_sorted_list(steps in prop::collection::vec((0u8..6, 0u32..16, 1u32..9), 0..500)) {
            let mut counts = Counts::new(4);
            let mut model: Vec<(u32, usize, u32)> = Vec::new();
            for (time, (what, slot, count)) in steps.into_iter().enumerate() {
                match (what, model.iter().position(|entry| entry.2 == slot)) {
                    (0 | 1, None) => {
                        counts.insert(Slot(slot), count);
                        model.push((count, time, slot));
                    }
                    (1, Some(at)) => {
                        counts.remove(Slot(slot));
                        model.remove(at);
                    }
                    (2.., Some(at)) => {
                        counts.bump(Slot(slot));
                        model[at] = (model[at].0 + 1, time, slot);
                    }
                    _ => {}
                }
                model.sort_unstable();
                let held: Vec<u32> = counts.iter().map(|slot| slot.0).collect();
                let expected: Vec<u32> = model.iter().map(|entry| entry.2).collect();
                prop_assert_eq!(counts.lowest().map(|slot| slot.0), expected.first().copied());
                let least = model.first().map(|entry| entry.0);
                let latest = model.iter().rfind(|entry| Some(entry.0) == least);
                prop_assert_eq!(counts.lowest_latest().map(|slot| slot.0), latest.map(|entry| entry.2));
                prop_assert_eq!(held, expected);
                prop_assert_eq!(counts.len() as usize, model.len());
                for &(count, _, slot) in &model {
                    prop_assert_eq!(counts.count(Slot(slot)), count);
                }
            }
        }
    }
}
