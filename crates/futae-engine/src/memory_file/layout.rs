//! The layout of a memory file.
//!
//! ```text
//! header │ volumes │ segment 0: index, frames │ segment 1: index, frames │ ...
//! ```
//!
//! Everything is in words of the machine's own byte order: the file does not survive a reboot.

use super::map::WORD_BYTES;
use crate::PAGE_BYTES;
use futae_policy::Slot;

/// `futaemem` in another order, so that a file of `--state` is not mistaken for a memory file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"futaeimm");
/// Incremented with every change of the layout or its meaning.
pub const VERSION: u64 = 1;

/// Words of the header.
pub mod header {
    /// [`super::MAGIC`], written last.
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    pub const BLOCK_BYTES: usize = 2;
    /// Number of slots that have frames.
    pub const SLOTS: usize = 3;
    /// The identity of the machine's boot: two words.
    pub const BOOT: usize = 4;
    /// The keys of the hashes: eight words.
    pub const KEYS: usize = 8;
    /// The era most recently given to a volume.
    pub const ERA: usize = 16;
}

/// Capacity in volumes.
pub const VOLUMES: usize = 1024;
/// Words of a volume.
pub const VOLUME_WORDS: usize = 16;
/// The word of the first volume.
pub const VOLUMES_AT: usize = PAGE_BYTES / WORD_BYTES;
const HEAD_BYTES: usize = PAGE_BYTES + VOLUMES * VOLUME_WORDS * WORD_BYTES;

/// Words of an entry of the index.
pub const ENTRY_WORDS: usize = 4;

/// Bytes of frames per segment, unless a single frame is larger.
const SEGMENT_BYTES: usize = 64 << 20;

/// The layout for a frame size and a page size of the file.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub frame_bytes: usize,
    pub frames_per_segment: usize,
    page_bytes: usize,
}

impl Layout {
    pub fn new(frame_bytes: usize, page_bytes: usize) -> Self {
        Self {
            frame_bytes,
            frames_per_segment: (SEGMENT_BYTES / frame_bytes).max(1),
            page_bytes: page_bytes.max(PAGE_BYTES),
        }
    }

    /// Bytes before the first segment.
    pub fn head_bytes(&self) -> usize {
        HEAD_BYTES.next_multiple_of(self.page_bytes)
    }

    pub fn index_bytes(&self) -> usize {
        let bytes = self.frames_per_segment * ENTRY_WORDS * WORD_BYTES;
        bytes.next_multiple_of(self.page_bytes)
    }

    /// Bytes of this many frames in a segment.
    pub fn frames_bytes(&self, frames: usize) -> usize {
        (frames * self.frame_bytes).next_multiple_of(self.page_bytes)
    }

    /// The offset of a segment, where its index begins.
    pub fn segment_at(&self, segment: usize) -> u64 {
        let each = self.index_bytes() + self.frames_bytes(self.frames_per_segment);
        self.head_bytes() as u64 + segment as u64 * each as u64
    }

    /// Number of frames in a segment of a cache of `slots` slots.
    pub fn frames_of(&self, segment: usize, slots: u32) -> usize {
        let before = segment * self.frames_per_segment;
        (slots as usize)
            .saturating_sub(before)
            .min(self.frames_per_segment)
    }

    /// Number of segments for `slots` slots.
    pub fn segments(&self, slots: u32) -> usize {
        (slots as usize).div_ceil(self.frames_per_segment)
    }

    /// Size of the file in bytes.
    pub fn file_bytes(&self, slots: u32) -> u64 {
        let Some(last) = self.segments(slots).checked_sub(1) else {
            return self.head_bytes() as u64;
        };
        let frames = self.frames_bytes(self.frames_of(last, slots));
        self.segment_at(last) + (self.index_bytes() + frames) as u64
    }

    /// The segment of a slot, and the slot's index there.
    pub fn place(&self, slot: Slot) -> (usize, usize) {
        (
            slot.i() / self.frames_per_segment,
            slot.i() % self.frames_per_segment,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_pages_one_behind_the_other_and_no_longer_than_needed() {
        for page in [4096, 2 << 20] {
            for frame in [4096, 64 << 10, 1 << 20] {
                let layout = Layout::new(frame, page);
                assert_eq!(layout.file_bytes(0), layout.head_bytes() as u64);
                let each = layout.frames_per_segment as u32;
                let mut before = 0;
                for slots in [1, 7, each, each + 1, 3 * each] {
                    let bytes = layout.file_bytes(slots);
                    assert!(bytes >= before && bytes.is_multiple_of(page as u64));
                    let frames = u64::from(slots) * frame as u64;
                    assert!(bytes >= frames + layout.head_bytes() as u64);
                    before = bytes;
                }
                assert_eq!(layout.file_bytes(each), layout.segment_at(1));
                assert_eq!(layout.place(Slot(each + 1)), (1, 1));
            }
        }
        let small = Layout::new(4096, 4096).file_bytes(1024);
        assert!(small < 5 << 20, "{small} bytes for 4 MiB of frames");
    }
}
