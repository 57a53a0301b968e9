//! How much memory a cache may take.

use futae_trace::Size;

/// Refuses a cache that this machine's memory cannot hold, in a sentence that says what to do.
pub fn check_cache_bytes(cache_bytes: u64) -> Result<(), String> {
    let info = rustix::system::sysinfo();
    // Both fields are of the platform's word size.
    let memory_bytes = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    if cache_bytes <= memory_bytes {
        return Ok(());
    }
    Err(format!(
        "a cache of {} is more than the {} MiB of memory that this machine has; choose a smaller one",
        Size::Bytes(cache_bytes),
        memory_bytes >> 20
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_memory_is_refused() {
        assert_eq!(check_cache_bytes(1 << 20), Ok(()));
        let refused = check_cache_bytes(1 << 60).expect_err("an exbibyte");
        assert!(refused.contains("memory"), "{refused}");
    }
}
