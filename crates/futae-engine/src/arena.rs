//! The memory of a cache: one frame a slot, given back to the kernel when the cache shrinks; and how
//! the memory beside it is kept small.
//!
//! The only `unsafe` here is advice: to the kernel, by which a frame's pages are given back, and to the
//! allocator.

use crate::memory_file::MemoryFile;
use crate::{PAGE_BYTES, SetupError};
use futae_policy::Slot;
use memmap2::{Advice, MmapMut, UncheckedAdvice};

/// Bytes mapped at a time. Mapping costs nothing until a frame is used.
const SEGMENT_BYTES: usize = 64 << 20;

/// Bytes of a huge page. A processor remembers where some thousand pages are. Of small pages these are a few
/// MiB, and nearly every hit in a larger cache would first wait for the place of its page.
const HUGE_BYTES: usize = 2 << 20;

/// Pieces of memory of this many bytes and more are mapped, each by itself, and given back to the kernel when
/// they are freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: i32 = 64 << 10;

/// Has the allocator give long pieces of memory back. By itself it raises what it calls long as soon as one
/// was freed: then tables that grow, and buffers that are freed on another thread than they were made on,
/// leave holes in the heap of every thread, together some percent of a cache of 256 MiB.
pub fn give_long_pieces_back() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it takes numbers only, and may be called at any time, by any thread.
        #[expect(unsafe_code, reason = "the named place for advice on memory")]
        let done = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES) };
        // Without it more memory is taken, and nothing is lost.
        let _ = done;
    }
}

/// What the kernel was told of the pages of a segment.
#[derive(Clone, Copy, Default)]
struct Pages {
    /// Bytes from the start on that are to be in huge pages.
    huge_bytes: usize,
    /// Frames were given back: their places must not be filled up to huge pages again.
    are_torn: bool,
}

impl Pages {
    /// Asks for huge pages where they hold nothing but frames of the first `used_bytes` bytes: a small cache
    /// takes no more memory than it has frames.
    fn ask_for_huge(&mut self, segment: &MmapMut, used_bytes: usize) {
        let bytes = used_bytes.min(segment.len()) / HUGE_BYTES * HUGE_BYTES;
        if bytes > self.huge_bytes && !self.are_torn {
            // A kernel that has none goes on with small ones.
            let _ = segment.advise_range(Advice::HugePage, 0, bytes);
            self.huge_bytes = bytes;
        }
    }

    /// A frame is about to be given back.
    fn tear(&mut self, segment: &MmapMut) {
        if self.huge_bytes > 0 && !self.are_torn {
            let _ = segment.advise_range(Advice::NoHugePage, 0, self.huge_bytes);
        }
        self.are_torn = true;
    }
}

/// Frames of one block each, numbered by slot.
pub struct Arena {
    frame_bytes: usize,
    frames_per_segment: usize,
    segments: Vec<MmapMut>,
    /// The pages of each segment, if they are anonymous memory.
    pages: Vec<Pages>,
    /// Where the frames are, if they outlive the process.
    file: Option<Box<MemoryFile>>,
}

impl Arena {
    /// An arena of frames of `frame_bytes`, a multiple of a page. Frames come as slots are used.
    pub fn new(frame_bytes: usize) -> Self {
        assert!(
            frame_bytes > 0 && frame_bytes.is_multiple_of(PAGE_BYTES),
            "frames are whole pages"
        );
        let frames_per_segment = (SEGMENT_BYTES / frame_bytes).max(1);
        Self {
            frame_bytes,
            frames_per_segment,
            segments: Vec::new(),
            pages: Vec::new(),
            file: None,
        }
    }

    /// An arena of `slots` frames in a file, which hold what they did.
    pub fn in_file(
        frame_bytes: usize,
        slots: u32,
        mut file: MemoryFile,
    ) -> Result<Self, SetupError> {
        let mut segments = Vec::new();
        file.reserve(slots, &mut segments)?;
        Ok(Self {
            frame_bytes,
            frames_per_segment: file.frames_per_segment(),
            segments,
            pages: Vec::new(),
            file: Some(Box::new(file)),
        })
    }

    /// The file that the frames are in, if they are in one.
    pub fn file(&self) -> Option<&MemoryFile> {
        self.file.as_deref()
    }

    /// The same, to note what a frame holds.
    pub fn file_mut(&mut self) -> Option<&mut MemoryFile> {
        self.file.as_deref_mut()
    }

    /// Makes sure that slots below `slots` have frames.
    pub fn reserve(&mut self, slots: u32) -> Result<(), SetupError> {
        if let Some(file) = &mut self.file {
            return file.reserve(slots, &mut self.segments);
        }
        let wanted = (slots as usize).div_ceil(self.frames_per_segment);
        let bytes = self.frames_per_segment * self.frame_bytes;
        while self.segments.len() < wanted {
            let segment = MmapMut::map_anon(bytes).map_err(|source| SetupError::Memory {
                bytes: u64::from(slots) * self.frame_bytes as u64,
                source,
            })?;
            self.segments.push(segment);
        }
        self.pages.resize(self.segments.len(), Pages::default());
        let mut used_bytes = slots as usize * self.frame_bytes;
        for (pages, segment) in self.pages.iter_mut().zip(&self.segments) {
            pages.ask_for_huge(segment, used_bytes);
            used_bytes = used_bytes.saturating_sub(bytes);
        }
        Ok(())
    }

    fn place(&self, slot: Slot) -> (usize, usize) {
        let (segment, frame) = (
            slot.i() / self.frames_per_segment,
            slot.i() % self.frames_per_segment,
        );
        (segment, frame * self.frame_bytes)
    }

    /// The frame of `slot`.
    #[inline]
    pub fn frame(&self, slot: Slot) -> &[u8] {
        let (segment, at) = self.place(slot);
        &self.segments[segment][at..at + self.frame_bytes]
    }

    /// The frame of `slot`, to write to. Nothing is known of what it holds from now on.
    #[inline]
    pub fn frame_mut(&mut self, slot: Slot) -> &mut [u8] {
        self.unseal(slot);
        let (segment, at) = self.place(slot);
        &mut self.segments[segment][at..at + self.frame_bytes]
    }

    /// Nothing is known of what a frame holds, for the next process.
    #[inline]
    pub fn unseal(&self, slot: Slot) {
        if let Some(file) = &self.file {
            file.unseal(slot);
        }
    }

    /// Gives the memory of a frame that nobody uses back to the kernel; it reads as zeroes when
    /// it is used again.
    pub fn release(&mut self, slot: Slot) {
        if let Some(file) = &self.file {
            file.unseal(slot);
            return file.release(slot);
        }
        let (segment, at) = self.place(slot);
        self.pages[segment].tear(&self.segments[segment]);
        // SAFETY: the range lies within this private anonymous mapping and is whole pages
        // (`new` checks the frame size); `&mut self` shows that no slice into it is alive.
        #[expect(unsafe_code, reason = "the named place for giving frames back")]
        let advised = unsafe {
            self.segments[segment].unchecked_advise_range(
                UncheckedAdvice::DontNeed,
                at,
                self.frame_bytes,
            )
        };
        // Advice that fails leaves the frame as it was: memory is kept longer, nothing is lost.
        drop(advised);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_apart_and_given_back() {
        let mut arena = Arena::new(8192);
        arena.reserve(10_000).expect("memory");
        for slot in [0u32, 1, 8191, 8192, 9999] {
            arena.frame_mut(Slot(slot)).fill(slot as u8 | 1);
        }
        for slot in [0u32, 1, 8191, 8192, 9999] {
            assert!(
                arena
                    .frame(Slot(slot))
                    .iter()
                    .all(|&byte| byte == slot as u8 | 1)
            );
        }
        arena.release(Slot(8191));
        assert!(
            arena.frame(Slot(8191)).iter().all(|&byte| byte == 0),
            "the kernel took it back"
        );
        assert!(
            arena.frame(Slot(8192)).iter().all(|&byte| byte == 1),
            "its neighbour stays"
        );
    }

    /// What the kernel notes of the mapping that has these bytes.
    fn flags(of: &[u8]) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
        let (at, mut is_it) = (of.as_ptr() as usize, false);
        for line in maps.lines() {
            let range = line
                .split(' ')
                .next()
                .and_then(|range| range.split_once('-'));
            let range = range.and_then(|(start, end)| {
                let number = |text| usize::from_str_radix(text, 16).ok();
                Some(number(start)?..number(end)?)
            });
            is_it = range.map_or(is_it, |range| range.contains(&at));
            if let (true, Some(flags)) = (is_it, line.strip_prefix("VmFlags:")) {
                return format!("{flags} ");
            }
        }
        panic!("no mapping has {at:x}");
    }

    #[test]
    fn huge_pages_hold_frames_only_and_are_not_made_of_what_was_given_back() {
        // A kernel without them refuses the advice.
        let has_any = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        let frames = (HUGE_BYTES / PAGE_BYTES) as u32;
        let mut arena = Arena::new(PAGE_BYTES);
        arena.reserve(frames - 1).expect("memory");
        assert!(!flags(arena.frame(Slot(0))).contains(" hg "), "too few");
        arena.reserve(2 * frames + 1).expect("memory");
        for slot in [0, 2 * frames - 1] {
            let is_huge = flags(arena.frame(Slot(slot))).contains(" hg ");
            assert_eq!(is_huge, has_any, "{slot}");
        }
        let beyond = flags(arena.frame(Slot(2 * frames)));
        assert!(
            !beyond.contains(" hg "),
            "its huge page would have one frame"
        );
        arena.release(Slot(7));
        arena.reserve(4 * frames).expect("memory");
        for slot in [0, 7, 2 * frames - 1, 4 * frames - 1] {
            assert!(!flags(arena.frame(Slot(slot))).contains(" hg "), "{slot}");
        }
    }
}
