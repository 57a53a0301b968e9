//! Asking for memory before it is needed.

/// Has the processor bring the value at `at` into its nearest cache, without waiting for it. If there is no such place,
/// nothing is done.
#[inline(always)]
pub fn prefetch<T>(values: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let place = values.as_ptr().wrapping_add(at);
        #[expect(unsafe_code, reason = "the named place for prefetching")]
        // SAFETY: a prefetch is a hint. It changes nothing but what is in caches, and an address that is not mapped is
        // no fault.
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
