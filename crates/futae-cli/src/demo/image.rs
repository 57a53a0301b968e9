//! The disk image: every block says which one it is, so that every read can be checked.

use crate::demo::DemoPlan;
use anyhow::Context;
use futae_terminal::failure::Failure;
use std::fs::File;
use std::io::Write;
use std::path::Path;

const CHUNK_BLOCKS: u64 = 1024;

/// Writes the image and brings it onto the disk. `progress` gets the fraction done and says
/// whether to go on.
pub fn make(
    path: &Path,
    plan: &DemoPlan,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<(), Failure> {
    let context = || {
        format!(
            "{}: cannot make the disk image (TMPDIR chooses where)",
            path.display()
        )
    };
    let mut file = File::create(path).with_context(context)?;
    let block_bytes = plan.block_bytes as usize;
    let mut chunk = vec![0u8; CHUNK_BLOCKS as usize * block_bytes];
    for first in (0..plan.image_blocks).step_by(CHUNK_BLOCKS as usize) {
        let blocks = CHUNK_BLOCKS.min(plan.image_blocks - first);
        for (number, block) in (first..first + blocks).zip(chunk.chunks_exact_mut(block_bytes)) {
            fill(number, block);
        }
        file.write_all(&chunk[..blocks as usize * block_bytes])
            .with_context(context)?;
        if !progress((first + blocks) as f64 / plan.image_blocks as f64) {
            return Err(anyhow::anyhow!("interrupted").into());
        }
    }
    file.sync_all().with_context(context)?;
    // The page cache must not answer for the disk. Only advice: direct I/O passes it by anyway.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    Ok(())
}

fn fill(number: u64, block: &mut [u8]) {
    for (word, at) in block.chunks_exact_mut(8).zip(0u64..) {
        word.copy_from_slice(&word_of(number, at).to_le_bytes());
    }
}

fn word_of(number: u64, at: u64) -> u64 {
    number << 16 | at & 0xFFFF
}

/// Whether `bytes` are block `number` of the image.
pub fn is_block(number: u64, bytes: &[u8]) -> bool {
    let words = bytes.chunks_exact(8).zip(0u64..);
    words
        .into_iter()
        .all(|(word, at)| word == word_of(number, at).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_apart() {
        let mut block = vec![0; 4096];
        fill(7, &mut block);
        assert!(is_block(7, &block) && !is_block(8, &block));
        block[4095] ^= 1;
        assert!(!is_block(7, &block));
    }
}
