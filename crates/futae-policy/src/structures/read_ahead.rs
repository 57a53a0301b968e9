//! Which blocks Linux reads before a program asks for them, and which of them it then holds as one.

use super::{Folios, Names, Table};
use crate::{Access, AccessKind, Arguments, BlockId, Slot, SpecError, VolumeId};

/// The kernel's `MAX_PAGECACHE_ORDER` with pages of 4 KiB.
const ORDER_MAX: u32 = 9;
/// The shortest window that the kernel makes large folios of.
const LARGE_MIN: u64 = 4;

/// The read-ahead of Linux for files that are read block by block: `mm/readahead.c` as of 6.12
/// (`page_cache_sync_ra`, `page_cache_async_ra`, `page_cache_ra_order`, `get_init_ra_size`, `get_next_ra_size`), read as a
/// description, not copied.
///
/// A read that misses is taken for the next one of a sequence if it begins the file, follows the
/// last read with at most one block left out, or has two blocks or more before it in the cache. The kernel then reads a window
/// of blocks, and marks one of them. A read of the marked block makes it read the next window, which is larger. Every volume
/// is one open file.
///
/// File systems with large folios get a window as folios, each window's four times as long as those of the one before, as far as
/// their alignment and the window permit. Where a block of a window is in the cache, what follows is read block by block.
///
/// Constant time per access but for up to `limit` steps where a window is chosen; 16 bytes and a mark per resident block, and 9 bytes
/// per slot for large folios.
#[derive(Clone, Debug, Default)]
pub struct ReadAhead {
    /// The largest window, in blocks.
    limit: u64,
    /// Whether windows come as large folios.
    is_large: bool,
    resident: Names,
    /// Slots whose block makes the kernel read the next window.
    marked: Table<bool>,
    /// The volumes, by their places.
    files: Vec<File>,
    wanted: Option<Wanted>,
    /// The folio whose blocks come now.
    coming: Option<Coming>,
    /// A block whose read has made the kernel bring its folio, and has reached the mark on it; and the folio's order.
    reached: Option<(BlockId, u32)>,
    folios: Folios,
}

/// A volume, and what the kernel keeps for an open file (`struct file_ra_state`), in blocks.
#[derive(Clone, Copy, Debug)]
struct File {
    /// Its first block.
    first: BlockId,
    /// The index at which it has ended.
    end: u64,
    /// Where the last window begins, its length, and how much of it is left when the next one is due.
    start: u64,
    size: u64,
    left: u64,
    /// The block after the one that was read last.
    after_last: Option<u64>,
}

impl File {
    fn new(first: BlockId, end: u64) -> Self {
        Self {
            first,
            end,
            start: 0,
            size: 0,
            left: 0,
            after_last: None,
        }
    }

    fn has(&self, block: BlockId) -> bool {
        let indices = self.first.index()..self.end;
        block.volume() == self.first.volume() && indices.contains(&block.index())
    }

    /// The block at `index`, if the volume can have one there.
    fn block(&self, index: u64) -> Option<BlockId> {
        (index < self.end).then(|| BlockId::new(self.first.volume(), index))
    }

    /// Where the folio of 2^`order` blocks begins that has the block at `index`.
    fn begin(&self, index: u64, order: u32) -> u64 {
        let first = self.first.index();
        first + ((index - first) >> order << order)
    }
}

/// A window that is being read.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    volume: VolumeId,
    next: u64,
    end: u64,
    marked: u64,
    /// The binary logarithm of the folios' length.
    order: u32,
}

/// How a block arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// By itself.
    Single,
    /// As the first of a large folio of this many blocks.
    Begins(u64),
    /// Into the folio that has the block of this slot.
    Joins(Slot),
}

impl Arrival {
    /// What the kernel remembers of a folio that `block` begins: what it remembers of the last of its blocks that it knows. `own` is what it
    /// remembers of `block`.
    #[inline]
    pub fn remembered<T>(
        &self,
        block: BlockId,
        own: Option<T>,
        of: impl Fn(BlockId) -> Option<T>,
    ) -> Option<T> {
        match self {
            Self::Single => own,
            Self::Begins(blocks) => {
                let others = (1..*blocks).rev();
                let mut others = others.map(|at| BlockId::new(block.volume(), block.index() + at));
                others.find_map(of).or(own)
            }
            Self::Joins(_) => None,
        }
    }
}

/// A large folio of which blocks are to come.
#[derive(Clone, Copy, Debug)]
struct Coming {
    volume: VolumeId,
    start: u64,
    order: u32,
    is_marked: bool,
    /// The block that came last.
    mate: Option<Slot>,
}

impl Coming {
    fn end(&self) -> u64 {
        self.start + (1 << self.order)
    }

    fn has(&self, block: BlockId) -> bool {
        block.volume() == self.volume && (self.start..self.end()).contains(&block.index())
    }
}

impl ReadAhead {
    /// Takes the parameters `readahead`, the largest window in blocks, and `folios`. Without the first, and with 0, nothing is read
    /// ahead, and nothing kept.
    pub fn take(arguments: &mut Arguments) -> Result<Self, SpecError> {
        const MAX: u32 = 1 << 16;
        let limit = arguments.take("readahead", "0 to 65536", |blocks: &u32| *blocks <= MAX)?;
        let limit = limit.unwrap_or(0).into();
        let expected = "single, or with readahead large";
        let folios = arguments.take("folios", expected, |folios: &String| {
            folios == "single" || folios == "large" && limit > 0
        })?;
        Ok(Self {
            limit,
            is_large: folios.as_deref() == Some("large"),
            ..Self::default()
        })
    }

    /// Announces that all blocks are on volume 0, numbered densely from `first` on.
    pub fn number_blocks(&mut self, first: u64) {
        self.resident.number_blocks(first);
    }

    /// Announces that volumes begin at these indices of volume 0; see [`crate::Policy::note_volumes`].
    pub fn note_volumes(&mut self, firsts: &[u64]) {
        let ends = firsts.iter().skip(1).copied();
        let ends = ends.chain([BlockId::INDEX_LIMIT]);
        let files = firsts.iter().zip(ends);
        self.files = files
            .map(|(&first, end)| File::new(BlockId::on_first(first), end))
            .collect();
    }

    /// Whether this block is read ahead.
    #[inline]
    #[must_use]
    pub fn reads(&self, access: &Access) -> bool {
        self.limit > 0 && access.kind == AccessKind::Preload
    }

    /// A block arrives in `slot`: one whose read missed, or one that is read ahead.
    #[inline]
    pub fn insert(&mut self, slot: Slot, access: &Access) -> Arrival {
        if self.limit == 0 {
            return Arrival::Single;
        }
        self.arrive(slot, access)
    }

    fn arrive(&mut self, slot: Slot, access: &Access) -> Arrival {
        let block = access.block;
        match access.kind {
            AccessKind::Read => self.miss(block),
            AccessKind::Preload => {}
            // What a program writes comes by itself.
            _ => (self.coming, self.reached) = (None, None),
        }
        let mut is_marked = self.reads(access)
            && self.wanted.is_some_and(|wanted| {
                wanted.volume == block.volume() && wanted.marked == block.index()
            });
        let mut arrival = Arrival::Single;
        if self.is_large {
            let (mut order, mut mate) = (0, None);
            if let Some(coming) = self.coming.as_mut().filter(|coming| coming.has(block)) {
                // The read that made the kernel bring the folio reaches its mark at once.
                if coming.is_marked && access.kind == AccessKind::Read {
                    coming.is_marked = false;
                    self.reached = Some((block, coming.order));
                }
                (order, is_marked) = (coming.order, coming.is_marked);
                mate = coming.mate.replace(slot);
                let begins = Arrival::Begins(1 << order);
                arrival = mate.map_or(begins, Arrival::Joins);
            }
            self.folios.join(slot, order as u8, mate);
        }
        self.marked.set(slot, is_marked);
        self.resident.add(block);
        arrival
    }

    /// A resident block is used. Returns whether the kernel counts it as a use of its folio: reads of one large folio, one after the
    /// other, are one.
    #[inline]
    pub fn hit(&mut self, slot: Slot, access: &Access) -> bool {
        if self.limit == 0 || access.kind != AccessKind::Read {
            return true;
        }
        let (block, order) = (access.block, self.folios.order(slot));
        if self.marked.get(slot) {
            for slot in self.folios.of(slot) {
                self.marked.set(slot, false);
            }
            self.reach_mark(block, order);
        }
        let index = block.index();
        let file = self.file(block);
        let before = file.after_last.replace(index + 1);
        let is_same = |before| file.begin(before - 1, order) == file.begin(index, order);
        order == 0 || !before.is_some_and(is_same)
    }

    /// The slots of the folio of `slot`, that one first.
    #[inline]
    pub fn folio(&self, slot: Slot) -> impl Iterator<Item = Slot> + '_ {
        self.folios.of(slot)
    }

    /// A block leaves.
    #[inline]
    pub fn remove(&mut self, slot: Slot, block: BlockId) {
        if self.limit > 0 {
            self.resident.take(block);
        }
        if self.is_large {
            if let Some(coming) = &mut self.coming
                && coming.mate == Some(slot)
            {
                coming.mate = self.folios.of(slot).nth(1);
            }
            self.folios.leave(slot);
        }
    }

    /// The next block to read, if one is due.
    #[inline]
    pub fn next_wanted(&mut self) -> Option<BlockId> {
        loop {
            while let Some(wanted) = self.wanted
                && wanted.next < wanted.end
            {
                if self.coming.is_some_and(|it| it.end() <= wanted.next) {
                    self.begin_folio();
                }
                let block = BlockId::new(wanted.volume, wanted.next);
                self.wanted.as_mut()?.next += 1;
                if self.resident.find(block).is_none() {
                    return Some(block);
                }
            }
            let (block, order) = self.reached.take()?;
            self.reach_mark(block, order);
        }
    }

    /// A read misses.
    fn miss(&mut self, block: BlockId) {
        (self.coming, self.reached) = (None, None);
        let index = block.index();
        let file = self.file(block);
        let after_last = file.after_last.replace(index + 1);
        let file = *file;
        let first = file.first.index();
        let follows = |after: u64| index == after || index == after + 1;
        if index == first || after_last.is_some_and(follows) {
            let size = self.first_size();
            self.read(block, index, (size, size - 1), 0);
            return;
        }
        let before = (1..=self.limit)
            .take_while(|&back| index >= first + back && self.has(&file, index - back))
            .count() as u64;
        if before > 1 {
            let is_whole = index == first + before;
            let size = if is_whole { 2 * before } else { before } + 1;
            self.read(block, index, (size.min(self.limit), 1), 0);
        }
    }

    /// A program reads a block of a marked folio of 2^`order` blocks.
    fn reach_mark(&mut self, block: BlockId, order: u32) {
        let file = *self.file(block);
        let index = file.begin(block.index(), order);
        let due = file.start + file.size - file.left;
        if index == file.begin(due, order) {
            let size = file.size.max(self.next_size(file.size));
            self.read(block, file.start + file.size, (size, size), order);
            return;
        }
        let missing = (1..=self.limit).find(|&ahead| !self.has(&file, index + ahead));
        if let Some(ahead) = missing {
            // From the folio's begin to the end of the read.
            let asked = block.index() - index + 1;
            let size = self.next_size(ahead + asked);
            self.read(block, index + ahead, (size, size), order);
        }
    }

    /// A window of `size` blocks of the file that `block` is in, of which the last `left` are to be there still when the next one is due.
    /// A program has reached a folio of 2^`order` blocks.
    fn read(&mut self, block: BlockId, start: u64, (size, left): (u64, u64), order: u32) {
        let file = self.file(block);
        (file.start, file.size, file.left) = (start, size, left);
        let end = file.end;
        let order = match self.is_large && size >= LARGE_MIN {
            true => (order + 2).min(size.ilog2()).min(ORDER_MAX),
            false => 0,
        };
        self.wanted = Some(Wanted {
            volume: block.volume(),
            next: start,
            end: (start + size).min(end),
            marked: start + size - left,
            order,
        });
        self.begin_folio();
    }

    /// Begins a large folio at the next block of the window, if it is to have one there.
    fn begin_folio(&mut self) {
        self.coming = None;
        let is_large = |wanted: &Wanted| wanted.order > 0 && wanted.next < wanted.end;
        let Some(wanted) = self.wanted.filter(is_large) else {
            return;
        };
        let start = wanted.next;
        let file = *self.file(BlockId::new(wanted.volume, start));
        let aligned = (start - file.first.index()).trailing_zeros();
        let mut order = wanted.order.min(aligned);
        while start + (1 << order) > wanted.end {
            order -= 1;
        }
        let coming = Coming {
            volume: wanted.volume,
            start,
            order,
            is_marked: (start..start + (1 << order)).contains(&wanted.marked),
            mate: None,
        };
        if !(start..coming.end()).any(|index| self.has(&file, index)) {
            self.coming = Some(coming);
            return;
        }
        // The kernel begins a window of the same size here, page by page.
        self.wanted = Some(Wanted {
            end: (start + file.size).min(file.end),
            marked: start + file.size - file.left,
            order: 0,
            ..wanted
        });
    }

    fn has(&self, file: &File, index: u64) -> bool {
        let block = file.block(index);
        block.is_some_and(|block| self.resident.find(block).is_some())
    }

    /// The first window for a read of one block.
    fn first_size(&self) -> u64 {
        match self.limit {
            32.. => 4,
            4.. => 2,
            limit => limit,
        }
    }

    /// The window after one of `size` blocks.
    fn next_size(&self, size: u64) -> u64 {
        let next = if size < self.limit / 16 {
            4 * size
        } else {
            2 * size
        };
        next.min(self.limit)
    }

    /// The file that a block is in. A volume of which nothing was announced begins at index 0.
    fn file(&mut self, block: BlockId) -> &mut File {
        let after = self.files.partition_point(|file| file.first <= block);
        let known = after.checked_sub(1).filter(|&at| self.files[at].has(block));
        let at = known.unwrap_or_else(|| {
            let first = BlockId::new(block.volume(), 0);
            let whole = File::new(first, BlockId::INDEX_LIMIT);
            self.files.insert(after, whole);
            after
        });
        &mut self.files[at]
    }
}

#[cfg(test)]
mod tests;
