//! Buffers for direct I/O: whole pages, aligned to a page.

mod mapped;

use bytemuck::{Pod, Zeroable};
use mapped::Mapped;
use std::cell::RefCell;
use std::fmt;

/// Bytes per page, the alignment of every buffer and frame.
pub const PAGE_BYTES: usize = 4096;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// A page-aligned buffer, unless it was made by [`packed`](IoBuf::packed).
pub struct IoBuf {
    memory: Memory,
    length: usize,
}

/// How the buffer is allocated.
enum Memory {
    /// On the heap.
    Pages(Box<[Page]>),
    /// In a mapping of its own: long buffers would fragment the heap.
    Mapped(Mapped),
    /// On the heap, and not aligned: the heap puts aligned pages two pages apart.
    Packed(Box<[u8]>),
}

/// The byte that fills new buffers in builds with debug assertions.
pub const POISON: u8 = 0xDB;

/// The largest number of single pages that a thread keeps for reuse.
const SPARE_PAGES_MAX: usize = 128;
/// The largest number of longer buffers that a thread keeps for reuse, and their largest size in
/// pages; longer ones are mapped. A reused buffer is not zeroed before it is filled. All kept
/// buffers count as memory of the cache, a tenth of which is not much.
const SPARE_LONG_MAX: usize = 8;
const SPARE_LONG_PAGES_MAX: usize = 15;

/// Buffers dropped on this thread, kept for reuse.
struct Spares {
    pages: Vec<Box<[Page]>>,
    long: Vec<Box<[Page]>>,
}

thread_local! {
    static SPARES: RefCell<Spares> = const {
        RefCell::new(Spares {
            pages: Vec::new(),
            long: Vec::new(),
        })
    };
}

impl Spares {
    fn take(&mut self, pages: usize) -> Option<Box<[Page]>> {
        if pages == 1 {
            return self.pages.pop();
        }
        let at = self.long.iter().rposition(|spare| spare.len() == pages)?;
        Some(self.long.swap_remove(at))
    }

    fn keep(&mut self, pages: Box<[Page]>) {
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
    /// A buffer of `length` bytes with any content.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let pages = length.div_ceil(PAGE_BYTES);
        if (1..=SPARE_LONG_PAGES_MAX).contains(&pages) {
            let spare = SPARES.try_with(|spares| spares.borrow_mut().take(pages));
            if let Some(pages) = spare.ok().flatten() {
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

    fn on_heap(length: usize) -> Self {
        let pages = length.div_ceil(PAGE_BYTES);
        let memory = Memory::Pages(bytemuck::zeroed_slice_box(pages));
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
            Memory::Pages(pages) => &bytemuck::cast_slice(pages)[..self.length],
            Memory::Mapped(mapped) => &mapped.bytes()[..self.length],
            Memory::Packed(bytes) => &bytes[..self.length],
        }
    }

    /// The bytes, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Pages(pages) => &mut bytemuck::cast_slice_mut(pages)[..self.length],
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
        let pages = std::mem::take(pages);
        // A thread that is exiting has no spare buffers any more; the buffer is then freed.
        let _ = SPARES.try_with(|spares| spares.borrow_mut().keep(pages));
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
            assert_eq!(buffer.as_slice().as_ptr() as usize % PAGE_BYTES, 0);
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
    fn spare_buffers_are_used_again_by_length_and_never_as_zeroed_ones() {
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
            assert!(
                IoBuf::zeroed(length)
                    .as_slice()
                    .iter()
                    .all(|&byte| byte == 0)
            );
        }
        SPARES.with_borrow(|spares| {
            assert!(spares.pages.len() <= SPARE_PAGES_MAX && spares.long.len() <= SPARE_LONG_MAX);
            assert!(
                spares
                    .long
                    .iter()
                    .all(|spare| spare.len() <= SPARE_LONG_PAGES_MAX)
            );
            // The earlier lengths have not crowded out the last one.
            assert!(spares.long.iter().any(|spare| spare.len() == 15));
        });
    }
}
