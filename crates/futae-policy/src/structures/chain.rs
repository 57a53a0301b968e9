//! One doubly linked circle of slots.

use super::prefetch;
use crate::Slot;

/// Where the circle begins and ends: before the first slot and after the last one.
const END: u32 = 0;

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    previous: u32,
    next: u32,
}

/// One queue that slots enter at the back: less than [`Queues`](super::Queues), and faster. It is a circle through a place that is
/// no slot, so that no operation has to ask whether a slot is the first or the last one. Constant time; 8 bytes per slot.
#[derive(Clone, Debug)]
pub struct Chain {
    /// The end, and after it the slots: that with number 0 is at place 1.
    links: Vec<Link>,
    length: u32,
}

impl Chain {
    /// An empty queue, with room for `slots` slots; more are added as they come.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        let mut links = Vec::with_capacity(slots as usize + 1);
        links.push(Link::default());
        Self { links, length: 0 }
    }

    /// Slots in the queue.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The first slot.
    #[inline]
    #[must_use]
    pub fn front(&self) -> Option<Slot> {
        self.links[END as usize].next.checked_sub(1).map(Slot)
    }

    /// Appends `slot`, which must not be in the queue.
    #[inline]
    pub fn push_back(&mut self, slot: Slot) {
        let place = slot.i() + 1;
        if self.links.len() <= place {
            self.links.resize(place + 1, Link::default());
        }
        self.length += 1;
        self.append(place as u32);
    }

    /// Removes `slot`, which must be in the queue.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        self.length -= 1;
        self.take_out(slot.0 + 1);
    }

    /// Moves `slot`, which must be in the queue, to the back.
    #[inline]
    pub fn move_back(&mut self, slot: Slot) {
        self.take_out(slot.0 + 1);
        self.append(slot.0 + 1);
    }

    #[inline]
    fn take_out(&mut self, place: u32) {
        let Link { previous, next } = self.links[place as usize];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
    }

    #[inline]
    fn append(&mut self, place: u32) {
        let back = self.links[END as usize].previous;
        self.links[back as usize].next = place;
        self.links[END as usize].previous = place;
        self.links[place as usize] = Link {
            previous: back,
            next: END,
        };
    }

    /// The slots, back to front.
    pub fn iter_back(&self) -> impl Iterator<Item = Slot> + '_ {
        let before = |place: u32| {
            let previous = self.links[place as usize].previous;
            (previous != END).then_some(previous)
        };
        std::iter::successors(before(END), move |&place| before(place)).map(|place| Slot(place - 1))
    }

    /// Prefetches the links of `slot`, which may be any number.
    #[inline]
    pub fn approach(&self, slot: Slot) {
        prefetch(&self.links, slot.i() + 1);
    }
}
