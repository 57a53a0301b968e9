//! What requests do to pages, as they begin and when they are answered.

use super::PAGE_BYTES;
use crate::client::{Kind, Route};
use crate::sim::Inside;
use futae_engine::{IoBuf, IoError};
use futae_policy::{BlockId, VolumeId};

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
            other.volume == volume && other.kind == Kind::Write && overlaps
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
}
