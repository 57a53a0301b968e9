//! Which blocks Linux reads before a program asks for them.

use super::{Names, Table};
use crate::{Access, AccessKind, Arguments, BlockId, Slot, SpecError, VolumeId};

/// The read-ahead of Linux for files that are read block by block: `mm/readahead.c` as of 6.12
/// (`page_cache_sync_ra`, `page_cache_async_ra`, `get_init_ra_size`, `get_next_ra_size`), read as a description, not
/// copied.
///
/// A read that misses is taken for the next one of a sequence if it begins the file, follows the
/// last read with at most one block left out, or has two blocks or more before it in the cache. The kernel then reads a window
/// of blocks, and marks one of them. A read of the marked block makes it read the next window, which is larger. Every volume
/// is one open file.
///
/// Constant time per access but for up to `limit` steps where a window is chosen; 16 bytes and a mark per resident block.
#[derive(Clone, Debug, Default)]
pub struct ReadAhead {
    /// The largest window, in blocks.
    limit: u64,
    /// The index at which every volume begins.
    first: u64,
    resident: Names,
    /// Slots whose block makes the kernel read the next window.
    marked: Table<bool>,
    files: Vec<(VolumeId, File)>,
    wanted: Option<Wanted>,
}

/// What the kernel keeps for an open file (`struct file_ra_state`), in blocks.
#[derive(Clone, Copy, Debug, Default)]
struct File {
    /// Where the last window begins, its length, and how much of it is left when the next one is due.
    start: u64,
    size: u64,
    left: u64,
    /// The block after the one that was read last.
    after_last: Option<u64>,
}

/// A window that is being read.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    volume: VolumeId,
    next: u64,
    end: u64,
    marked: u64,
}

impl ReadAhead {
    /// Takes the parameter `readahead`, the largest window in blocks. Without it, and with 0, nothing is read ahead, and nothing
    /// kept.
    pub fn take(arguments: &mut Arguments) -> Result<Self, SpecError> {
        const MAX: u32 = 1 << 16;
        let limit = arguments.take("readahead", "0 to 65536", |blocks: &u32| *blocks <= MAX)?;
        Ok(Self {
            limit: limit.unwrap_or(0).into(),
            ..Self::default()
        })
    }

    /// Announces that all blocks are on volume 0, numbered densely from `first` on.
    pub fn number_blocks(&mut self, first: u64) {
        self.first = first;
        self.resident.number_blocks(first);
    }

    /// Whether this block is read ahead.
    #[inline]
    #[must_use]
    pub fn reads(&self, access: &Access) -> bool {
        self.limit > 0 && access.kind == AccessKind::Preload
    }

    /// A block arrives in `slot`: one whose read missed, or one that is read ahead.
    #[inline]
    pub fn insert(&mut self, slot: Slot, access: &Access) {
        if self.limit > 0 {
            self.arrive(slot, access);
        }
    }

    fn arrive(&mut self, slot: Slot, access: &Access) {
        let block = access.block;
        if access.kind == AccessKind::Read {
            self.miss(block);
        }
        let is_marked = self.reads(access)
            && self.wanted.is_some_and(|wanted| {
                wanted.volume == block.volume() && wanted.marked == block.index()
            });
        self.marked.set(slot, is_marked);
        self.resident.add(block);
    }

    /// A resident block is used.
    #[inline]
    pub fn hit(&mut self, slot: Slot, access: &Access) {
        if self.limit == 0 || access.kind != AccessKind::Read {
            return;
        }
        if self.marked.get(slot) {
            self.marked.set(slot, false);
            self.reach_mark(access.block);
        }
        self.file(access.block.volume()).after_last = Some(access.block.index() + 1);
    }

    /// A block leaves.
    #[inline]
    pub fn remove(&mut self, block: BlockId) {
        if self.limit > 0 {
            self.resident.take(block);
        }
    }

    /// The next block to read, if one is due.
    #[inline]
    pub fn next_wanted(&mut self) -> Option<BlockId> {
        while let Some(wanted) = &mut self.wanted
            && wanted.next < wanted.end
        {
            let block = BlockId::new(wanted.volume, wanted.next);
            wanted.next += 1;
            if self.resident.find(block).is_none() {
                return Some(block);
            }
        }
        None
    }

    /// A read misses.
    fn miss(&mut self, block: BlockId) {
        let (volume, index) = (block.volume(), block.index());
        let file = *self.file(volume);
        let follows = |after: u64| index == after || index == after + 1;
        let is_next = index == self.first || file.after_last.is_some_and(follows);
        self.file(volume).after_last = Some(index + 1);
        if is_next {
            let size = self.first_size();
            self.read(volume, index, size, size - 1);
            return;
        }
        let before = (1..=self.limit)
            .take_while(|&back| index >= self.first + back && self.has(volume, index - back))
            .count() as u64;
        if before > 1 {
            let is_whole = index == self.first + before;
            let size = if is_whole { 2 * before } else { before } + 1;
            self.read(volume, index, size.min(self.limit), 1);
        }
    }

    /// A program reads a marked block.
    fn reach_mark(&mut self, block: BlockId) {
        let (volume, index) = (block.volume(), block.index());
        let file = *self.file(volume);
        if index == file.start + file.size - file.left {
            let size = file.size.max(self.next_size(file.size));
            self.read(volume, file.start + file.size, size, size);
            return;
        }
        let missing = (1..=self.limit).find(|&ahead| !self.has(volume, index + ahead));
        if let Some(ahead) = missing {
            let size = self.next_size(ahead + 1);
            self.read(volume, index + ahead, size, size);
        }
    }

    /// A window, of which the last `left` blocks are to be there still when the next one is due.
    fn read(&mut self, volume: VolumeId, start: u64, size: u64, left: u64) {
        let file = self.file(volume);
        (file.start, file.size, file.left) = (start, size, left);
        self.wanted = Some(Wanted {
            volume,
            next: start,
            end: (start + size).min(BlockId::INDEX_LIMIT),
            marked: start + size - left,
        });
    }

    fn has(&self, volume: VolumeId, index: u64) -> bool {
        index < BlockId::INDEX_LIMIT && self.resident.find(BlockId::new(volume, index)).is_some()
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

    fn file(&mut self, volume: VolumeId) -> &mut File {
        let known = self.files.iter().position(|(known, _)| *known == volume);
        let at = known.unwrap_or_else(|| {
            self.files.push((volume, File::default()));
            self.files.len() - 1
        });
        &mut self.files[at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::level_of;
    use crate::{Level, RegisteredPolicy};

    type Cache = Level<Box<dyn RegisteredPolicy>>;

    /// Reads a block, and returns the blocks that are read ahead of it.
    fn read(cache: &mut Cache, index: u64) -> Vec<u64> {
        cache.access(&Access::read(BlockId::on_first(index)));
        let mut ahead = Vec::new();
        while let Some(block) = cache.review() {
            ahead.push(block.index());
            cache.access(&Access::of(block, AccessKind::Preload));
        }
        ahead
    }

    /// What each of these reads reads ahead, as the first block and the number of blocks.
    fn windows(text: &str, reads: impl IntoIterator<Item = u64>) -> Vec<(u64, u64, usize)> {
        let mut cache = level_of(text, 1000, 1);
        let mut windows = Vec::new();
        for index in reads {
            let ahead = read(&mut cache, index);
            assert!(ahead.windows(2).all(|two| two[0] + 1 == two[1]));
            if let Some(&first) = ahead.first() {
                windows.push((index, first, ahead.len()));
            }
        }
        windows
    }

    /// The example in the kernel's comment: windows of 4, 8, 16 and 32 blocks, each asked for as the last one is entered.
    #[test]
    fn a_sequence_has_windows_that_grow() {
        let expected = [
            (0, 1, 3),
            (1, 4, 8),
            (4, 12, 16),
            (12, 28, 32),
            (28, 60, 32),
        ];
        for policy in ["linux", "mglru"] {
            let text = format!("{policy}(readahead=32)");
            assert_eq!(windows(&text, 0..60), expected);
        }
        let small = [(0, 1, 1), (1, 2, 4), (2, 6, 8), (6, 14, 8)];
        assert_eq!(windows("linux(readahead=8)", 0..14), small);
    }

    #[test]
    fn reads_that_follow_no_other_read_nothing_ahead() {
        assert_eq!(windows("linux(readahead=32)", [9, 40, 8, 20, 7]), []);
        assert_eq!(windows("linux", 0..60), []);
    }

    #[test]
    fn one_block_may_be_left_out_of_a_sequence() {
        assert_eq!(windows("linux(readahead=32)", [9, 11]), [(11, 12, 3)]);
        assert_eq!(windows("linux(readahead=32)", [9, 12]), []);
    }

    /// Two blocks before a miss are the history of a sequence; as many as they are, and the block itself, are read.
    #[test]
    fn the_history_of_a_sequence_is_found_in_the_cache() {
        let backwards = [22, 21, 20, 500, 23];
        assert_eq!(windows("linux(readahead=32)", backwards), [(23, 24, 3)]);
        assert_eq!(windows("linux(readahead=32)", [21, 500, 22]), []);
        // All of the file so far: twice as many.
        let whole = [(0, 1, 3), (4, 5, 8)];
        assert_eq!(windows("linux(readahead=32)", [0, 500, 4]), whole);
    }

    /// Two sequences in turns: the state is that of the other one, and the cache tells where to go on.
    #[test]
    fn sequences_in_turns_go_on_by_their_marks() {
        let turns = (0..12).flat_map(|at| [at, 300 + at]);
        let windows = windows("mglru(readahead=32)", turns);
        let begun = [
            (0, 1, 3),
            (1, 4, 8),
            (302, 303, 2),
            (4, 12, 18),
            (304, 305, 4),
        ];
        assert_eq!(windows[..5], begun);
    }

    #[test]
    fn what_left_the_cache_is_no_history() {
        let mut cache = level_of("linux(readahead=32)", 2, 1);
        for index in [21, 20, 500, 700] {
            assert_eq!(read(&mut cache, index), []);
        }
        assert_eq!(read(&mut cache, 22), []);
    }
}
