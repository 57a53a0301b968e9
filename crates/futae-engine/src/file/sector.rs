//! Rejects devices that do not allow I/O in pages.

use crate::PAGE_BYTES;
use rustix::fs::{FileType, ioctl_blksszget};
use std::os::fd::AsFd;

/// Returns an error sentence for a device that does not accept I/O of single pages, or whose last
/// block is partial.
pub fn check(file: impl AsFd, kind: FileType, size_bytes: u64) -> Result<(), String> {
    if kind != FileType::BlockDevice {
        return Ok(());
    }
    match ioctl_blksszget(file) {
        Ok(bytes) => check_sizes(u64::from(bytes), size_bytes),
        // A device without this attribute has sectors of 512 bytes.
        Err(_) => Ok(()),
    }
}

fn check_sizes(block_bytes: u64, size_bytes: u64) -> Result<(), String> {
    if block_bytes > PAGE_BYTES as u64 {
        return Err(format!(
            "has logical blocks of {block_bytes} bytes, and only such of up to {PAGE_BYTES} can be used; put a file system \
             on it and an image into that"
        ));
    }
    if block_bytes == 0 || !size_bytes.is_multiple_of(block_bytes) {
        let whole = size_bytes - size_bytes % block_bytes.max(1);
        return Err(format!(
            "has {size_bytes} bytes, which are not whole logical blocks of {block_bytes} bytes, so its end cannot be \
             written; make it {whole} bytes long"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_of_whole_blocks_up_to_a_page_is_taken() {
        for (block, size) in [(512, 512 * 9), (4096, 4096 * 9), (512, 4096 * 9)] {
            assert_eq!(check_sizes(block, size), Ok(()));
        }
        let odd = check_sizes(4096, 4096 * 9 + 512).expect_err("refused");
        assert!(odd.contains("make it 36864 bytes long"), "{odd}");
        let large = check_sizes(16384, 16384).expect_err("refused");
        assert!(large.contains("16384 bytes"), "{large}");
        assert!(check_sizes(0, 512).is_err());
    }
}
