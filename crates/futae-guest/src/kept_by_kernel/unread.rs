//! Pages that nobody has read and that the kernel is to be given (`FUSE_NOTIFY_STORE`).
//!
//! The kernel puts such a page over whatever it has, so it may only be given what nobody has changed since it was read from the
//! store. A file that somebody has open for writing is therefore given none: a write is known here only after the kernel has changed
//! the page. The answer to an open for writing waits for the page that is on its way to the kernel.

use super::files::Page;
use futae_engine::IoBuf;
use std::collections::{HashMap, VecDeque};

/// Pages that wait at most, but for those that are being read then.
const WAITING_MAX: usize = 1024;

type GoOn = Box<dyn FnOnce() + Send>;

/// What waits to be given, and who may not be let in meanwhile.
#[derive(Default)]
pub(super) struct Unread {
    waiting: VecDeque<(Page, IoBuf)>,
    /// The file of the page that the kernel is being given.
    under_way: Option<u64>,
    /// How many have each file open for writing.
    writers: HashMap<u64, u64>,
    /// Opens that wait for the page under way.
    held_up: Vec<GoOn>,
}

impl Unread {
    /// Whether the kernel may be given pages of a file.
    pub(super) fn takes(&self, inode: u64) -> bool {
        !self.writers.contains_key(&inode)
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A page as the store has it.
    pub(super) fn put(&mut self, page: Page, data: IoBuf) {
        if self.takes(page.0) {
            self.waiting.push_back((page, data));
        }
    }

    /// A file is to be opened for writing; what is to be done now to let that go on.
    pub(super) fn begin_writing(&mut self, inode: u64, go_on: GoOn) -> Option<GoOn> {
        *self.writers.entry(inode).or_default() += 1;
        self.waiting.retain(|((of, _), _)| *of != inode);
        if self.under_way == Some(inode) {
            self.held_up.push(go_on);
            return None;
        }
        Some(go_on)
    }

    pub(super) fn end_writing(&mut self, inode: u64) {
        if let Some(count) = self.writers.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                self.writers.remove(&inode);
            }
        }
    }

    /// The next page; [`end`](Self::end) has to follow.
    pub(super) fn begin(&mut self) -> Option<(Page, IoBuf)> {
        let next = self.waiting.pop_front();
        self.under_way = next.as_ref().map(|((inode, _), _)| *inode);
        next
    }

    /// The kernel has the page. What may go on now.
    pub(super) fn end(&mut self) -> Vec<GoOn> {
        self.under_way = None;
        std::mem::take(&mut self.held_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn who_opens_for_writing_waits_for_a_page_under_way_and_ends_the_others() {
        let mut unread = Unread::default();
        let opened = Arc::new(AtomicU64::new(0));
        let open = |unread: &mut Unread, inode| {
            let opened = Arc::clone(&opened);
            let go_on = move || {
                opened.fetch_add(1, Relaxed);
            };
            if let Some(go_on) = unread.begin_writing(inode, Box::new(go_on)) {
                go_on();
            }
        };
        let data = || IoBuf::zeroed(4096);
        for page in [(2, 0), (2, 1), (3, 0)] {
            unread.put(page, data());
        }
        assert_eq!(unread.begin().map(|(page, _)| page), Some((2, 0)));
        open(&mut unread, 2);
        open(&mut unread, 4);
        assert_eq!(opened.load(Relaxed), 1, "a page of file 2 is under way");
        unread.end().into_iter().for_each(|go_on| go_on());
        assert_eq!(opened.load(Relaxed), 2);
        // Its other page is given up, and it is given none until all have closed it.
        open(&mut unread, 2);
        unread.end_writing(2);
        unread.put((2, 7), data());
        assert!(!unread.takes(2) && unread.takes(3));
        assert_eq!(unread.begin().map(|(page, _)| page), Some((3, 0)));
        unread.end();
        assert!(unread.is_empty());
        unread.end_writing(2);
        unread.put((2, 7), data());
        assert_eq!(unread.begin().map(|(page, _)| page), Some((2, 7)));
    }
}
