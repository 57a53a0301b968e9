//! Order statistics over time: the number of distinct keys since a key was last seen.

/// No slot, or no key.
const NONE: u32 = u32::MAX;
/// Slots to begin with.
const SLOTS_MIN: usize = 1 << 12;

/// LRU stack distances in O(log n) each, in memory for the distinct keys, whatever the number of
/// accesses.
///
/// Every access takes the next slot of a line, and its key's earlier slot becomes vacant. The
/// distance is the number of slots in use behind the earlier one. It is computed from a bit per
/// slot and a Fenwick tree (1994) over the words of bits. A full line is compacted, and extended if
/// more than half of it is in use.
#[derive(Clone, Debug)]
pub struct StackDistances {
    /// By key: its slot.
    slots: Vec<u32>,
    /// By slot: its key, valid if the bit is set.
    keys: Vec<u32>,
    bits: Vec<u64>,
    /// Sums of bits over words. Node `i` (from 1) covers the words up to `i`, as many as the lowest
    /// set bit of `i`.
    tree: Vec<u32>,
    next: usize,
    live: u32,
}

impl Default for StackDistances {
    fn default() -> Self {
        let mut distances = Self {
            slots: Vec::new(),
            keys: Vec::new(),
            bits: Vec::new(),
            tree: Vec::new(),
            next: 0,
            live: 0,
        };
        distances.set_length(SLOTS_MIN);
        distances
    }
}

impl StackDistances {
    /// Records an access. Returns the number of other keys accessed since this one was last
    /// accessed, or `None` the first time. Keys are array indexes, below 2^30: number them densely.
    #[inline]
    pub fn access(&mut self, key: u32) -> Option<u32> {
        if self.next == self.keys.len() {
            self.close_up();
        }
        let at = key as usize;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, NONE);
        }
        let slot = std::mem::replace(&mut self.slots[at], self.next as u32);
        let distance = (slot != NONE).then(|| {
            let behind = self.live - self.up_to(slot);
            self.mark(slot, false);
            behind
        });
        self.keys[self.next] = key;
        self.mark(self.next as u32, true);
        self.next += 1;
        distance
    }

    /// Removes a key, as if it had never been accessed.
    pub fn forget(&mut self, key: u32) {
        let slot = self.slots.get_mut(key as usize);
        let slot = slot.map_or(NONE, |slot| std::mem::replace(slot, NONE));
        if slot != NONE {
            self.mark(slot, false);
        }
    }

    /// Number of keys that were accessed and not removed.
    #[must_use]
    pub fn distinct(&self) -> u32 {
        self.live
    }

    /// The key accessed least recently, of those not removed.
    #[must_use]
    pub fn oldest(&self) -> Option<u32> {
        let word = self.bits.iter().position(|&bits| bits != 0)?;
        let slot = word * 64 + self.bits[word].trailing_zeros() as usize;
        Some(self.keys[slot])
    }

    /// Its memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let short = self.slots.capacity() + self.keys.capacity() + self.tree.capacity();
        short * size_of::<u32>() + self.bits.capacity() * size_of::<u64>()
    }

    /// Number of slots in use up to and including this one.
    #[inline]
    fn up_to(&self, slot: u32) -> u32 {
        let (word, bit) = (slot as usize / 64, slot % 64);
        let mut count = (self.bits[word] << (63 - bit)).count_ones();
        let mut node = word;
        while node > 0 {
            count += self.tree[node];
            node &= node - 1;
        }
        count
    }

    #[inline]
    fn mark(&mut self, slot: u32, used: bool) {
        let (word, bit) = (slot as usize / 64, slot % 64);
        self.bits[word] ^= 1 << bit;
        self.live = step(self.live, used);
        let mut node = word + 1;
        while node < self.tree.len() {
            self.tree[node] = step(self.tree[node], used);
            node += node & node.wrapping_neg();
        }
    }

    /// Moves the slots in use to the front, in order.
    #[cold]
    fn close_up(&mut self) {
        let mut to = 0;
        for word in 0..self.bits.len() {
            let mut left = self.bits[word];
            while left != 0 {
                let from = word * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                let key = self.keys[from];
                self.keys[to] = key;
                self.slots[key as usize] = to as u32;
                to += 1;
            }
        }
        let length = self.keys.len();
        let longer = if to > length / 2 { length * 2 } else { length };
        self.set_length(longer);
        self.next = to;
    }

    /// Sets the length of the line, a multiple of 64; the slots in use are at the front.
    fn set_length(&mut self, length: usize) {
        self.keys.resize(length, NONE);
        self.bits.clear();
        self.bits.resize(length / 64, 0);
        let live = self.live as usize;
        self.bits[..live / 64].fill(u64::MAX);
        if !live.is_multiple_of(64) {
            self.bits[live / 64] = (1 << (live % 64)) - 1;
        }
        self.tree.clear();
        self.tree.push(0);
        self.tree
            .extend(self.bits.iter().map(|word| word.count_ones()));
        for node in 1..self.tree.len() {
            let above = node + (node & node.wrapping_neg());
            if above < self.tree.len() {
                self.tree[above] += self.tree[node];
            }
        }
    }
}

#[inline]
fn step(count: u32, up: bool) -> u32 {
    if up { count + 1 } else { count - 1 }
}
