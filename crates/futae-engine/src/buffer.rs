//! Buffers that the kernel can read and write directly: whole pages, aligned to a page.

use bytemuck::{Pod, Zeroable};
use std::cell::RefCell;
use std::fmt;

/// Bytes in a page, the alignment of every buffer and frame.
pub const PAGE_BYTES: usize = 4096;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// Page-aligned bytes in memory of their own.
pub struct IoBuf {
    pages: Box<[Page]>,
    length: usize,
}

/// Single pages that were dropped on this thread, kept for the next one who needs a page.
const SPARE_PAGES_MAX: usize = 256;

thread_local! {
    static SPARE: RefCell<Vec<Box<[Page]>>> = const { RefCell::new(Vec::new()) };
}

impl IoBuf {
    /// A buffer of `length` bytes with any content.
    #[must_use]
    pub fn new(length: usize) -> Self {
        if length > 0 && length <= PAGE_BYTES {
            let spare = SPARE
                .try_with(|spare| spare.borrow_mut().pop())
                .ok()
                .flatten();
            if let Some(pages) = spare {
                return Self { pages, length };
            }
        }
        Self::zeroed(length)
    }

    /// A buffer of `length` zero bytes.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        Self {
            pages: bytemuck::zeroed_slice_box(length.div_ceil(PAGE_BYTES)),
            length,
        }
    }

    /// A buffer with a copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::new(bytes.len());
        buffer.as_mut_slice().copy_from_slice(bytes);
        buffer
    }

    /// Bytes in the buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.pages)[..self.length]
    }

    /// The bytes, to write to.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.pages)[..self.length]
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        if self.pages.len() != 1 {
            return;
        }
        let pages = std::mem::take(&mut self.pages);
        // A thread that is ending has no spares any more; the page is simply freed then.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_PAGES_MAX {
                spare.push(pages);
            }
        });
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
}
