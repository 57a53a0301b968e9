//! Whose turn it is to flush a volume's store.
//!
//! A store reports lost data once, by one failed flush. Flushes of clients and the cache's own are therefore not under way
//! together: otherwise an own one could fail for a loss while a client's, which covers the same data, succeeds.

use std::collections::VecDeque;

/// The flushes of one volume.
#[derive(Default)]
pub struct FlushTurns {
    under_way: u32,
    /// Whether those under way are the cache's own.
    are_own: bool,
    /// Those that wait, in the order in which they came, and whether each is the cache's own.
    waiting: VecDeque<(usize, bool)>,
}

impl FlushTurns {
    /// Whether a flush may begin now; if so, it counts as under way.
    pub fn begin(&mut self, is_own: bool) -> bool {
        self.waiting.is_empty() && self.begin_beside(is_own)
    }

    fn begin_beside(&mut self, is_own: bool) -> bool {
        let goes_with = self.under_way == 0 || self.are_own == is_own;
        if goes_with {
            self.under_way += 1;
            self.are_own = is_own;
        }
        goes_with
    }

    /// Whether nothing is under way or waits.
    pub fn is_idle(&self) -> bool {
        self.under_way == 0 && self.waiting.is_empty()
    }

    /// A flush that may not begin yet waits under this key.
    pub fn wait(&mut self, key: usize, is_own: bool) {
        self.waiting.push_back((key, is_own));
    }

    /// Returns one that waited, may begin now and counts as under way; there may be more.
    pub fn next(&mut self) -> Option<usize> {
        let &(key, is_own) = self.waiting.front()?;
        if !self.begin_beside(is_own) {
            return None;
        }
        self.waiting.pop_front();
        Some(key)
    }

    /// A flush has ended.
    pub fn end(&mut self) {
        self.under_way -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_flush_together_and_never_beside_the_cache() {
        let mut turns = FlushTurns::default();
        assert!(turns.begin(false) && turns.begin(false));
        assert!(!turns.begin(true));
        turns.wait(1, true);
        assert!(!turns.begin(false), "the cache's own comes first");
        turns.wait(2, false);
        turns.wait(3, false);
        turns.end();
        assert_eq!(turns.next(), None);
        turns.end();
        assert_eq!((turns.next(), turns.next()), (Some(1), None));
        turns.end();
        assert_eq!(
            (turns.next(), turns.next(), turns.next()),
            (Some(2), Some(3), None)
        );
    }
}
