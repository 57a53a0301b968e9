//! Buffers for direct I/O: whole pages, aligned to a page.

mod mapped;

use bytemuck::{Pod, Zeroable};
use mapped::Mapped;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Bytes per page, the alignment of every buffer and frame.
pub const PAGE_BYTES: usize = 4096;

/// What the heap aligns by itself.
const HEAP_ALIGNMENT: usize = 16;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(16))]
struct Piece([u8; HEAP_ALIGNMENT]);

/// Whole pages on the heap, aligned within an allocation that is one page longer. glibc's own alignment takes as much memory, but the
/// place that an aligned buffer leaves is too short for another one, so the heap would grow.
struct Pages(Box<[Piece]>);

impl Pages {
    fn zeroed(pages: usize) -> Self {
        // With the heap's own header, that is whole pages.
        let bytes = match pages {
            0 => 0,
            pages => (pages + 1) * PAGE_BYTES - HEAP_ALIGNMENT,
        };
        Self(bytemuck::zeroed_slice_box(bytes / HEAP_ALIGNMENT))
    }

    /// Number of pages.
    fn len(&self) -> usize {
        (self.0.len() * HEAP_ALIGNMENT) / PAGE_BYTES
    }

    fn range(&self) -> Range<usize> {
        let pieces = self.len() * (PAGE_BYTES / HEAP_ALIGNMENT);
        let begin = match pieces {
            0 => 0,
            _ => self.0.as_ptr().align_offset(PAGE_BYTES),
        };
        begin..begin + pieces
    }

    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0[self.range()])
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let range = self.range();
        bytemuck::cast_slice_mut(&mut self.0[range])
    }
}

/// A page-aligned buffer, unless it was made by [`packed`](IoBuf::packed).
pub struct IoBuf {
    memory: Memory,
    length: usize,
}

/// How the buffer is allocated.
enum Memory {
    /// On the heap.
    Pages(Pages),
    /// In a mapping of its own: long buffers would fragment the heap.
    Mapped(Mapped),
    /// On the heap, and not aligned.
    Packed(Box<[u8]>),
}

/// The byte that fills new buffers in builds with debug assertions.
pub const POISON: u8 = 0xDB;

/// The largest number of single pages that a shelf keeps for reuse.
const SPARE_PAGES_MAX: usize = 128;
/// The largest number of longer buffers that a shelf keeps for reuse, and their largest size in
/// pages; longer ones are mapped. A reused buffer is not zeroed before it is filled. All kept
/// buffers count as memory of the cache, a tenth of which is not much.
const SPARE_LONG_MAX: usize = 8;
const SPARE_LONG_PAGES_MAX: usize = 15;
/// Threads share a few shelves: what is kept does not grow with the number of clients, each of which has a thread.
const SHELVES: usize = 8;

/// Buffers that were dropped, kept for reuse. Shelves share no line of a processor's cache.
#[repr(align(128))]
struct Spares {
    pages: Vec<Pages>,
    long: Vec<Pages>,
}

static SPARES: [Mutex<Spares>; SHELVES] = [const { Mutex::new(Spares::none()) }; SHELVES];

/// The spare buffers on this thread's shelf. None while another thread uses the shelf: to allocate a buffer takes less
/// time than to wait.
fn spares() -> Option<MutexGuard<'static, Spares>> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHELF: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHELVES;
    }
    SPARES[SHELF.with(|shelf| *shelf)].try_lock().ok()
}

impl Spares {
    const fn none() -> Self {
        Self {
            pages: Vec::new(),
            long: Vec::new(),
        }
    }

    fn take(&mut self, pages: usize) -> Option<Pages> {
        if pages == 1 {
            return self.pages.pop();
        }
        let at = self.long.iter().rposition(|spare| spare.len() == pages)?;
        Some(self.long.swap_remove(at))
    }

    fn keep(&mut self, pages: Pages) {
        let (spares, most) = match pages.len() {
            1 => (&mut self.pages, SPARE_PAGES_MAX),
            2..=SPARE_LONG_PAGES_MAX => (&mut self.long, SPARE_LONG_MAX),
            _ => return,
        };
        if spares.len() < most {
            spares.push(pages);
        } else if pages.len() > 1 {
            // Otherwise buffers of lengths that are no longer used would stay for ever.
            spares[0] = pages;
        }
    }
}

impl IoBuf {
    /// Bytes of memory that a buffer of `length` bytes takes, unless it is a packed one: whole pages, and on the heap one
    /// page more, to align them.
    #[must_use]
    pub const fn memory_bytes(length: u64) -> u64 {
        let pages = length.div_ceil(PAGE_BYTES as u64);
        (pages + Self::is_on_heap(length) as u64) * PAGE_BYTES as u64
    }

    /// Whether a buffer of `length` bytes is on the heap, and has all of its memory at once.
    #[must_use]
    pub const fn is_on_heap(length: u64) -> bool {
        0 < length && length <= (SPARE_LONG_PAGES_MAX * PAGE_BYTES) as u64
    }

    /// A buffer of `length` bytes with any content.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let pages = length.div_ceil(PAGE_BYTES);
        if (1..=SPARE_LONG_PAGES_MAX).contains(&pages) {
            if let Some(pages) = spares().and_then(|mut spares| spares.take(pages)) {
                let memory = Memory::Pages(pages);
                return Self { memory, length }.poisoned();
            }
        } else if pages > 0
            && let Some(mapped) = Mapped::new(pages * PAGE_BYTES)
        {
            let memory = Memory::Mapped(mapped);
            return Self { memory, length }.poisoned();
        }
        Self::on_heap(length).poisoned()
    }

    /// In builds with debug assertions, fills the buffer with a byte that no test expects. A test
    /// then fails if code returns bytes of a new buffer that were never written. In other builds,
    /// does nothing.
    fn poisoned(mut self) -> Self {
        if cfg!(debug_assertions) {
            self.as_mut_slice().fill(POISON);
        }
        self
    }

    /// A buffer of `length` zero bytes.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        let pages = length.div_ceil(PAGE_BYTES);
        if pages > SPARE_LONG_PAGES_MAX
            && let Some(mapped) = Mapped::zeroed(pages * PAGE_BYTES)
        {
            let memory = Memory::Mapped(mapped);
            return Self { memory, length };
        }
        Self::on_heap(length)
    }

    /// A buffer of `length` zero bytes that takes no more memory than that. It is not aligned, so it is no buffer for direct I/O: for
    /// data that stays for long, and is copied out of it.
    #[must_use]
    pub fn packed(length: usize) -> Self {
        let memory = Memory::Packed(bytemuck::zeroed_slice_box(length));
        Self { memory, length }
    }

    /// A packed buffer with a copy of `bytes`.
    #[must_use]
    pub fn packed_copy_of(bytes: &[u8]) -> Self {
        Self {
            memory: Memory::Packed(bytes.into()),
            length: bytes.len(),
        }
    }

    fn on_heap(length: usize) -> Self {
        let pages = length.div_ceil(PAGE_BYTES);
        let memory = Memory::Pages(Pages::zeroed(pages));
        Self { memory, length }
    }

    /// A buffer with a copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::new(bytes.len());
        buffer.as_mut_slice().copy_from_slice(bytes);
        buffer
    }

    /// Sets the visible length, limited to the allocated memory. The bytes keep their previous
    /// content.
    pub fn show(&mut self, length: usize) {
        let memory = match &self.memory {
            Memory::Pages(pages) => pages.len() * PAGE_BYTES,
            Memory::Mapped(mapped) => mapped.bytes().len(),
            Memory::Packed(bytes) => bytes.len(),
        };
        self.length = length.min(memory);
    }

    /// Bytes in the buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.memory {
            Memory::Pages(pages) => &pages.bytes()[..self.length],
            Memory::Mapped(mapped) => &mapped.bytes()[..self.length],
            Memory::Packed(bytes) => &bytes[..self.length],
        }
    }

    /// The bytes, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Pages(pages) => &mut pages.bytes_mut()[..self.length],
            Memory::Mapped(mapped) => &mut mapped.bytes_mut()[..self.length],
            Memory::Packed(bytes) => &mut bytes[..self.length],
        }
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        let Memory::Pages(pages) = &mut self.memory else {
            return;
        };
        if !(1..=SPARE_LONG_PAGES_MAX).contains(&pages.len()) {
            return;
        }
        if let Some(mut spares) = spares() {
            spares.keep(std::mem::replace(pages, Pages::zeroed(0)));
        }
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_page_aligned_and_of_their_length() {
        for length in [0usize, 1, 511, 4096, 4097, 1 << 20] {
            let mut buffer = IoBuf::new(length);
            assert_eq!(buffer.len(), length);
            let place = buffer.as_slice().as_ptr() as usize;
            assert!(length == 0 || place.is_multiple_of(PAGE_BYTES));
            buffer.as_mut_slice().fill(0xA5);
            assert!(buffer.as_slice().iter().all(|&byte| byte == 0xA5));
        }
        assert!(IoBuf::zeroed(100).as_slice().iter().all(|&byte| byte == 0));
    }

    #[test]
    fn packed_buffers_are_zeroed_and_of_their_length() {
        let mut buffer = IoBuf::packed(5000);
        assert!(buffer.len() == 5000 && buffer.as_slice().iter().all(|&byte| byte == 0));
        buffer.as_mut_slice().fill(0xA5);
        buffer.show(1 << 20);
        assert_eq!(buffer.as_slice(), [0xA5; 5000]);
    }

    #[test]
    fn new_buffers_hold_what_no_test_expects_and_nothing_of_earlier_ones() {
        for length in [1usize, 4096, 60 << 10, 1 << 20] {
            let mut used = IoBuf::new(length);
            used.as_mut_slice().fill(0x5A);
            drop(used);
            assert!(
                IoBuf::new(length)
                    .as_slice()
                    .iter()
                    .all(|&byte| byte == POISON)
            );
        }
    }

    #[test]
    fn long_buffers_are_used_again_and_never_as_zeroed_ones() {
        for length in [200 << 10, 1 << 20, (1 << 20) + 1, 9 << 20] {
            let mut used = IoBuf::new(length);
            used.as_mut_slice().fill(0x5A);
            drop(used);
            let again = IoBuf::new(length);
            assert_eq!(again.len(), length);
            drop(again);
            let zeroed = IoBuf::zeroed(length);
            assert!(zeroed.as_slice().iter().all(|&byte| byte == 0));
        }
        let many: Vec<_> = (0..64).map(|_| IoBuf::new(1 << 20)).collect();
        drop(many);
        assert!(mapped::spare_bytes() <= mapped::SPARE_BYTES_MAX);
    }

    #[test]
    fn spare_buffers_are_used_again_by_length() {
        let mut spares = Spares::none();
        for length in [1usize, 4096, 8192, 60 << 10, 132 << 10] {
            let pages = length.div_ceil(PAGE_BYTES);
            for _ in 0..200 {
                spares.keep(Pages::zeroed(pages));
            }
            let again = spares.take(pages);
            assert_eq!(again.is_some(), pages <= SPARE_LONG_PAGES_MAX, "{length}");
            again.into_iter().for_each(|pages| spares.keep(pages));
        }
        assert!(spares.pages.len() <= SPARE_PAGES_MAX && spares.long.len() <= SPARE_LONG_MAX);
        // The earlier lengths have not crowded out the last one.
        assert!(spares.long.iter().any(|spare| spare.len() == 15));
    }

    #[test]
    fn spare_buffers_are_never_zeroed_ones() {
        for length in [1usize, 4096, 8192, 60 << 10, 132 << 10] {
            let used: Vec<IoBuf> = (0..40)
                .map(|_| {
                    let mut buffer = IoBuf::new(length);
                    buffer.as_mut_slice().fill(0x5A);
                    buffer
                })
                .collect();
            drop(used);
            assert_eq!(IoBuf::new(length).len(), length);
            let zeroed = IoBuf::zeroed(length);
            assert!(zeroed.as_slice().iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn a_buffer_takes_the_memory_that_is_said() {
        let lengths = [0, 1, 4096, 4097, 60 << 10, (60 << 10) + 1, 32 << 20];
        let taken = lengths.map(|length| IoBuf::memory_bytes(length) >> 10);
        assert_eq!(taken, [0, 8, 8, 12, 64, 64, 32 << 10]);
    }
}
