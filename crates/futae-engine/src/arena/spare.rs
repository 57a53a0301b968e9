//! The memory of an arena that has ended, for the next one of its thread. To map memory anew, and to have the kernel fill its pages,
//! takes longer than to zero what a small arena has used.

use memmap2::MmapMut;
use std::cell::Cell;

/// The largest number of used bytes of a segment that is kept. More is given back to the kernel, which zeroes pages only if they are
/// used again.
pub const BYTES_MAX: usize = 256 << 10;

thread_local! {
    /// Of a thread that has two caches at once, one above the other, two are kept.
    static SPARES: [Cell<Option<MmapMut>>; 2] = const { [Cell::new(None), Cell::new(None)] };
}

/// A segment of `bytes` zeroes that an arena of this thread has left.
pub fn take(bytes: usize) -> Option<MmapMut> {
    let found = SPARES.try_with(|spares| spares.iter().find_map(Cell::take));
    found.ok().flatten().filter(|spare| spare.len() == bytes)
}

/// Keeps a segment for the next arena, if that had frames only in its first `used_bytes`, and these are few.
pub fn keep(mut segment: MmapMut, used_bytes: usize) {
    if used_bytes > BYTES_MAX {
        return;
    }
    segment[..used_bytes].fill(0);
    // While a thread ends, its variables may be gone: the segment is then unmapped.
    let _ = SPARES.try_with(|spares| {
        let free = spares.iter().find(|spare| {
            let segment = spare.take();
            let is_free = segment.is_none();
            spare.set(segment);
            is_free
        });
        if let Some(free) = free {
            free.set(Some(segment));
        }
    });
}
