//! Compares what the cache and the kernel hold.

use super::memory::Looking;
use super::{KernelKeeper, LOOK_INTERVAL, Page};
use crate::aside::Aside;
use futae_engine::Engine;
use futae_policy::BlockId;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the cache and the kernel are compared page by page, where their numbers of pages differ: for each thousand pages that are
/// compared this many milliseconds later, so that it costs little.
const COMPARE_MILLIS: u64 = 20;
const COMPARE_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Where the numbers differ by more than this many pages, the next time comes this many times sooner: some pages are always on their way.
const DIFFERENCE_PAGES: u64 = 64;
const SOONER: u64 = 10;
/// Pages that are looked at together.
const LOOKED_AT_PAGES: usize = 4096;

/// Has a thread compare them now and then, and look at the memory that they take. It is another thread than the one that gives pages up,
/// which may not wait.
pub(super) fn start(keeper: Arc<KernelKeeper>, engine: Arc<Engine>) -> io::Result<Aside> {
    let mut memory = Looking::new(Arc::clone(&keeper), Arc::clone(&engine));
    let mut comparison = Comparison {
        keeper,
        engine,
        compared: Instant::now(),
        unreported: 0,
        not_found: 0,
        suspects: HashSet::new(),
    };
    Aside::start("futae-compare", LOOK_INTERVAL, move || {
        memory.look();
        comparison.compare_in_time();
        Some(LOOK_INTERVAL)
    })
}

impl KernelKeeper {
    /// Those of the pages that are neither resident nor being read.
    pub(super) fn unknown(&self, engine: &Engine, pages: Vec<Page>) -> Vec<Page> {
        let mut unknown = Vec::new();
        for some in pages.chunks(LOOKED_AT_PAGES) {
            let blocks: Vec<Option<BlockId>> = {
                let files = self.files();
                some.iter().map(|&page| files.block(page)).collect()
            };
            let mut unwanted = blocks.iter().copied().flatten().collect();
            engine.retain_unwanted(&mut unwanted);
            let unwanted: HashSet<BlockId> = unwanted.into_iter().collect();
            // A file without a volume is none of which the cache wants anything.
            let is_unknown = |block: Option<BlockId>| block.is_none_or(|it| unwanted.contains(&it));
            let both = some.iter().zip(blocks);
            unknown.extend(
                both.filter(|(_, block)| is_unknown(*block))
                    .map(|(page, _)| *page),
            );
        }
        unknown
    }
}

struct Comparison {
    keeper: Arc<KernelKeeper>,
    engine: Arc<Engine>,
    compared: Instant,
    /// Pages that the kernel had dropped without an event when the two were last compared.
    unreported: u64,
    /// Of these, pages that were not found yet.
    not_found: u64,
    /// Pages that only one of both had when they were last compared.
    suspects: HashSet<Page>,
}

impl Comparison {
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
        let unreported = self.keeper.watch.left_unreported();
        let is_alike = difference == 0 && unreported == self.unreported && self.suspects.is_empty();
        if is_alike || elapsed < pause {
            return;
        }
        self.not_found += unreported - self.unreported;
        self.unreported = unreported;
        self.compare();
        self.compared = Instant::now();
    }

    /// Finds pages that only the cache or only the kernel has, twice in succession: nobody had told of them (reads that went past
    /// the page cache, pages written in part, a ring that was full, files that are not known any more).
    fn compare(&mut self) {
        let (keeper, engine) = (&self.keeper, &self.engine);
        let mut present = Vec::new();
        let watch = &keeper.watch;
        watch.each_present(|inode, page| present.push((inode, page)));
        present.sort_unstable();
        let volumes = keeper.files().volumes();
        let mut absent = Vec::new();
        for volume in volumes {
            let mut from = 0;
            loop {
                let some = engine.resident_from(volume, from);
                let Some(&last) = some.last() else { break };
                let files = keeper.files();
                let pages = some
                    .into_iter()
                    .filter_map(|index| files.page(BlockId::new(volume, index)));
                absent.extend(pages.filter(|page| present.binary_search(page).is_err()));
                drop(files);
                from = last + 1;
            }
        }
        absent.retain(|&page| !keeper.is_present(page));
        // What nobody has read yet need not be there.
        let mut given: Vec<BlockId> = {
            let files = keeper.files();
            let given = absent.iter().filter_map(|&page| files.block(page));
            given.collect()
        };
        engine.retain_given(&mut given);
        let mut absent: Vec<Page> = {
            let files = keeper.files();
            given
                .iter()
                .filter_map(|&block| files.page(block))
                .collect()
        };
        absent.retain(|&page| !keeper.is_present(page));
        let unwanted = keeper.unknown(engine, present);
        let is_suspect = |page: &&Page| self.suspects.contains(page);
        let again: Vec<BlockId> = {
            let files = keeper.files();
            let again = absent.iter().filter(is_suspect);
            again.filter_map(|&page| files.block(page)).collect()
        };
        self.not_found -= engine.forget(&again, self.not_found);
        for &page in unwanted.iter().filter(is_suspect) {
            keeper.let_go_page(page);
        }
        self.suspects = unwanted.into_iter().chain(absent).collect();
        if self.suspects.is_empty() {
            // The others were not resident.
            self.not_found = 0;
        }
    }
}
