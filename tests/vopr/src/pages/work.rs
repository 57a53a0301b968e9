//! What the page cache does by itself, and what the thread does that serves it.

use super::{PAGE_BYTES, Page};
use crate::client::Kind;
use crate::sim::{Inside, Sim};
use futae_engine::{Engine, IoBuf};
use futae_policy::{BlockId, VolumeId};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Sim {
    /// The page cache, or the thread that serves it, does something.
    pub fn turn_pages(self: &Arc<Self>) {
        let which = {
            let mut inside = self.lock();
            let Some(pages) = &inside.pages else { return };
            if !pages.is_watching {
                return inside.begin_to_watch();
            }
            inside.prng.below(18)
        };
        match which {
            0..3 => self.lock().reclaim(),
            3..7 => self.give_up_pages(),
            7..9 => self.put_page(),
            9..11 => self.with_engine(|engine| engine.hear()),
            11..14 => self.demote_left(),
            14 => self.compare_pages(),
            _ => self.lock().close(),
        }
    }

    fn with_engine(&self, work: impl FnOnce(&Arc<Engine>)) {
        let engine = self.engine();
        if let Some(engine) = engine {
            work(&engine);
        }
    }

    /// Those of the blocks that the cache neither has nor reads.
    fn unwanted_of(&self, mut blocks: Vec<BlockId>) -> Vec<BlockId> {
        self.with_engine(|engine| engine.retain_unwanted(&mut blocks));
        blocks
    }

    /// Pages that the cache does not want are dropped, if it still does not want them.
    pub fn give_up_pages(self: &Arc<Self>) {
        let (there, written) = {
            let mut inside = self.lock();
            let Some(pages) = &mut inside.pages else {
                return;
            };
            let mut unwanted = std::mem::take(&mut pages.unwanted);
            unwanted.retain(|block| pages.pages.contains_key(block));
            unwanted.sort_unstable();
            unwanted.dedup();
            let is_written = |block: &&BlockId| pages.pages[block].writer.is_some();
            let written: BTreeSet<BlockId> = unwanted.iter().filter(is_written).copied().collect();
            (unwanted, written)
        };
        let unknown = self.unwanted_of(there.clone());
        let known: Vec<BlockId> = there
            .into_iter()
            .filter(|block| unknown.binary_search(block).is_err())
            .collect();
        self.with_engine(|engine| engine.hold(&known));
        self.preempt();
        let mut inside = self.lock();
        let inside = &mut *inside;
        let copies = inside.config.pages.is_some_and(|how| how.copies);
        if let Some(pages) = &mut inside.pages {
            for block in unknown {
                // A write that has begun since the cache was asked is the kernel's race, which takes microseconds there.
                let page = pages.pages.get(&block);
                if page.is_some_and(|page| page.writer.is_some()) && !written.contains(&block) {
                    pages.unwanted.push(block);
                    continue;
                }
                inside.cover.pages_given_up += u64::from(pages.drop_page(block, copies));
            }
        }
    }

    /// The kernel is given a page that nobody has read, if the cache still wants it there.
    pub fn put_page(self: &Arc<Self>) {
        let (block, data) = {
            let mut inside = self.lock();
            let Some(pages) = &mut inside.pages else {
                return;
            };
            if pages.putting.is_some() {
                return;
            }
            let Some(next) = pages.to_put.pop_front() else {
                return;
            };
            pages.putting = Some(next.0.volume());
            next
        };
        let is_wanted = self.unwanted_of(vec![block]).is_empty();
        self.preempt();
        let is_there = {
            let mut inside = self.lock();
            let inside = &mut *inside;
            let Some(pages) = &mut inside.pages else {
                return;
            };
            pages.putting = None;
            if is_wanted && !pages.pages.contains_key(&block) {
                inside.cover.pages_put += 1;
                let page = pages.pages.entry(block).or_default();
                page.data = Some(data.as_slice().to_vec());
            }
            pages.pages.contains_key(&block)
        };
        drop(data);
        if is_there {
            self.with_engine(|engine| engine.hold(&[block]));
        }
    }

    /// Copies of pages that have left are demoted: late, and now and then again.
    fn demote_left(self: &Arc<Self>) {
        let some = {
            let mut inside = self.lock();
            let Inside { pages, prng, .. } = &mut *inside;
            let Some(pages) = pages else { return };
            let mut some = Vec::new();
            for _ in 0..1 + prng.below(4) {
                let count = pages.copies.len() as u64;
                if count == 0 {
                    break;
                }
                let which = prng.below(count) as usize;
                let (block, data) = if prng.below(4) == 0 {
                    pages.copies[which].clone()
                } else {
                    pages.copies.remove(which)
                };
                some.push((block, IoBuf::copy_of(&data)));
            }
            inside.cover.pages_demoted += some.len() as u64;
            some
        };
        self.with_engine(|engine| engine.demote_held(some));
    }

    /// Blocks that only one of both has, twice in succession: nobody had told of them.
    pub fn compare_pages(self: &Arc<Self>) {
        let Some(engine) = self.engine() else { return };
        let (unknown, absent) = self.differences(&engine);
        let again: Vec<BlockId> = {
            let mut inside = self.lock();
            let Some(pages) = &mut inside.pages else {
                return;
            };
            let is_suspect = |block: &&BlockId| pages.suspects.contains(block);
            let again = absent.iter().filter(is_suspect).copied().collect();
            let unwanted: Vec<BlockId> = unknown.iter().filter(is_suspect).copied().collect();
            pages.unwanted.extend(unwanted);
            pages.suspects = unknown.into_iter().chain(absent).collect();
            again
        };
        engine.forget(&again, 0);
    }

    /// Pages that the cache neither has nor reads, and blocks that it believes to be there and are not.
    fn differences(&self, engine: &Engine) -> (Vec<BlockId>, Vec<BlockId>) {
        let there = |inside: &Inside| -> BTreeSet<BlockId> {
            let pages = inside.pages.as_ref();
            pages
                .map(|pages| pages.pages.keys().copied().collect())
                .unwrap_or_default()
        };
        let (volumes, there) = {
            let inside = self.lock();
            (inside.config.volumes.len(), there(&inside))
        };
        let mut unknown: Vec<BlockId> = there.iter().copied().collect();
        engine.retain_unwanted(&mut unknown);
        let mut absent = Vec::new();
        for volume in (0..volumes).map(|volume| VolumeId(volume as u16)) {
            let mut from = 0;
            loop {
                let some = engine.resident_from(volume, from);
                let Some(last) = some.last() else { break };
                from = last + 1;
                absent.extend(some.into_iter().map(|index| BlockId::new(volume, index)));
            }
        }
        engine.retain_given(&mut absent);
        absent.retain(|block| !there.contains(block));
        (unknown, absent)
    }

    /// With nothing under way: both have the same blocks in the end, and every page is true.
    pub fn settle_pages(self: &Arc<Self>) {
        let is_watching = {
            let mut inside = self.lock();
            inside.check_pages();
            inside.pages.as_ref().is_some_and(|pages| pages.is_watching)
        };
        if !is_watching {
            return;
        }
        for _ in 0..64 {
            self.with_engine(|engine| engine.hear());
            self.give_up_pages();
            self.put_page();
            self.compare_pages();
            while !self.lock().held.is_empty() {
                self.release(0, false);
            }
        }
        let Some(engine) = self.engine() else { return };
        let (unwanted, absent) = self.differences(&engine);
        let mut inside = self.lock();
        inside.check_pages();
        if !(unwanted.is_empty() && absent.is_empty()) && inside.letters.is_empty() {
            inside.fail(|| {
                format!(
                    "the kernel has pages {unwanted:?}, which the cache does not want, and lacks {absent:?}"
                )
            });
        }
    }
}

impl Inside {
    /// What came before the watch is not known of, and goes.
    fn begin_to_watch(&mut self) {
        let Some(pages) = &mut self.pages else { return };
        let is_idle = |page: &Page| !page.is_locked && page.writer.is_none();
        if pages.pages.values().all(is_idle) {
            pages.pages.clear();
            pages.is_watching = true;
        }
    }

    /// Holds every page that is there against what may be there.
    fn check_pages(&mut self) {
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

    /// The kernel needs memory: a page that nobody uses goes.
    fn reclaim(&mut self) {
        let copies = self.config.pages.is_some_and(|how| how.copies);
        let Inside { pages, prng, .. } = self;
        let Some(pages) = pages else { return };
        let is_idle = |page: &Page| !page.is_locked && page.writer.is_none();
        let idle = pages.pages.iter().filter(|(_, page)| is_idle(page));
        let idle: Vec<BlockId> = idle.map(|(block, _)| *block).collect();
        if !idle.is_empty() {
            let which = prng.below(idle.len() as u64) as usize;
            pages.drop_page(idle[which], copies);
        }
    }

    /// Files that nobody writes to now are closed.
    fn close(&mut self) {
        let written: BTreeSet<VolumeId> = self
            .pending
            .values()
            .filter(|pending| pending.kind == Kind::Write)
            .map(|pending| VolumeId(pending.volume as u16))
            .collect();
        if let Some(pages) = &mut self.pages {
            pages.writable.retain(|volume| written.contains(volume));
        }
    }
}
