//! What is chosen for a guest whose page cache is counted: how the cache is ordered and bounded, what its disk has, and how much
//! is read.

use anyhow::Context;
use clap::ValueEnum;
use futae_terminal::failure::Failure;
use std::path::Path;
use std::process::Command;

/// A page of the cache, and a read of the load.
pub const PAGE: u64 = 4096;

/// More reads than these would take a guest years.
const READS_MAX: u64 = 1_000_000_000_000;

/// How much is read, and what.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Reads {
    /// Reads before counting begins
    #[arg(long, value_name = "READS", default_value_t = 40_000, value_parser = clap::value_parser!(u64).range(..=READS_MAX))]
    pub warmup: u64,
    /// Reads that are counted
    #[arg(long, value_name = "READS", default_value_t = 40_000, value_parser = clap::value_parser!(u64).range(1..=READS_MAX))]
    pub reads: u64,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The kernel's ways to order a page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Lists {
    Default,
    Two,
    Generations,
}

/// What a page cache cannot grow beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bound {
    Group,
    Memory,
}

/// File systems of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FileSystem {
    Ext4,
    Xfs,
}

impl FileSystem {
    /// The name of its kernel module, and of its type at a mount.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// The package of what makes one.
    fn package(self) -> &'static str {
        match self {
            Self::Ext4 => "e2fsprogs",
            Self::Xfs => "xfsprogs",
        }
    }

    /// Makes one in an image.
    pub fn make(self, image: &Path) -> Result<(), Failure> {
        let program = format!("mkfs.{}", self.name());
        let mut make = Command::new(&program);
        let made = make.arg(image).output();
        let made = made
            .with_context(|| format!("{program} cannot be started (Debian: {})", self.package()))?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(anyhow::anyhow!("{program}: {said}").into());
        }
        Ok(())
    }
}
