//! Names of departed blocks in several lists, for numbered blocks.

use super::grown;
use crate::BlockId;
use std::collections::VecDeque;

/// Names of blocks of volume 0 in up to two lists, oldest first in each; a name is in one list
/// only. Constant time, amortised; one byte for each existing block, and 4 to 8 per name.
///
/// A name that is removed from a list stays in the list's log, and is skipped when its turn comes.
/// Of a block's names in a log only the newest is valid, so it suffices to count the others. The
/// count fits into a byte together with the block's list, and thus the data read at every miss
/// takes a small part of the processor's caches.
#[derive(Clone, Debug)]
pub struct GhostMarks<const LISTS: usize> {
    first: u64,
    /// For each block: its list plus one, and the number of its invalid names in each log.
    marks: Vec<u8>,
    logs: [Log; LISTS],
}

#[derive(Clone, Debug, Default)]
struct Log {
    places: VecDeque<u32>,
    /// Number of valid names.
    length: u32,
}

/// Bits of a mark that name the list.
const LIST_BITS: u32 = 2;
const LIST: u8 = (1 << LIST_BITS) - 1;
/// Bits of a mark that count the invalid names of one log.
const PAST_BITS: u32 = 3;
const PAST_MAX: u8 = (1 << PAST_BITS) - 1;

/// Where the count of a log is.
#[inline]
fn shift(list: usize) -> u32 {
    LIST_BITS + PAST_BITS * list as u32
}

impl<const LISTS: usize> GhostMarks<LISTS> {
    /// No names; all blocks are numbered densely from `first` on.
    #[must_use]
    pub fn new(first: u64) -> Self {
        const { assert!(LISTS >= 1 && LISTS <= 2, "a mark has bits for two lists") };
        Self {
            first,
            marks: Vec::new(),
            logs: std::array::from_fn(|_| Log::default()),
        }
    }

    #[inline]
    fn place(&self, block: BlockId) -> usize {
        block.index().wrapping_sub(self.first) as usize
    }

    /// Names in `list`.
    #[inline]
    #[must_use]
    pub fn len(&self, list: usize) -> u32 {
        self.logs[list].length
    }

    /// An arbitrary value that depends on the mark of `block`: reads it ahead of time.
    #[inline]
    #[must_use]
    pub fn glance(&self, block: BlockId) -> u32 {
        u32::from(self.marks.get(self.place(block)).copied().unwrap_or(0))
    }

    /// The list that `block` is in, if it is in one.
    #[inline]
    #[must_use]
    pub fn find(&self, block: BlockId) -> Option<usize> {
        let mark = self.marks.get(self.place(block)).copied().unwrap_or(0);
        ((mark & LIST) as usize).checked_sub(1)
    }

    /// Removes `block`. Returns its list, if it was in one.
    #[inline]
    pub fn take(&mut self, block: BlockId) -> Option<usize> {
        let list = self.find(block)?;
        let place = self.place(block);
        if self.marks[place] >> shift(list) & PAST_MAX == PAST_MAX {
            self.close_gaps(list);
        }
        self.marks[place] = (self.marks[place] & !LIST) + (1 << shift(list));
        self.logs[list].length -= 1;
        Some(list)
    }

    /// Adds `block`, which must be in no list, to `list` as its newest name.
    #[inline]
    pub fn push(&mut self, list: usize, block: BlockId) {
        let log = &self.logs[list];
        if log.places.len() == log.places.capacity() && log.places.len() > 2 * log.length as usize {
            self.close_gaps(list);
        }
        let place = self.place(block);
        let mark = grown(&mut self.marks, place, 0);
        debug_assert_eq!(*mark & LIST, 0, "in a list already");
        *mark |= list as u8 + 1;
        let log = &mut self.logs[list];
        log.places.push_back(place as u32);
        log.length += 1;
    }

    /// Drops the oldest name of `list`. Returns whether there was one.
    #[inline]
    pub fn pop_oldest(&mut self, list: usize) -> bool {
        while let Some(place) = self.logs[list].places.pop_front() {
            let mark = &mut self.marks[place as usize];
            if *mark >> shift(list) & PAST_MAX == 0 {
                *mark &= !LIST;
                self.logs[list].length -= 1;
                return true;
            }
            *mark -= 1 << shift(list);
        }
        false
    }

    /// An arbitrary value that depends on what dropping the name `ahead` after the oldest of `list`
    /// will need: reads it ahead of time.
    #[inline]
    #[must_use]
    pub fn foresee(&self, list: usize, ahead: u32) -> u32 {
        let place = self.logs[list].places.get(ahead as usize);
        u32::from(place.map_or(0, |&place| self.marks[place as usize]))
    }

    /// Removes the invalid names of a log.
    #[cold]
    #[inline(never)]
    fn close_gaps(&mut self, list: usize) {
        let marks = &mut self.marks;
        self.logs[list].places.retain(|&place| {
            let mark = &mut marks[place as usize];
            let is_past = *mark >> shift(list) & PAST_MAX != 0;
            *mark -= u8::from(is_past) << shift(list);
            !is_past
        });
    }
}
