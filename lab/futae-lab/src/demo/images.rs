//! The guests' disk images, one each, which all runs read.

use super::plan::{BLOCK_BYTES, GUESTS, GuestsPlan};
use crate::live::process::{futae, run_json};
use anyhow::{Context, anyhow, ensure};
use rustix::fs::Advice;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file that is read, on an image with a file system.
pub const FILE: &str = "data";
/// Blocks of a file system beside its file's: one for this many of them, and this many more.
const OTHER_SHARE: u64 = 32;
const OTHER_BLOCKS: u64 = 8192;

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
            let seed = plan.seed ^ number << 56;
            let made = match plan.files {
                true => make_file_system(path, plan, seed),
                false => write(path, plan, seed),
            };
            made.with_context(|| {
                let path = path.display();
                format!("{path}: cannot make the disk image (TMPDIR chooses where)")
            })?;
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

/// An image that is ext4 with one file of this many blocks.
fn make_file_system(path: &Path, plan: &GuestsPlan, seed: u64) -> anyhow::Result<()> {
    let content = path.with_extension("files");
    fs::create_dir(&content)?;
    write(&content.join(FILE), plan, seed)?;
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-F", "-b", "4096", "-m", "0", "-d"]);
    let all = plan.image_blocks + plan.image_blocks / OTHER_SHARE + OTHER_BLOCKS;
    make.arg(&content).arg(path).arg(all.to_string());
    let made = make.output();
    let made = made.context("mkfs.ext4, for --files (Debian: e2fsprogs), cannot be started")?;
    let said = String::from_utf8_lossy(&made.stderr);
    ensure!(made.status.success(), "mkfs.ext4: {}", said.trim());
    fs::remove_dir_all(&content)?;
    // What has not been written yet could not be dropped.
    Ok(File::open(path)?.sync_all()?)
}

/// Blocks that differ from each other.
fn write(path: &Path, plan: &GuestsPlan, seed: u64) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for block in 0..plan.image_blocks {
        let word = (seed ^ block).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        file.write_all(&word.to_le_bytes().repeat(BLOCK_BYTES as usize / 8))?;
    }
    // What has not been written yet could not be dropped.
    file.into_inner()?.sync_all()?;
    if plan.writes > 0.0 {
        // `futae load` writes only over what begins as its own data does.
        let mut load = futae(["load", "--overwrite", "--operations", "1", "--json"])?;
        load.args(["--file-size", &BLOCK_BYTES.to_string()])
            .arg(path);
        run_json("futae load", load).map_err(|failure| anyhow!("{failure}"))?;
    }
    Ok(())
}
