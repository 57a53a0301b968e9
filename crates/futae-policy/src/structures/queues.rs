//! Several doubly linked queues over one space of slots.

use super::prefetch;
use crate::Slot;

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    front: u32,
    back: u32,
    length: u32,
}

/// `N` queues over one slot space; a slot is in at most one of them. All operations except
/// [`iter`](Self::iter) take constant time. 8 bytes per slot, and 1 more with several queues.
#[derive(Clone, Debug)]
pub struct Queues {
    links: Vec<Link>,
    /// The queue of each slot; empty if there is only one queue.
    membership: Vec<u8>,
    ends: Vec<Ends>,
}

impl Queues {
    /// `queues` empty queues (at most 255), with room for `slots` slots; more are added as they
    /// come.
    #[must_use]
    pub fn new(queues: usize, slots: u32) -> Self {
        assert!((1..=255).contains(&queues), "between 1 and 255 queues");
        Self {
            links: Vec::with_capacity(slots as usize),
            membership: Vec::new(),
            ends: vec![
                Ends {
                    front: NIL,
                    back: NIL,
                    length: 0
                };
                queues
            ],
        }
    }

    /// Prefetches the links of `slot`, which may be any number.
    #[inline]
    pub fn approach(&self, slot: Slot) {
        prefetch(&self.links, slot.i());
    }

    /// Slots in queue `q`.
    #[inline]
    #[must_use]
    pub fn len(&self, q: usize) -> u32 {
        self.ends[q].length
    }

    /// Whether queue `q` is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self, q: usize) -> bool {
        self.ends[q].length == 0
    }

    /// Slots in all queues together.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.ends.iter().map(|ends| ends.length).sum()
    }

    /// The first slot of queue `q`.
    #[inline]
    #[must_use]
    pub fn front(&self, q: usize) -> Option<Slot> {
        let slot = self.ends[q].front;
        (slot != NIL).then_some(Slot(slot))
    }

    /// The last slot of queue `q`.
    #[inline]
    #[must_use]
    pub fn back(&self, q: usize) -> Option<Slot> {
        let slot = self.ends[q].back;
        (slot != NIL).then_some(Slot(slot))
    }

    /// The slot after `slot` in its queue.
    #[inline]
    #[must_use]
    pub fn after(&self, slot: Slot) -> Option<Slot> {
        let next = self.links[slot.i()].next;
        (next != NIL).then_some(Slot(next))
    }

    /// The slot before `slot` in its queue.
    #[inline]
    #[must_use]
    pub fn before(&self, slot: Slot) -> Option<Slot> {
        let previous = self.links[slot.i()].previous;
        (previous != NIL).then_some(Slot(previous))
    }

    /// The queue that `slot`, which must be in one, is in.
    #[inline]
    #[must_use]
    pub fn queue_of(&self, slot: Slot) -> usize {
        if self.ends.len() == 1 {
            0
        } else {
            usize::from(self.membership[slot.i()])
        }
    }

    /// Appends `slot`, which must be in no queue, to queue `q`.
    #[inline]
    pub fn push_back(&mut self, q: usize, slot: Slot) {
        self.make_room(slot);
        let back = self.ends[q].back;
        self.links[slot.i()] = Link {
            previous: back,
            next: NIL,
        };
        self.enter(q, slot);
        self.ends[q].back = slot.0;
        if back == NIL {
            self.ends[q].front = slot.0;
        } else {
            self.links[back as usize].next = slot.0;
        }
    }

    /// Puts `slot`, which must be in no queue, before all others of queue `q`.
    #[inline]
    pub fn push_front(&mut self, q: usize, slot: Slot) {
        self.make_room(slot);
        let front = self.ends[q].front;
        self.links[slot.i()] = Link {
            previous: NIL,
            next: front,
        };
        self.enter(q, slot);
        self.ends[q].front = slot.0;
        if front == NIL {
            self.ends[q].back = slot.0;
        } else {
            self.links[front as usize].previous = slot.0;
        }
    }

    #[inline]
    fn enter(&mut self, q: usize, slot: Slot) {
        if self.ends.len() > 1 {
            self.membership[slot.i()] = q as u8;
        }
        self.ends[q].length += 1;
    }

    #[inline]
    fn make_room(&mut self, slot: Slot) {
        if self.links.len() <= slot.i() {
            self.links.resize(
                slot.i() + 1,
                Link {
                    previous: NIL,
                    next: NIL,
                },
            );
            if self.ends.len() > 1 {
                self.membership.resize(slot.i() + 1, u8::MAX);
            }
        }
    }

    /// Removes `slot`, which must be in a queue.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        let q = self.queue_of(slot);
        let Link { previous, next } = self.links[slot.i()];
        let ends = &mut self.ends[q];
        ends.length -= 1;
        if previous == NIL {
            debug_assert_eq!(ends.front, slot.0, "slot is not in the queue");
            ends.front = next;
        } else {
            self.links[previous as usize].next = next;
        }
        let ends = &mut self.ends[q];
        if next == NIL {
            debug_assert_eq!(ends.back, slot.0, "slot is not in the queue");
            ends.back = previous;
        } else {
            self.links[next as usize].previous = previous;
        }
    }

    /// Moves `slot` from its queue to the back of queue `q`.
    #[inline]
    pub fn move_back(&mut self, q: usize, slot: Slot) {
        if self.ends[q].back == slot.0 {
            return;
        }
        self.remove(slot);
        self.push_back(q, slot);
    }

    /// The slots of queue `q`, front to back.
    pub fn iter(&self, q: usize) -> impl Iterator<Item = Slot> + '_ {
        std::iter::successors(self.front(q), |&slot| self.after(slot))
    }

    /// The slots of queue `q`, back to front.
    pub fn iter_back(&self, q: usize) -> impl Iterator<Item = Slot> + '_ {
        std::iter::successors(self.back(q), |&slot| self.before(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Equal to plain deques under any sequence of operations.
        #[test]
        fn equal_to_plain_deques(steps in prop::collection::vec((0u8..5, 0usize..3, 0u32..12), 0..400)) {
            let mut queues = Queues::new(3, 4);
            let mut model: Vec<VecDeque<u32>> = vec![VecDeque::new(); 3];
            for (what, q, s) in steps {
                let home = (0..3).find(|&q| model[q].contains(&s));
                match (what, home) {
                    (0, None) => { queues.push_back(q, Slot(s)); model[q].push_back(s); }
                    (1, None) => { queues.push_front(q, Slot(s)); model[q].push_front(s); }
                    (2, Some(at)) => { queues.remove(Slot(s)); model[at].retain(|&x| x != s); }
                    (3, Some(at)) => {
                        queues.move_back(q, Slot(s));
                        model[at].retain(|&x| x != s);
                        model[q].push_back(s);
                    }
                    (4, Some(at)) => prop_assert_eq!(queues.queue_of(Slot(s)), at),
                    _ => {}
                }
                for (q, plain) in model.iter().enumerate() {
                    let front: Vec<u32> = queues.iter(q).map(|s| s.0).collect();
                    let mut back: Vec<u32> = queues.iter_back(q).map(|s| s.0).collect();
                    back.reverse();
                    prop_assert_eq!(&front, &Vec::from(plain.clone()));
                    prop_assert_eq!(&back, &front);
                    prop_assert_eq!(queues.len(q) as usize, plain.len());
                }
            }
        }
    }
}
