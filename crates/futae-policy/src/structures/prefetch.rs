//! Memory prefetches.

/// Prefetches the value at `at` into the processor's nearest cache, without waiting for it. Does
/// nothing if the index is out of range.
#[inline(always)]
pub fn prefetch<T>(values: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let place = values.as_ptr().wrapping_add(at);
        #[expect(unsafe_code, reason = "the named place for prefetching")]
        // SAFETY: a prefetch is a hint. It changes nothing except the contents of caches, and an
        // unmapped address causes no fault.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(place.cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, at);
}

#[cfg(test)]
mod tests {
    use super::prefetch;

    #[test]
    fn any_place_will_do() {
        let values = [1u32, 2, 3];
        for at in [0, 2, 3, 1 << 40, usize::MAX] {
            prefetch(&values, at);
        }
        prefetch::<u64>(&[], 0);
        assert_eq!(values, [1, 2, 3]);
    }
}
