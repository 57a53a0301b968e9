//! `--residency`: where the blocks of a mount are held.

use futae_engine::{Engine, WriteBackOptions};

/// How much of the cache may be dirty where the kernel holds the pages: this process holds dirty data, too, beside them.
const KERNEL_DIRTY_MAX: f64 = 0.05;

/// `--residency`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Residency {
    /// In the memory of this process.
    #[default]
    Futae,
    /// In the kernel's page cache of the mount.
    Kernel,
}

/// `--hit-order`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HitOrder {
    /// Only policies that do not need it.
    #[default]
    Exact,
    /// Hits between two misses are taken as evenly spread.
    Approximate,
}

impl HitOrder {
    /// Tells the cache.
    pub fn set(self, engine: &Engine) {
        if self == Self::Approximate {
            engine.approximate_hit_order();
        }
    }
}

impl Residency {
    /// That of a cache.
    pub fn of(engine: &Engine) -> Self {
        if engine.is_kept_elsewhere() {
            Self::Kernel
        } else {
            Self::Futae
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Futae => "futae",
            Self::Kernel => "kernel",
        }
    }

    /// How written blocks are kept where nothing else is said.
    pub fn write_back(self) -> WriteBackOptions {
        let mut options = WriteBackOptions::default();
        if self == Self::Kernel {
            options.dirty_max = KERNEL_DIRTY_MAX;
        }
        options
    }
}
