//! A kernel's page cache that holds the blocks in the cache's place, as under `futae mount --residency kernel`.
//!
//! Reads of pages that are there never reach the cache, which hears of them later. Pages come and go as the kernel likes. What
//! readers find in a page is held against what may be there, as an answer of the cache is.

pub mod kept;
mod requests;
mod route;
mod work;

use crate::content::SECTOR;
use futae_engine::IoBuf;
use futae_policy::{BlockId, Prng, VolumeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes of a page; a block is one page.
pub const PAGE_BYTES: u64 = 4096;
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
