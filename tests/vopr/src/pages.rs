//! A kernel's page cache that holds the blocks in the cache's place, as under `futae mount --residency kernel`.
//!
//! Reads of pages that are there never reach the cache, which hears of them later. Pages come and go as the kernel likes. What
//! readers find in a page is held against what may be there, as an answer of the cache is.

mod route;
mod work;

use crate::content::SECTOR;
use crate::sim::{Inside, Sim};
use futae_engine::{IoBuf, IoError, Keeper, KeeperStatus, News};
use futae_policy::{BlockId, Prng, VolumeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Bytes of a page; a block is one page.
pub const PAGE_BYTES: u64 = 4096;
/// Pages that wait to be put in at most, but for those that are on their way.
const TO_PUT_MAX: usize = 4;
/// Copies of dropped pages that are kept at most.
const COPIES_MAX: usize = 24;

/// What a seed makes of the page cache.
#[derive(Clone, Copy, Debug)]
pub struct PagesConfig {
    /// Whether it takes pages that nobody has read: files that cannot be cut.
    pub takes: bool,
    /// Whether pages are copied as they leave, to be demoted.
    pub copies: bool,
    /// One in this many reports of a page that left is lost; 0 for none.
    pub loses: u64,
}

/// How a request came to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Past the page cache, or there is none.
    Direct,
    /// It reads pages that are not there.
    Fill,
    /// It writes what the pages have already.
    Through,
    /// It clears a range of the file.
    Clear,
}

/// One page.
#[derive(Default)]
struct Page {
    /// What readers get, if it is up to date; it may be short at the end of the volume.
    data: Option<Vec<u8>>,
    /// A request fills it, or writes a part of what is not up to date.
    is_locked: bool,
    /// The write under way that has changed it.
    writer: Option<u64>,
    /// It is dropped once it is not locked.
    is_doomed: bool,
}

/// The page cache of one mount.
#[derive(Default)]
pub struct Pages {
    is_watching: bool,
    pages: BTreeMap<BlockId, Page>,
    used: BTreeMap<BlockId, u32>,
    left: Vec<BlockId>,
    /// Pages that have left, with what they held.
    copies: Vec<(BlockId, Vec<u8>)>,
    unwanted: Vec<BlockId>,
    to_put: VecDeque<(BlockId, IoBuf)>,
    /// The volume of the page that is being put in.
    putting: Option<VolumeId>,
    /// Volumes that somebody has open for writing.
    writable: BTreeSet<VolumeId>,
    /// Blocks of which only the cache or only the kernel knew when both were compared.
    suspects: BTreeSet<BlockId>,
}

/// The page cache as the cache sees it.
pub struct Kept {
    pub sim: Arc<Sim>,
    pub incarnation: u64,
}

impl Kept {
    fn with<T: Default>(&self, work: impl FnOnce(&mut Pages, PagesConfig, &mut Prng) -> T) -> T {
        let mut inside = self.sim.lock();
        if !inside.is_of_now(self.incarnation) {
            return T::default();
        }
        let Inside {
            pages,
            config,
            prng,
            ..
        } = &mut *inside;
        match (pages, config.pages) {
            (Some(pages), Some(how)) => work(pages, how, prng),
            _ => T::default(),
        }
    }
}

impl Keeper for Kept {
    fn is_watching(&self) -> bool {
        self.with(|pages, _, _| pages.is_watching)
    }

    fn news(&self, news: &mut News) {
        self.with(|pages, how, prng| {
            let told = prng.below(pages.left.len() as u64 + 1) as usize;
            for block in pages.left.drain(..told) {
                if how.loses == 0 || prng.below(how.loses) > 0 {
                    news.left.push(block);
                }
            }
            let told = prng.below(pages.used.len() as u64 + 1) as usize;
            for _ in 0..told {
                news.used.extend(pages.used.pop_first());
            }
        });
    }

    fn holds(&self, block: BlockId) -> bool {
        self.with(|pages, _, _| pages.pages.contains_key(&block))
    }

    fn let_go(&self, block: BlockId) {
        self.with(|pages, _, _| pages.unwanted.push(block));
    }

    fn takes(&self, block: BlockId) -> bool {
        self.with(|pages, how, _| how.takes && !pages.writable.contains(&block.volume()))
    }

    fn has_room(&self) -> bool {
        self.with(|pages, _, _| pages.to_put.len() < TO_PUT_MAX)
    }

    fn put(&self, block: BlockId, data: IoBuf) {
        self.with(|pages, how, _| {
            if how.takes && !pages.writable.contains(&block.volume()) {
                pages.to_put.push_back((block, data));
            }
        });
    }

    fn status(&self) -> KeeperStatus {
        self.with(|pages, _, _| KeeperStatus {
            pages: pages.pages.len() as u64,
            ..KeeperStatus::default()
        })
    }
}

/// The pages that a range touches.
fn blocks(volume: usize, offset: u64, length: u64) -> impl Iterator<Item = BlockId> {
    let range = offset / PAGE_BYTES..(offset + length).div_ceil(PAGE_BYTES);
    range.map(move |index| BlockId::new(VolumeId(volume as u16), index))
}

/// The part of a page that a range covers, in the page and in the range; `bytes` of the page there are.
fn overlap(
    block: BlockId,
    bytes: usize,
    offset: u64,
    length: u64,
) -> (std::ops::Range<usize>, usize) {
    let first = block.index() * PAGE_BYTES;
    let from = offset.max(first);
    let to = (offset + length).min(first + bytes as u64);
    (
        (from - first) as usize..(to - first) as usize,
        (from - offset) as usize,
    )
}

impl Pages {
    fn drop_page(&mut self, block: BlockId, copies: bool) -> bool {
        match self.pages.get_mut(&block) {
            None => return false,
            Some(page) if page.is_locked => {
                page.is_doomed = true;
                return false;
            }
            Some(_) => {}
        }
        let page = self.pages.remove(&block);
        if !self.is_watching {
            return true;
        }
        self.left.push(block);
        if copies {
            // What is not up to date is copied, too.
            let mut data = page.and_then(|page| page.data).unwrap_or_default();
            data.resize(PAGE_BYTES as usize, 0);
            if self.copies.len() >= COPIES_MAX {
                self.copies.remove(0);
            }
            self.copies.push((block, data));
        }
        true
    }

    fn unlock(&mut self, block: BlockId, copies: bool) {
        if let Some(page) = self.pages.get_mut(&block) {
            page.is_locked = false;
            if page.is_doomed {
                self.drop_page(block, copies);
            }
        }
    }

    /// An empty one.
    pub fn new(is_watching: bool) -> Self {
        Self {
            is_watching,
            ..Self::default()
        }
    }
}

impl Inside {
    /// Bytes of a page that there are.
    fn page_bytes(&self, block: BlockId) -> u64 {
        let bytes = self.config.volumes[usize::from(block.volume().0)];
        PAGE_BYTES.min(bytes - block.index() * PAGE_BYTES)
    }

    /// A reader reads a range: pages that are there give what they have. The first run of pages that are not there is locked, and
    /// is to be read from the cache, as far as the range goes; nothing if a page is locked before.
    pub fn read_pages(&mut self, volume: usize, offset: u64, length: u64) -> Option<(u64, u64)> {
        let mut missing: Option<(u64, u64)> = None;
        for block in blocks(volume, offset, length) {
            let (first, bytes) = (block.index() * PAGE_BYTES, self.page_bytes(block));
            let pages = self.pages.as_mut()?;
            let page = pages.pages.get(&block);
            let is_held = page.is_some_and(|page| page.is_locked || page.writer.is_some());
            let data = page.and_then(|page| page.data.clone());
            match (data, &mut missing) {
                // Readers of a page that is being written wait here, so that none sees what then fails.
                _ if is_held => break,
                (Some(_), Some(_)) => break,
                (Some(data), None) => {
                    if pages.is_watching {
                        *pages.used.entry(block).or_default() += 1;
                    }
                    self.cover.page_hits += 1;
                    let began = self.event();
                    self.check(volume, (first, &data), began, "a page");
                }
                (None, missing) => {
                    let page = pages.pages.entry(block).or_default();
                    page.is_locked = true;
                    let run = missing.get_or_insert((first, 0));
                    run.1 += bytes;
                }
            }
        }
        missing
    }

    /// Whether a change of a range may begin: no page of it is locked, and no other change that has begun touches its pages.
    /// The file is open for writing then.
    pub fn may_write(&mut self, volume: usize, offset: u64, length: u64) -> bool {
        let (first, end) = (
            offset / PAGE_BYTES * PAGE_BYTES,
            (offset + length).next_multiple_of(PAGE_BYTES),
        );
        let is_written = self.pending.values().any(|other| {
            let overlaps = other.offset < end && first < other.offset + other.length;
            other.volume == volume && other.kind == crate::client::Kind::Write && overlaps
        });
        let Some(pages) = &mut self.pages else {
            return true;
        };
        let is_locked = |block| pages.pages.get(&block).is_some_and(|page| page.is_locked);
        if is_written || blocks(volume, offset, length).any(is_locked) {
            return false;
        }
        let id = VolumeId(volume as u16);
        if pages.putting == Some(id) {
            return false;
        }
        pages.writable.insert(id);
        pages.to_put.retain(|(block, _)| block.volume() != id);
        true
    }

    /// A write `id` begins: the kernel changes its pages before it asks.
    pub fn begin_write_pages(&mut self, id: u64, (volume, offset): (usize, u64), data: &[u8]) {
        for block in blocks(volume, offset, data.len() as u64) {
            let bytes = self.page_bytes(block) as usize;
            let Some(pages) = &mut self.pages else { return };
            let (range, from) = overlap(block, bytes, offset, data.len() as u64);
            let page = pages.pages.entry(block).or_default();
            page.writer = Some(id);
            if range.len() == bytes {
                page.data = Some(vec![0; bytes]);
            }
            match &mut page.data {
                Some(content) => {
                    let length = range.len();
                    content[range].copy_from_slice(&data[from..from + length]);
                }
                None => page.is_locked = true,
            }
        }
    }

    /// A write past the page cache begins or has ended, or a range was cleared: its pages go.
    pub fn drop_pages(&mut self, volume: usize, offset: u64, length: u64) {
        let copies = self.config.pages.is_some_and(|how| how.copies);
        let Some(pages) = &mut self.pages else { return };
        for block in blocks(volume, offset, length) {
            pages.drop_page(block, copies);
        }
    }

    /// A request is answered: its pages get what they are to have.
    pub fn end_pages(
        &mut self,
        id: u64,
        route: Route,
        (volume, offset, length): (usize, u64, u64),
        (is_write, result): (bool, &Result<IoBuf, IoError>),
    ) {
        let copies = self.config.pages.is_some_and(|how| how.copies);
        if route == Route::Direct || route == Route::Clear {
            if is_write {
                self.clear_pages(route, (volume, offset, length), result.is_ok());
            }
            return;
        }
        for block in blocks(volume, offset, length) {
            let bytes = self.page_bytes(block) as usize;
            let Some(pages) = &mut self.pages else { return };
            let Some(page) = pages.pages.get_mut(&block) else {
                continue;
            };
            if route == Route::Fill {
                let (range, from) = overlap(block, bytes, offset, length);
                page.data = match result {
                    Ok(data) if range.len() == bytes && data.len() as u64 == length => {
                        Some(data.as_slice()[from..from + bytes].to_vec())
                    }
                    _ => None,
                };
                pages.unlock(block, copies);
            } else if page.writer == Some(id) {
                page.writer = None;
                if result.is_err() {
                    page.data = None;
                }
                pages.unlock(block, copies);
            }
        }
    }

    /// Whole pages go, of others the part is zeroes. After a failure the kernel keeps them until the cache gives them up;
    /// here they go at once, since nobody has promised anything of a range whose clearing failed.
    fn clear_pages(
        &mut self,
        route: Route,
        (volume, offset, length): (usize, u64, u64),
        is_ok: bool,
    ) {
        if route == Route::Direct || !is_ok {
            return self.drop_pages(volume, offset, length);
        }
        let copies = self.config.pages.is_some_and(|how| how.copies);
        for block in blocks(volume, offset, length) {
            let bytes = self.page_bytes(block) as usize;
            let Some(pages) = &mut self.pages else { return };
            let (range, _) = overlap(block, bytes, offset, length);
            let page = pages.pages.get_mut(&block).filter(|page| !page.is_locked);
            match page.and_then(|page| page.data.as_mut()) {
                Some(data) if range.len() < bytes => data[range].fill(0),
                _ => {
                    pages.drop_page(block, copies);
                }
            }
        }
    }

    /// Holds every page that is there against what may be there.
    pub fn check_pages(&mut self) {
        let Some(pages) = &self.pages else { return };
        let known = pages.pages.iter();
        let known = known.filter(|(_, page)| page.writer.is_none());
        let known: Vec<(BlockId, Vec<u8>)> = known
            .filter_map(|(block, page)| Some((*block, page.data.clone()?)))
            .collect();
        for (block, data) in known {
            let (volume, offset) = (usize::from(block.volume().0), block.index() * PAGE_BYTES);
            let began = self.event();
            self.check(volume, (offset, &data), began, "a page at the end");
        }
    }
}

impl PagesConfig {
    /// One of them.
    pub fn draw(prng: &mut Prng, copies: bool) -> Self {
        Self {
            takes: prng.below(3) > 0,
            copies,
            loses: [0, 0, 20][prng.below(3) as usize],
        }
    }
}

const _: () = assert!(PAGE_BYTES.is_multiple_of(SECTOR));
