//! What waits for the thread that has the kernel drop pages.
//!
//! That thread can wait for a page whose read waits for a store, for as long as the store is silent. Meanwhile the same pages are given
//! up again and again: each has one place here, and of a great many only those stay that the kernel still has.

use super::files::Page;
use super::unread::Unread;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Pages among which those are looked for that the kernel has dropped by itself; later, when they are twice as many as were left.
const LOOKED_AT_PAGES: usize = 1 << 16;
/// Pages that nobody watches. Beyond them all pages of all files are dropped.
const UNWATCHED_PAGES_MAX: usize = 1 << 16;

/// What waits to be given up.
#[derive(Default)]
pub(super) struct Queue {
    /// Pages that the policy does not want.
    pub(super) unwanted: HashSet<Page>,
    /// When that many are unwanted, those that the kernel does not have any more are taken out.
    looks_at: usize,
    /// Pages that nobody watches.
    pub(super) unwatched: HashSet<Page>,
    /// There were too many of these: nobody knows which.
    pub(super) lost_unwatched: bool,
    /// Files of which nothing is true any more: inode number, and how many of these are still to be done for the file. By where that
    /// count is, since an inode number may come again.
    pub(super) stale: HashMap<usize, (u64, Arc<AtomicU64>)>,
    /// Pages that the kernel is to be given.
    pub(super) unread: Unread,
    pub(super) has_ended: bool,
}

impl Queue {
    /// The policy does not want a page. How many there are then.
    pub(super) fn let_go(&mut self, page: Page, is_present: impl Fn(Page) -> bool) -> usize {
        self.unwanted.insert(page);
        if self.unwanted.len() > self.looks_at.max(LOOKED_AT_PAGES) {
            self.unwanted.retain(|&page| is_present(page));
            self.looks_at = 2 * self.unwanted.len();
        }
        self.unwanted.len()
    }

    /// A page came that nobody watches.
    pub(super) fn note_unwatched(&mut self, page: Page) {
        self.unwatched.insert(page);
        if self.unwatched.len() > UNWATCHED_PAGES_MAX {
            self.unwatched.clear();
            self.lost_unwatched = true;
        }
    }

    /// Nothing of a file is true any more, of which so much is still to be done. What is in the queue for it already will be done after
    /// this.
    pub(super) fn note_stale(&mut self, inode: u64, still: &Arc<AtomicU64>) {
        self.stale
            .entry(Arc::as_ptr(still).addr())
            .or_insert_with(|| {
                still.fetch_add(1, SeqCst);
                (inode, Arc::clone(still))
            });
    }

    /// How much there is.
    pub(super) fn waiting(&self) -> usize {
        self.unwanted.len() + self.unwatched.len() + self.stale.len()
    }

    /// Takes what is to be given up. Pages that nobody has read stay until it is their turn.
    pub(super) fn take(&mut self) -> Self {
        Self {
            unwanted: std::mem::take(&mut self.unwanted),
            unwatched: std::mem::take(&mut self.unwatched),
            lost_unwatched: std::mem::take(&mut self.lost_unwatched),
            stale: std::mem::take(&mut self.stale),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_while_nothing_is_dropped_stays_bounded() {
        let mut queue = Queue::default();
        let still = Arc::new(AtomicU64::new(0));
        // The kernel has a tenth of each of many files, the pages of which are given up in turn.
        let is_present = |(_, page): Page| page % 1000 < 100;
        for turn in 0..20 {
            for page in 0..40_000 {
                queue.let_go((turn, page), is_present);
                queue.let_go((1, page), is_present);
                queue.note_unwatched((turn, page));
                queue.note_stale(1, &still);
            }
        }
        let held = 20 * 40_000 / 10;
        let most = 2 * (held + LOOKED_AT_PAGES);
        assert!(queue.unwanted.len() <= most, "{}", queue.unwanted.len());
        assert!(queue.unwatched.len() <= UNWATCHED_PAGES_MAX);
        assert!(queue.lost_unwatched);
        assert_eq!((queue.stale.len(), still.load(SeqCst)), (1, 1));
        // Pages that the kernel has are still given up.
        let taken = queue.take();
        assert!((0..20).all(|turn| taken.unwanted.contains(&(turn, 7))));
        assert!(taken.lost_unwatched && queue.waiting() == 0);
        // The file changes again before that is done.
        queue.note_stale(1, &still);
        assert_eq!((queue.stale.len(), still.load(SeqCst)), (1, 2));
    }
}
