//! The guests' disk images, one each, which all runs read.

use super::{BLOCK_BYTES, GUESTS, GuestsPlan};
use anyhow::Context;
use rustix::fs::Advice;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Images on disk.
pub struct Images {
    /// Where they are, by guest.
    pub paths: Vec<PathBuf>,
}

impl Images {
    /// Writes them. They are full of data: a hole would be read without the disk.
    pub fn make(place: &Path, plan: &GuestsPlan) -> anyhow::Result<Self> {
        let paths = (0..GUESTS).map(|number| place.join(format!("vm{number}.img")));
        let paths: Vec<PathBuf> = paths.collect();
        for (path, number) in paths.iter().zip(1..) {
            let told = || {
                let path = path.display();
                format!("{path}: cannot make the disk image (TMPDIR chooses where)")
            };
            write(path, plan.image_blocks, plan.seed ^ number << 56).with_context(told)?;
        }
        Ok(Self { paths })
    }

    /// Drops what the host's page cache holds of them.
    pub fn drop_cached(&self) -> anyhow::Result<()> {
        for path in &self.paths {
            let file = File::open(path).with_context(|| path.display().to_string())?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    }
}

/// Blocks that differ from each other.
fn write(path: &Path, blocks: u64, seed: u64) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for block in 0..blocks {
        let word = (seed ^ block).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        file.write_all(&word.to_le_bytes().repeat(BLOCK_BYTES as usize / 8))?;
    }
    // What has not been written yet could not be dropped.
    file.into_inner()?.sync_all()
}
