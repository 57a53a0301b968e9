//! The frames of a cache: one per slot, returned to the kernel when the cache shrinks. Also the
//! setting that keeps the rest of the heap small.
//!
//! `unsafe` is used here only to advise the kernel to free a frame's pages and to configure the
//! allocator.

mod spare;

use crate::memory_file::MemoryFile;
use crate::{PAGE_BYTES, SetupError};
use futae_policy::Slot;
use memmap2::{Advice, MmapMut, UncheckedAdvice};

/// Bytes per mapping. A mapping costs no memory until a frame in it is used.
const SEGMENT_BYTES: usize = 64 << 20;

/// Bytes of a huge page. A TLB holds some thousand entries, which with small pages cover only a few
/// MiB. In a larger cache nearly every hit would then miss the TLB.
const HUGE_BYTES: usize = 2 << 20;

/// Allocations of at least this many bytes get a mapping of their own, which is returned to the
/// kernel when they are freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: i32 = 64 << 10;

/// Makes the allocator return large allocations to the kernel. By default glibc raises its mmap
/// threshold as soon as one large allocation is freed. Growing tables, and buffers freed on another
/// thread than the one that allocated them, then leave holes in every thread's heap: some percent
/// of a cache of 256 MiB.
pub fn give_long_pieces_back() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallopt takes only integers and may be called at any time by any thread.
        #[expect(unsafe_code, reason = "the named place for advice on memory")]
        let done = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES) };
        // If the call fails, the heap uses more memory; nothing else changes.
        let _ = done;
    }
}

/// The advice that the kernel got about the pages of a segment.
#[derive(Clone, Copy, Default)]
struct Pages {
    /// Bytes from the start of the segment for which huge pages were requested.
    huge_bytes: usize,
    /// Some frames were released: their pages must not be refilled with huge pages.
    are_torn: bool,
}

impl Pages {
    /// Requests huge pages where they hold only frames of the first `used_bytes` bytes, so that a
    /// small cache uses no more memory than its frames.
    fn ask_for_huge(&mut self, segment: &MmapMut, used_bytes: usize) {
        let bytes = used_bytes.min(segment.len()) / HUGE_BYTES * HUGE_BYTES;
        if bytes > self.huge_bytes && !self.are_torn {
            // A kernel without huge pages continues with small ones.
            let _ = segment.advise_range(Advice::HugePage, 0, bytes);
            self.huge_bytes = bytes;
        }
    }

    /// Called before a frame is released.
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
    /// The file that holds the frames, if they outlive the process.
    file: Option<Box<MemoryFile>>,
    /// Bytes of the first segment that had frames, if the thread's next arena takes it over.
    passed_on_bytes: Option<usize>,
}

impl Arena {
    /// Creates an arena of frames of `frame_bytes`, a multiple of the page size. Frames are added
    /// by [`reserve`](Self::reserve).
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
            passed_on_bytes: None,
        }
    }

    /// Takes the first segment over from an arena that ended on this thread, if there is one, and
    /// passes it on in the end. Called before [`reserve`](Self::reserve).
    pub fn take_over(&mut self) {
        self.passed_on_bytes = Some(0);
    }

    /// Creates an arena of `slots` frames in a file. The frames keep the content that the file has.
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
            passed_on_bytes: None,
        })
    }

    /// The file that holds the frames, if there is one.
    pub fn file(&self) -> Option<&MemoryFile> {
        self.file.as_deref()
    }

    /// The same file, to record what a frame holds.
    pub fn file_mut(&mut self) -> Option<&mut MemoryFile> {
        self.file.as_deref_mut()
    }

    /// Allocates memory for at most `most` of the frames below `slots` that have none, before [`reserve`](Self::reserve). Returns
    /// whether that was all.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn allocate_some(&mut self, slots: u32, most: u32) -> Result<bool, SetupError> {
        // Other memory comes with the first access.
        let file = self.file.as_mut();
        file.map_or(Ok(true), |file| file.allocate_some(slots, most))
    }

    /// Makes sure that slots below `slots` have frames.
    pub fn reserve(&mut self, slots: u32) -> Result<(), SetupError> {
        if let Some(file) = &mut self.file {
            return file.reserve(slots, &mut self.segments);
        }
        let wanted = (slots as usize).div_ceil(self.frames_per_segment);
        let bytes = self.frames_per_segment * self.frame_bytes;
        while self.segments.len() < wanted {
            let spare = match self.passed_on_bytes {
                Some(_) if self.segments.is_empty() => spare::take(bytes),
                _ => None,
            };
            let segment = spare.map_or_else(|| MmapMut::map_anon(bytes), Ok);
            let segment = segment.map_err(|source| SetupError::Memory {
                bytes: u64::from(slots) * self.frame_bytes as u64,
                source,
            })?;
            self.segments.push(segment);
        }
        if let Some(most) = &mut self.passed_on_bytes {
            *most = (slots as usize * self.frame_bytes).min(bytes).max(*most);
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

    /// The frame of `slot`, for writing. Its entry in the memory file is opened: the next process
    /// does not trust its content.
    #[inline]
    pub fn frame_mut(&mut self, slot: Slot) -> &mut [u8] {
        self.unseal(slot);
        let (segment, at) = self.place(slot);
        &mut self.segments[segment][at..at + self.frame_bytes]
    }

    /// Opens the entry of a frame in the memory file: the next process does not trust its content.
    #[inline]
    pub fn unseal(&self, slot: Slot) {
        if let Some(file) = &self.file {
            file.unseal(slot);
        }
    }

    /// Makes sure that released frames have memory again, before they are used.
    ///
    /// # Errors
    ///
    /// There is not enough memory. All of them are as before.
    pub fn fill(&self, slots: &[Slot]) -> Result<(), SetupError> {
        // Other memory comes with the first access.
        self.file.as_ref().map_or(Ok(()), |file| file.fill(slots))
    }

    /// Returns the memory of frames from `from` on to the kernel, of at most `most` of them; none was ever used. Returns
    /// whether that was all.
    pub fn release_unused(&mut self, from: u32, most: u32) -> bool {
        let file = self.file.as_mut();
        file.is_none_or(|file| file.release_unused(from, most))
    }

    /// Returns the memory of an unused frame to the kernel. The frame reads as zeroes when it is
    /// used again. In a file, [`fill`](Self::fill) comes first.
    pub fn release(&mut self, slot: Slot) {
        if let Some(file) = &self.file {
            file.unseal(slot);
            return file.release(slot);
        }
        if self
            .passed_on_bytes
            .is_some_and(|most| most <= spare::BYTES_MAX)
        {
            return self.frame_mut(slot).fill(0);
        }
        let (segment, at) = self.place(slot);
        self.pages[segment].tear(&self.segments[segment]);
        // SAFETY: the range lies within this private anonymous mapping and consists of whole pages
        // (`new` checks the frame size). `&mut self` proves that no slice into it is alive.
        #[expect(unsafe_code, reason = "the named place for giving frames back")]
        let advised = unsafe {
            self.segments[segment].unchecked_advise_range(
                UncheckedAdvice::DontNeed,
                at,
                self.frame_bytes,
            )
        };
        // If the advice fails, the frame keeps its memory; no data is lost.
        drop(advised);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if let Some(used_bytes) = self.passed_on_bytes
            && self.segments.len() == 1
            && let Some(segment) = self.segments.pop()
        {
            spare::keep(segment, used_bytes);
        }
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

    /// The kernel's flags of the mapping that contains these bytes.
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
        // A kernel without huge pages refuses the advice.
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

    #[test]
    fn a_segment_that_is_passed_on_is_zeroes() {
        let arena = |slots| {
            let mut arena = Arena::new(PAGE_BYTES);
            arena.take_over();
            arena.reserve(slots).expect("memory");
            arena
        };
        let (mut first, mut other) = (arena(3), arena(1));
        let places = [first.frame(Slot(0)).as_ptr(), other.frame(Slot(0)).as_ptr()];
        first.reserve(9).expect("memory");
        for slot in 0..9 {
            first.frame_mut(Slot(slot)).fill(7);
        }
        first.release(Slot(4));
        let is_zero = |arena: &Arena, slot| arena.frame(Slot(slot)).iter().all(|&byte| byte == 0);
        assert!(is_zero(&first, 4) && !is_zero(&first, 5));
        other.frame_mut(Slot(0)).fill(8);
        drop((first, other));
        let (first, other) = (arena(9), arena(9));
        for again in [&first, &other] {
            assert!(
                places.contains(&again.frame(Slot(0)).as_ptr()),
                "it is the same memory"
            );
            assert!((0..9).all(|slot| is_zero(again, slot)));
        }
        let frames = (spare::BYTES_MAX / PAGE_BYTES) as u32;
        let mut many = arena(frames + 1);
        many.frame_mut(Slot(frames)).fill(9);
        drop((first, many));
        let next = [arena(frames + 1), arena(frames + 1)];
        assert!(next.iter().all(|next| is_zero(next, frames)));
    }
}
