//! The blocks of a sample, and the caches that are rebuilt from them.

use super::map::EvictionMap;
use super::ranks::{Past, Ranks};
use crate::curve::sampled::Positions;

struct Held<S> {
    past: Past,
    map: EvictionMap<S>,
}

/// All blocks, each once whatever the number of sizes.
pub struct Table<R: Ranks> {
    ranks: R,
    /// By key; `None` for keys that are free.
    blocks: Vec<Option<Held<R::State>>>,
    /// By key: the smallest cache that holds the block, as in its map, close together for scans.
    held_from: Vec<u64>,
    /// Blocks.
    known: u64,
    now: u64,
    granularity: u32,
    /// The blocks of the cache that was rebuilt last, kept for its memory.
    rebuilt: Vec<(R::Rank, u32)>,
    /// What a request evicts: sizes, and keys.
    evicted: Vec<(u64, u32)>,
}

/// The `held_from` of a free key.
const NOWHERE: u64 = u64::MAX;

/// A table of any policy.
pub trait AnyTable: Positions + Send {
    /// Sets the number of caches that are rebuilt for a request, at least 1.
    fn set_granularity(&mut self, caches: u32);
    /// Its memory, in bytes.
    fn memory_bytes(&self) -> usize;
}

impl<R: Ranks> Table<R> {
    pub fn new(ranks: R, granularity: u32) -> Self {
        Self {
            ranks,
            blocks: Vec::new(),
            held_from: Vec::new(),
            known: 0,
            now: 0,
            granularity,
            rebuilt: Vec::new(),
            evicted: Vec::new(),
        }
    }

    /// Every cache has the block of the last request, `key`. Some of those of up to `limit` blocks of
    /// the sample evict what they have no room for.
    fn make_room(&mut self, key: u32, limit: u64, weight: f64) {
        let step = limit.div_ceil(u64::from(self.granularity)).max(1);
        let mut evicted = std::mem::take(&mut self.evicted);
        evicted.clear();
        let mut slots = step;
        // Up to the first that is no smaller than the limit.
        while slots < limit + step {
            let size = (slots as f64 * weight).round() as u64;
            self.rebuild(key, slots, size);
            evicted.extend(self.rebuilt.iter().map(|&(_, key)| (size, key)));
            slots += step;
        }
        // The largest first; what it evicted, smaller ones do not evict again.
        for &(size, key) in evicted.iter().rev() {
            if let Some(held) = &mut self.blocks[key as usize] {
                held.map.evict(size, R::KEPT);
                self.held_from[key as usize] = held.map.held_from();
            }
        }
        self.evicted = evicted;
    }

    /// Rebuilds the cache of `size` blocks, of which `slots` are in the sample. Then `rebuilt` is
    /// what it has no room for; never block `kept`.
    fn rebuild(&mut self, kept: u32, slots: u64, size: u64) {
        self.rebuilt.clear();
        let held = self.held_from.iter().filter(|&&from| from <= size).count() as u64;
        let Some(surplus) = held.checked_sub(slots).filter(|&surplus| surplus > 0) else {
            return;
        };
        let mut rebuilt = std::mem::take(&mut self.rebuilt);
        rebuilt.clear();
        let keys = (0..).zip(&self.held_from);
        rebuilt.extend(
            keys.filter(|&(key, &from)| from <= size && key != kept)
                .filter_map(|(key, _)| {
                    let held = self.blocks[key as usize].as_ref()?;
                    let state = held.map.at(size)?;
                    Some((self.ranks.rank(state, held.past), key))
                }),
        );
        let surplus = (surplus as usize).min(rebuilt.len());
        if surplus > 0 {
            rebuilt.select_nth_unstable(surplus - 1);
        }
        rebuilt.truncate(surplus);
        self.rebuilt = rebuilt;
    }
}

impl<R: Ranks> Positions for Table<R> {
    fn request(&mut self, key: u32, is_new: bool, weight: f64) -> Option<u64> {
        self.now += 1;
        let at = key as usize;
        if at >= self.blocks.len() {
            self.blocks.resize_with(at + 1, || None);
            self.held_from.resize(at + 1, NOWHERE);
        }
        let ranks = &self.ranks;
        let known = self.blocks[at].as_mut().filter(|_| !is_new);
        let position = match known {
            Some(held) => {
                let position = held.map.held_from();
                held.past.uses = held.past.uses.saturating_add(1);
                held.past.last_use = self.now;
                let past = held.past;
                held.map
                    .request(|state| ranks.hit(state, past), ranks.placed(past));
                Some(position)
            }
            None => {
                let past = Past {
                    uses: 1,
                    last_use: self.now,
                };
                let map = EvictionMap::new(ranks.placed(past));
                self.blocks[at] = Some(Held { past, map });
                self.known += 1;
                None
            }
        };
        self.held_from[at] = 1;
        let limit = match position {
            Some(position) => (position as f64 / weight).ceil() as u64,
            None => self.known,
        };
        self.make_room(key, limit, weight);
        position
    }

    fn forget(&mut self, key: u32) {
        let at = key as usize;
        if self.blocks.get_mut(at).and_then(Option::take).is_some() {
            self.held_from[at] = NOWHERE;
            self.known -= 1;
        }
    }
}

impl<R: Ranks> AnyTable for Table<R> {
    fn set_granularity(&mut self, caches: u32) {
        self.granularity = caches.max(1);
    }

    fn memory_bytes(&self) -> usize {
        let maps = self.blocks.iter().flatten();
        maps.map(|held| held.map.heap_bytes()).sum::<usize>()
            + self.blocks.capacity() * size_of::<Option<Held<R::State>>>()
            + self.held_from.capacity() * size_of::<u64>()
            + self.rebuilt.capacity() * size_of::<(R::Rank, u32)>()
    }
}

impl Positions for Box<dyn AnyTable> {
    fn request(&mut self, key: u32, is_new: bool, weight: f64) -> Option<u64> {
        (**self).request(key, is_new, weight)
    }

    fn forget(&mut self, key: u32) {
        (**self).forget(key);
    }
}
