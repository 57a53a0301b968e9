//! The kernel's page cache of a mount as the keeper of the cache's blocks: marks of its pages are read from memory that is shared with
//! eBPF programs, and pages that the policy gives up are invalidated by a thread.
//!
//! | file | holds |
//! | --- | --- |
//! | `beside.rs` | how much of the cache is needed beside the pages |
//! | `compare.rs` | the thread that compares what the cache and the kernel hold |
//! | `files.rs` | which file is which volume |
//! | `mapped.rs` | the thread that looks for pages that are read through maps |
//! | `memory.rs` | looks at the memory of the mount, and decides how much that is |
//! | `queue.rs` | what waits for the thread that gives pages up |
//! | `unread.rs` | pages that nobody has read, which the kernel is given, and who may write to their files |
//! | `worker.rs` | the thread that gives pages up |
//! | `whole.rs` | a file of a tree, whose pages are all given up when it was changed past the mount |

mod beside;
mod compare;
mod files;
mod mapped;
mod memory;
mod queue;
mod unread;
mod whole;
mod worker;

pub(crate) use whole::FilePages;
pub(crate) use worker::Running;

use beside::Beside;
use files::{Files, Page};
use fuser::{INodeNo, Notifier};
use futae_engine::{Engine, IoBuf, Keeper, KeeperStatus, News};
use futae_page_cache::{Event, Watch};
use futae_policy::{BlockId, VolumeId};
use queue::Queue;
use std::fs::Metadata;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::time::Duration;

/// How often what the kernel holds is looked at where nothing asks for it; before the count of a page's reads overflows.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Pages are given up together: those of so long a time, or this many, or this share of what is resident.
const BATCH_INTERVAL: Duration = Duration::from_millis(1);
const BATCH_PAGES: std::ops::RangeInclusive<usize> = 8..=256;
const BATCH_SHARE: u64 = 128;
/// Of pages that get their numbers as they come, this many more are watched than the cache has: a share of it, by which it can grow,
/// and a larger share, within limits, for those that wait to be given up, and those that came by read-ahead.
const MORE_SHARE: u64 = 8;
const MORE_PAGES: std::ops::RangeInclusive<u64> = 4096..=16_384;
const MORE_PAGES_SHARE: u64 = 4;

/// How many pages of a tree are watched whose cache has so many blocks.
pub(crate) fn watched_pages(capacity_blocks: u64) -> u64 {
    capacity_blocks
        .saturating_add(capacity_blocks / MORE_SHARE)
        .saturating_add(more_pages(capacity_blocks))
}

fn more_pages(capacity_blocks: u64) -> u64 {
    (capacity_blocks / MORE_PAGES_SHARE).clamp(*MORE_PAGES.start(), *MORE_PAGES.end())
}

/// The pages of a mount.
pub(crate) struct KernelKeeper {
    watch: Watch,
    /// The blocks that the kernel can be watched to hold; none where all pages of the files are watched.
    blocks_max: Option<u64>,
    files: RwLock<Files>,
    beside: Beside,
    queue: Mutex<Queue>,
    wake: Condvar,
    batch: AtomicUsize,
    invalidated: AtomicU64,
    stored: AtomicU64,
    /// Pages whose readers have not had them yet, which are given up after that.
    held_back: AtomicUsize,
}

impl KernelKeeper {
    /// Of files that are there from the beginning, with the inode number `first_inode` and the next ones.
    pub(crate) fn of_volumes(watch: Watch, volumes: &[VolumeId], first_inode: u64) -> Self {
        let mut files = Files::default();
        for (inode, &volume) in (first_inode..).zip(volumes) {
            files.add(inode, volume);
        }
        Self::new(watch, files, None)
    }

    /// Of files that come and go.
    pub(crate) fn of_tree(watch: Watch, capacity_blocks: u64) -> Self {
        let blocks_max = watch.pages_max();
        let blocks_max = blocks_max.saturating_sub(more_pages(capacity_blocks));
        Self::new(watch, Files::default(), Some(blocks_max))
    }

    fn new(watch: Watch, files: Files, blocks_max: Option<u64>) -> Self {
        Self {
            watch,
            blocks_max,
            files: RwLock::new(files),
            beside: Beside::default(),
            queue: Mutex::default(),
            wake: Condvar::new(),
            batch: AtomicUsize::new(*BATCH_PAGES.start()),
            invalidated: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            held_back: AtomicUsize::new(0),
        }
    }

    /// Whether pages may be put into the kernel that nobody has read. Of trees none are: a file may be cut by its path, and by others
    /// below, with nobody having it open for writing.
    fn puts_pages(&self) -> bool {
        self.blocks_max.is_none()
    }

    /// Somebody is about to open a file for writing: `go_on` lets him, once the kernel is given no page of it any more.
    pub(crate) fn begin_writing(&self, inode: u64, go_on: impl FnOnce() + Send + 'static) {
        let is_free = self.queue().unread.begin_writing(inode, Box::new(go_on));
        if let Some(go_on) = is_free {
            go_on();
        }
    }

    /// One of those that have a file open for writing has closed it.
    pub(crate) fn end_writing(&self, inode: u64) {
        self.queue().unread.end_writing(inode);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> RwLockReadGuard<'_, Files> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn files_mut(&self) -> RwLockWriteGuard<'_, Files> {
        self.files.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_present(&self, (inode, page): Page) -> bool {
        self.watch.is_present(inode, page)
    }

    /// Begins to watch the mount, and has a thread give pages up from now on.
    pub(crate) fn start(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        notifier: Notifier,
        root: &Metadata,
    ) -> io::Result<Running> {
        self.watch.begin(root);
        // What came before is not known of.
        let inodes = self.files().inodes();
        for inode in inodes {
            notifier.inval_inode(INodeNo(inode), 0, 0)?;
        }
        Running::start(Arc::clone(self), Arc::clone(engine), notifier)
    }

    fn let_go_page(&self, page: Page) {
        let mut queue = self.queue();
        let waiting = queue.let_go(page, |page| self.is_present(page));
        if waiting == 1 || waiting == self.batch.load(Relaxed) {
            self.wake.notify_one();
        }
    }
}

impl Keeper for KernelKeeper {
    fn is_watching(&self) -> bool {
        self.watch.has_begun()
    }

    fn news(&self, news: &mut News) {
        let files = self.files();
        self.watch.news(|inode, page, event| match event {
            Event::Left => news.left.extend(files.block((inode, page))),
            Event::Unwatched => {
                self.queue().note_unwatched((inode, page));
                self.wake.notify_one();
            }
        });
        self.watch.used(|inode, page, times| {
            let block = files.block((inode, page));
            news.used.extend(block.map(|block| (block, times)));
        });
    }

    fn holds(&self, block: BlockId) -> bool {
        let page = self.files().page(block);
        page.is_some_and(|page| self.is_present(page))
    }

    fn blocks_max(&self) -> Option<u64> {
        self.blocks_max
    }

    fn aside_bytes(&self) -> u64 {
        self.beside.aside_bytes()
    }

    fn let_go(&self, block: BlockId) {
        // The number of the volume may be another file's when it is this page's turn.
        let page = self.files().page(block);
        if let Some(page) = page {
            self.let_go_page(page);
        }
    }

    fn takes(&self, block: BlockId) -> bool {
        let page = self.files().page(block);
        self.puts_pages() && page.is_some_and(|(inode, _)| self.queue().unread.takes(inode))
    }

    fn has_room(&self) -> bool {
        self.queue().unread.has_room()
    }

    fn put(&self, block: BlockId, data: IoBuf) {
        let page = self.files().page(block);
        if let Some(page) = page.filter(|_| self.puts_pages()) {
            self.queue().unread.put(page, data);
            self.wake.notify_one();
        }
    }

    fn status(&self) -> KeeperStatus {
        let queue = self.queue();
        KeeperStatus {
            pages: self.watch.present_pages(),
            invalidated: self.invalidated.load(Relaxed),
            waiting: (queue.waiting() + self.held_back.load(Relaxed)) as u64,
            stored: self.stored.load(Relaxed),
            mapped_used: self.watch.mapped_used(),
            aside_bytes: self.beside.aside_bytes(),
            reclaimed: 0,
        }
    }
}
