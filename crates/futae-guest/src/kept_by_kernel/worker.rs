//! The thread that has the kernel drop pages.

use super::{
    BATCH_INTERVAL, BATCH_PAGES, BATCH_SHARE, KernelKeeper, LOOK_INTERVAL, Page, Queue, compare,
    mapped,
};
use crate::aside::Aside;
use fuser::{INodeNo, Notifier};
use futae_engine::{Engine, IoBuf};
use futae_page_cache::PAGE_BYTES;
use futae_policy::BlockId;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the end of the mount waits for the thread.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// A page that was declined is given up when its reader has it, but not later than this: nobody may want what the kernel has read ahead.
const READER_TIMEOUT: Duration = Duration::from_millis(50);
/// How the thread is scheduled beside others.
const NICE: i32 = -10;
/// Pages that are demoted at a time.
const LEFT_PAGES: usize = 256;
/// Pages that the kernel is given before the cache hears of it.
const PUT_PAGES: usize = 64;
/// The thread that gives pages up; it ends when this is dropped.
pub(crate) struct Running {
    keeper: Arc<KernelKeeper>,
    thread: Option<JoinHandle<()>>,
    _aside: [Aside; 2],
}

impl Running {
    pub(super) fn start(
        keeper: Arc<KernelKeeper>,
        engine: Arc<Engine>,
        notifier: Notifier,
    ) -> io::Result<Self> {
        let worker = Worker {
            keeper: Arc::clone(&keeper),
            engine,
            notifier,
            lost: 0,
            held_back: HashMap::new(),
        };
        let aside = [
            mapped::start(Arc::clone(&keeper))?,
            compare::start(Arc::clone(&keeper), Arc::clone(&worker.engine))?,
        ];
        let thread = thread::Builder::new().name("futae-pages".into());
        let thread = Some(thread.spawn(move || worker.run())?);
        Ok(Self {
            keeper,
            thread,
            _aside: aside,
        })
    }
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
    /// Pages that had come unwatched and unsaid when all were dropped for it.
    lost: u64,
    /// Pages whose readers have not had them yet, and until when that is waited for.
    held_back: HashMap<Page, Instant>,
}

impl Worker {
    fn run(mut self) {
        // Pages that wait for it are more than the cache was to have. Not everybody may.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        while let Some(queue) = self.wait() {
            self.keeper.beside.note(self.keeper.watch.present_pages());
            for (inode, waits) in queue.stale.into_values() {
                self.drop_pages(inode, 0, 0);
                waits.fetch_sub(1, SeqCst);
            }
            self.give_up(queue.unwatched.into_iter().collect());
            if queue.lost_unwatched {
                self.drop_all();
            }
            self.put_unread();
            let unwanted = self.still_unwanted(queue.unwanted);
            let given_up = self.give_up(unwanted);
            self.keeper.invalidated.fetch_add(given_up, Relaxed);
            self.demote();
            self.engine.hear();
            let share = self.engine.resident_blocks() / BATCH_SHARE;
            let share = (share as usize).clamp(*BATCH_PAGES.start(), *BATCH_PAGES.end());
            self.keeper.batch.store(share, Relaxed);
            self.drop_lost();
        }
    }

    /// What is to be given up next; none at the end.
    fn wait(&self) -> Option<Queue> {
        let keeper = &self.keeper;
        let wait = |queue, time| {
            let waited = keeper.wake.wait_timeout(queue, time);
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        let hurries = |queue: &Queue| {
            let is_any = !queue.stale.is_empty() || !queue.unwatched.is_empty();
            queue.has_ended || is_any || queue.lost_unwatched || !queue.unread.is_empty()
        };
        let mut queue = keeper.queue();
        if queue.unwanted.is_empty() && !hurries(&queue) {
            let is_any = !self.held_back.is_empty();
            queue = wait(
                queue,
                if is_any {
                    BATCH_INTERVAL
                } else {
                    LOOK_INTERVAL
                },
            );
        }
        if (1..keeper.batch.load(Relaxed)).contains(&queue.unwanted.len()) && !hurries(&queue) {
            queue = wait(queue, BATCH_INTERVAL);
        }
        if queue.has_ended {
            return None;
        }
        Some(queue.take())
    }

    /// Gives the kernel pages that nobody has read, and that the cache still wants.
    fn put_unread(&self) {
        let mut held = Vec::new();
        let begin = || self.keeper.queue().unread.begin();
        while let Some((page, data)) = begin() {
            let block = self.keeper.files().block(page);
            let is_wanted = block.is_some_and(|block| {
                let mut unwanted = vec![block];
                self.engine.retain_unwanted(&mut unwanted);
                unwanted.is_empty()
            });
            let (inode, index) = page;
            if is_wanted && !self.keeper.is_present(page) {
                let offset = index * PAGE_BYTES;
                // Of a file that the kernel does not know it takes none, nor after the end of the mount.
                let _ = self.notifier.store(INodeNo(inode), offset, data.as_slice());
                let is_there = self.keeper.is_present(page);
                self.keeper.stored.fetch_add(is_there.into(), Relaxed);
            }
            let opens = self.keeper.queue().unread.end();
            opens.into_iter().for_each(|go_on| go_on());
            if self.keeper.is_present(page) {
                held.extend(block);
            }
            if held.len() >= PUT_PAGES {
                self.engine.hold(&std::mem::take(&mut held));
            }
        }
        // What was not put is read when somebody asks for it. More may be loaded now.
        self.engine.hold(&held);
    }

    /// Demotes what the kernel has dropped, where pages are copied.
    fn demote(&self) {
        let mut is_all = false;
        while !is_all {
            let mut left = Vec::new();
            let (files, mut seen) = (self.keeper.files(), 0);
            let watch = &self.keeper.watch;
            watch.left_pages(LEFT_PAGES, |inode, page, data| {
                seen += 1;
                let block = files.block((inode, page));
                left.extend(block.map(|block| (block, IoBuf::copy_of(data))));
            });
            drop(files);
            is_all = seen < LEFT_PAGES;
            self.engine.demote_held(left);
        }
    }

    /// Those of the pages that are there, that their readers have had, and that the cache still does not want.
    fn still_unwanted(&mut self, pages: HashSet<Page>) -> Vec<Page> {
        let now = Instant::now();
        let keeper = &self.keeper;
        let mut unwanted = Vec::with_capacity(pages.len());
        let mut all = std::mem::take(&mut self.held_back);
        for page in pages {
            // One that is given up again is not waited for longer.
            all.entry(page).or_insert(now + READER_TIMEOUT);
        }
        for ((inode, page), until) in all {
            if until > now && keeper.watch.is_fresh(inode, page) {
                self.held_back.insert((inode, page), until);
            } else if keeper.is_present((inode, page)) {
                unwanted.push((inode, page));
            }
        }
        keeper.held_back.store(self.held_back.len(), Relaxed);
        let unknown = self.keeper.unknown(&self.engine, unwanted.clone());
        if unknown.len() < unwanted.len() {
            let unknown: HashSet<Page> = unknown.iter().copied().collect();
            let known = unwanted.into_iter().filter(|page| !unknown.contains(page));
            self.keep_known(known.collect());
        }
        unknown
    }

    /// Pages that are there, and whose blocks are resident, or being read or written. Those of the latter that the cache does not
    /// want are looked at again when that is over: nothing else would have them dropped.
    fn keep_known(&mut self, pages: Vec<Page>) {
        let known: Vec<(Page, BlockId)> = {
            let files = self.keeper.files();
            let with_block = |page| files.block(page).map(|block| (page, block));
            pages.into_iter().filter_map(with_block).collect()
        };
        let blocks: Vec<BlockId> = known.iter().map(|(_, block)| *block).collect();
        self.engine.hold(&blocks);
        let mut resident = blocks;
        self.engine.retain_given(&mut resident);
        let resident: HashSet<BlockId> = resident.into_iter().collect();
        let busy = known.iter().filter(|(_, block)| !resident.contains(block));
        let now = Instant::now();
        self.held_back.extend(busy.map(|(page, _)| (*page, now)));
        self.keeper.held_back.store(self.held_back.len(), Relaxed);
    }

    /// Has the kernel drop pages, those that are next to each other together. A page that is being read is dropped when its read is
    /// answered; nothing that answers reads waits for this thread. How many that were.
    fn give_up(&self, mut pages: Vec<Page>) -> u64 {
        pages.sort_unstable();
        pages.dedup();
        let (mut at, mut given_up) = (0, 0);
        while let Some(&(inode, first)) = pages.get(at) {
            let run = (first..).zip(&pages[at..]);
            let run = run
                .take_while(|(page, next)| (inode, *page) == **next)
                .count() as u64;
            at += run as usize;
            if self.drop_pages(inode, first * PAGE_BYTES, run * PAGE_BYTES) {
                given_up += run;
            }
        }
        given_up
    }

    /// Has the kernel drop a range of a file; with a length of 0 all behind its beginning. False when the mount has ended.
    fn drop_pages(&self, inode: u64, offset: u64, length: u64) -> bool {
        let (offset, length) = (offset as i64, length as i64);
        let dropped = self.notifier.inval_inode(INodeNo(inode), offset, length);
        dropped.is_ok()
    }

    /// Where nobody could tell which pages came unwatched, all go.
    fn drop_lost(&mut self) {
        let lost = self.keeper.watch.lost();
        if lost == self.lost {
            return;
        }
        self.lost = lost;
        self.drop_all();
    }

    /// Has the kernel drop all pages of all files.
    fn drop_all(&self) {
        let inodes = self.keeper.files().inodes();
        for inode in inodes {
            self.drop_pages(inode, 0, 0);
        }
    }
}
