//! The kernel's page cache of a mount as the keeper of the cache's blocks: marks of its pages are read from memory that is shared with
//! eBPF programs, and pages that the policy gives up are invalidated by a thread.

use fuser::{INodeNo, Notifier};
use futae_engine::{Engine, Keeper, KeeperStatus, News};
use futae_page_cache::{PAGE_BYTES, Watch};
use futae_policy::{BlockId, VolumeId};
use std::collections::HashSet;
use std::fs::Metadata;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often what the kernel holds is looked at where nothing asks for it; before the count of a page's reads overflows.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Pages are given up together: those of so long a time, or so many, or this share of what is resident. A page that was declined is
/// with its reader by then.
const BATCH_INTERVAL: Duration = Duration::from_millis(1);
const BATCH_PAGES: std::ops::RangeInclusive<usize> = 8..=256;
const BATCH_SHARE: u64 = 128;
/// How long the end of the mount waits for the thread.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the cache and the kernel are compared page by page, where their numbers of pages differ: for each thousand pages that are
/// compared so many milliseconds later, so that it costs little.
const COMPARE_MILLIS: u64 = 20;
const COMPARE_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Where the numbers differ by more than so many pages, the next time comes so many times sooner: some pages are always on their way.
const DIFFERENCE_PAGES: u64 = 64;
const SOONER: u64 = 10;

/// The pages of a mount.
pub(crate) struct KernelKeeper {
    watch: Watch,
    /// By number of the file.
    volumes: Vec<VolumeId>,
    /// The inode number of the first file; the others follow.
    first_inode: u64,
    queue: Mutex<Queue>,
    wake: Condvar,
    batch: AtomicUsize,
    invalidated: AtomicU64,
}

#[derive(Default)]
struct Queue {
    unwanted: Vec<BlockId>,
    has_ended: bool,
}

impl KernelKeeper {
    pub(crate) fn new(watch: Watch, volumes: Vec<VolumeId>, first_inode: u64) -> Self {
        Self {
            watch,
            volumes,
            first_inode,
            queue: Mutex::default(),
            wake: Condvar::new(),
            batch: AtomicUsize::new(*BATCH_PAGES.start()),
            invalidated: AtomicU64::new(0),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, volume: VolumeId) -> Option<usize> {
        self.volumes.iter().position(|&known| known == volume)
    }

    fn block(&self, file: usize, page: u64) -> Option<BlockId> {
        let volume = self.volumes.get(file)?;
        (page < BlockId::INDEX_LIMIT).then(|| BlockId::new(*volume, page))
    }

    fn is_present(&self, block: BlockId) -> bool {
        self.file(block.volume())
            .is_some_and(|file| self.watch.is_present(file, block.index()))
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
        for inode in (self.first_inode..).take(self.volumes.len()) {
            notifier.inval_inode(INodeNo(inode), 0, 0)?;
        }
        let worker = Worker {
            keeper: Arc::clone(self),
            engine: Arc::clone(engine),
            notifier,
            compared: Instant::now(),
            unsaid: 0,
            suspects: HashSet::new(),
        };
        let thread = thread::Builder::new().name("futae-pages".into());
        let thread = thread.spawn(move || worker.run())?;
        Ok(Running {
            keeper: Arc::clone(self),
            thread: Some(thread),
        })
    }
}

impl Keeper for KernelKeeper {
    fn is_watching(&self) -> bool {
        self.watch.has_begun()
    }

    fn news(&self, news: &mut News) {
        self.watch
            .left(|file, page| news.left.extend(self.block(file, page)));
        self.watch.used(|file, page, times| {
            let block = self.block(file, page);
            news.used.extend(block.map(|block| (block, times)));
        });
    }

    fn let_go(&self, block: BlockId) {
        let mut queue = self.queue();
        queue.unwanted.push(block);
        let waiting = queue.unwanted.len();
        if waiting == 1 || waiting == self.batch.load(Relaxed) {
            self.wake.notify_one();
        }
    }

    fn status(&self) -> KeeperStatus {
        KeeperStatus {
            pages: self.watch.present_pages(),
            invalidated: self.invalidated.load(Relaxed),
            waiting: self.queue().unwanted.len() as u64,
            reclaimed: 0,
        }
    }
}

/// The thread that gives pages up; it ends when this is dropped.
pub(crate) struct Running {
    keeper: Arc<KernelKeeper>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.keeper.queue().has_ended = true;
        self.keeper.wake.notify_one();
        // It may wait for a page whose read waits for a store. The end of the mount ends that, too.
        let deadline = Instant::now() + END_TIMEOUT;
        loop {
            if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
                drop(thread.join());
            }
            if self.thread.is_none() || Instant::now() >= deadline {
                return;
            }
            thread::sleep(BATCH_INTERVAL);
        }
    }
}

struct Worker {
    keeper: Arc<KernelKeeper>,
    engine: Arc<Engine>,
    notifier: Notifier,
    compared: Instant,
    /// Pages that had left unsaid when the two were compared.
    unsaid: u64,
    /// Pages that only one of both had when they were last compared.
    suspects: HashSet<BlockId>,
}

impl Worker {
    fn run(mut self) {
        while let Some(unwanted) = self.wait() {
            self.give_up(unwanted);
            self.engine.hear();
            let share = self.engine.resident_blocks() / BATCH_SHARE;
            let share = (share as usize).clamp(*BATCH_PAGES.start(), *BATCH_PAGES.end());
            self.keeper.batch.store(share, Relaxed);
            self.compare_in_time();
        }
    }

    /// What is to be given up next; none at the end.
    fn wait(&self) -> Option<Vec<BlockId>> {
        let keeper = &self.keeper;
        let wait = |queue, time| {
            let waited = keeper.wake.wait_timeout(queue, time);
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        let mut queue = keeper.queue();
        if queue.unwanted.is_empty() && !queue.has_ended {
            queue = wait(queue, LOOK_INTERVAL);
        }
        if (1..keeper.batch.load(Relaxed)).contains(&queue.unwanted.len()) && !queue.has_ended {
            queue = wait(queue, BATCH_INTERVAL);
        }
        let unwanted = std::mem::take(&mut queue.unwanted);
        (!queue.has_ended).then_some(unwanted)
    }

    /// Has the kernel drop pages, those that are next to each other together. A page that is being read is dropped when its read is
    /// answered; nothing that answers reads waits for this thread.
    fn give_up(&self, mut unwanted: Vec<BlockId>) {
        unwanted.retain(|&block| self.keeper.is_present(block));
        self.engine.retain_unwanted(&mut unwanted);
        unwanted.sort_unstable();
        unwanted.dedup();
        let mut at = 0;
        while let Some(&first) = unwanted.get(at) {
            let run = unwanted[at..]
                .iter()
                .enumerate()
                .take_while(|(after, block)| {
                    block.volume() == first.volume()
                        && block.index() == first.index() + *after as u64
                });
            let pages = run.count();
            at += pages;
            let Some(file) = self.keeper.file(first.volume()) else {
                continue;
            };
            let inode = INodeNo(self.keeper.first_inode + file as u64);
            let (offset, length) = (first.index() * PAGE_BYTES, pages as u64 * PAGE_BYTES);
            // It fails when the mount has ended.
            let done = self
                .notifier
                .inval_inode(inode, offset as i64, length as i64);
            if done.is_ok() {
                self.keeper.invalidated.fetch_add(pages as u64, Relaxed);
            }
        }
    }

    fn compare_in_time(&mut self) {
        let elapsed = self.compared.elapsed();
        if elapsed < COMPARE_INTERVAL_MIN {
            return;
        }
        let (pages, resident) = (
            self.keeper.watch.present_pages(),
            self.engine.resident_blocks(),
        );
        let waiting = self.keeper.queue().unwanted.len() as u64;
        let difference = pages.abs_diff(resident.saturating_add(waiting));
        let sooner = if difference > DIFFERENCE_PAGES {
            SOONER
        } else {
            1
        };
        let pause = Duration::from_millis(pages.max(resident) / 1000 * COMPARE_MILLIS / sooner);
        let unsaid = self.keeper.watch.left_unsaid();
        let is_alike = difference == 0 && unsaid == self.unsaid && self.suspects.is_empty();
        if is_alike || elapsed < pause {
            return;
        }
        self.unsaid = unsaid;
        self.compare();
        self.compared = Instant::now();
    }

    /// Finds pages that only the cache or only the kernel has, twice in succession: nobody had told of them (reads that went past
    /// the page cache, pages written in part, a ring that was full).
    fn compare(&mut self) {
        let (keeper, engine) = (&self.keeper, &self.engine);
        let mut present = Vec::new();
        let watch = &keeper.watch;
        watch.each_present(|file, page| present.extend(keeper.block(file, page)));
        engine.retain_unwanted(&mut present);
        let mut absent = Vec::new();
        for &volume in &keeper.volumes {
            let mut from = 0;
            loop {
                let some = engine.resident_from(volume, from);
                let Some(&last) = some.last() else { break };
                let blocks = some.iter().map(|&index| BlockId::new(volume, index));
                absent.extend(blocks.filter(|&block| !keeper.is_present(block)));
                from = last + 1;
            }
        }
        let is_suspect = |block: &&BlockId| self.suspects.contains(block);
        let again: Vec<_> = absent.iter().filter(is_suspect).copied().collect();
        engine.forget(&again);
        for &block in present.iter().filter(is_suspect) {
            keeper.let_go(block);
        }
        self.suspects = present.into_iter().chain(absent).collect();
    }
}
