//! What a policy would know of one block, in caches of every size at once.

/// The state of a block as a step function of the cache's size: caches smaller than the first
/// record do not hold the block, and each record holds from its size up to that of the next.
#[derive(Clone, Debug, PartialEq)]
pub struct EvictionMap<S> {
    /// From the largest size to the smallest; never empty.
    records: Vec<(u64, S)>,
}

/// The state of a block in the smallest cache that holds it after an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Its own.
    Own,
    /// That of the smallest cache that held the block before.
    OfSmallest,
}

impl<S: Copy + PartialEq> EvictionMap<S> {
    /// A block that caches of every size have just placed.
    pub fn new(state: S) -> Self {
        Self {
            records: vec![(1, state)],
        }
    }

    /// The smallest cache that holds the block.
    pub fn held_from(&self) -> u64 {
        self.records.last().map_or(1, |record| record.0)
    }

    /// The state in a cache of this size; `None` if it does not hold the block.
    pub fn at(&self, size: u64) -> Option<S> {
        let held = self.records.iter().take_while(|record| record.0 > size);
        self.records.get(held.count()).map(|record| record.1)
    }

    /// The caches that hold the block change its state, and the others place it.
    pub fn request(&mut self, change: impl Fn(S) -> S, placed: S) {
        for record in &mut self.records {
            record.1 = change(record.1);
        }
        if self.held_from() > 1 {
            self.records.push((1, placed));
        }
        // Of equal neighbours the smaller size is enough.
        self.records.dedup_by(|smaller, larger| {
            smaller.1 == larger.1 && {
                larger.0 = smaller.0;
                true
            }
        });
    }

    /// A cache of this size evicted the block. Smaller caches are taken not to hold it, either. Of
    /// the states that are dropped with them, the next larger cache keeps the one that `kept` says.
    pub fn evict(&mut self, size: u64, kept: Kept) {
        let mut state = None;
        while self.records.last().is_some_and(|record| record.0 <= size) {
            let dropped = self.records.pop().map(|record| record.1);
            state = match kept {
                Kept::Own => dropped,
                Kept::OfSmallest => state.or(dropped),
            };
        }
        let is_known = self.records.last().is_some_and(|next| next.0 == size + 1);
        if let (Some(state), false) = (state, is_known) {
            self.records.push((size + 1, state));
        }
    }

    /// Its memory beside itself, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.records.capacity() * size_of::<(u64, S)>()
    }
}

#[cfg(test)]
mod tests {
    use super::{EvictionMap, Kept};

    fn at(map: &EvictionMap<u32>, sizes: &[u64]) -> Vec<Option<u32>> {
        sizes.iter().map(|&size| map.at(size)).collect()
    }

    #[test]
    fn evictions_and_requests_cut_sizes_into_steps() {
        // Uses since the block was placed.
        let mut map = EvictionMap::new(1);
        let request = |map: &mut EvictionMap<u32>| map.request(|uses| uses + 1, 1);
        request(&mut map);
        assert_eq!(at(&map, &[1, 100]), [Some(2), Some(2)]);
        map.evict(5, Kept::Own);
        assert_eq!(
            (map.held_from(), at(&map, &[5, 6])),
            (6, vec![None, Some(2)])
        );
        map.evict(3, Kept::Own);
        assert_eq!(map.held_from(), 6, "it was gone there");
        request(&mut map);
        assert_eq!(at(&map, &[1, 5, 6]), [Some(1), Some(1), Some(3)]);
        map.evict(2, Kept::Own);
        assert_eq!(at(&map, &[2, 3, 5, 6]), [None, Some(1), Some(1), Some(3)]);
        map.evict(5, Kept::Own);
        assert_eq!(at(&map, &[5, 6]), [None, Some(3)]);
        map.evict(8, Kept::Own);
        assert_eq!(at(&map, &[8, 9]), [None, Some(3)]);
        // Uses are 4 from 9 on, and 1 below.
        request(&mut map);
        map.evict(10, Kept::OfSmallest);
        assert_eq!(at(&map, &[10, 11]), [None, Some(1)]);
        // Where all sizes have the same state again, one record is left.
        map.request(|_| 7, 7);
        assert_eq!(map, EvictionMap::new(7));
    }
}
