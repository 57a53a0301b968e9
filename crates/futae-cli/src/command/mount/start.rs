//! Makes the mount with the residency that was asked for.

use super::residency::Residency;
use futae_engine::{Engine, OnEviction, OnRefusal, Verification};
use futae_guest::{Mount, MountError, MountOptions, ShownFile, TreeMount, TreeOptions, Watch};
use futae_terminal::failure::Failure;
use futae_units::Size;
use std::sync::Arc;
use tracing::warn;

/// What watching the page cache may take: this share of the cache.
const WATCH_SHARE: u64 = 16;

/// The hashes of evicted pages that may be demoted: for each page of the cache and half as many more, that is 32 bytes for these bytes.
const HASHED_BYTES: u64 = 4096;
const HASH_BYTES: u64 = 32;
const HASH_BYTES_MIN: u64 = 64 << 10;

impl Residency {
    /// Makes the mount; with the residency that it has. Where the kernel's page cache cannot be watched it is the ordinary one.
    pub fn start(
        self,
        engine: &Arc<Engine>,
        shown: &[ShownFile],
        options: &MountOptions,
        on_eviction: OnEviction,
    ) -> Result<(Mount, Self), Failure> {
        let mut pages = None;
        if self == Self::Kernel {
            check_memory(engine, shown)?;
            match watch(engine, shown, on_eviction)? {
                Ok(watch) => pages = Some(watch),
                Err(why) => warn_of_absence(&why),
            }
        }
        let residency = pages.as_ref().map_or(Self::Futae, |_| Self::Kernel);
        let mount = match pages {
            Some(pages) => Mount::start_kept_by_kernel(pages, engine, shown, options),
            None => Mount::start(engine, shown, options),
        };
        Ok((mount.map_err(failure)?, residency))
    }

    /// The same for a tree.
    pub fn start_tree(
        self,
        engine: &Arc<Engine>,
        options: &TreeOptions,
    ) -> Result<TreeMount, MountError> {
        let engine = Arc::clone(engine);
        if self == Self::Kernel {
            match TreeMount::watch(&engine) {
                Ok(watch) => return TreeMount::start_kept_by_kernel(watch, engine, options),
                Err(why) => warn_of_absence(&why),
            }
        }
        TreeMount::start(engine, options)
    }
}

/// Watches the pages of volumes; where evicted ones are demoted, with what they hold.
fn watch(
    engine: &Arc<Engine>,
    shown: &[ShownFile],
    on_eviction: OnEviction,
) -> Result<Result<Watch, String>, Failure> {
    if on_eviction != OnEviction::Demote {
        return Ok(Mount::watch(engine, shown));
    }
    match Mount::watch_copying(engine, shown) {
        Ok(watch) => {
            // What has left is demoted only if it is what the store was last known to hold.
            let memory_bytes = engine.wanted_bytes() / HASHED_BYTES * HASH_BYTES;
            engine.verify_demotions(Verification {
                memory_bytes: memory_bytes.max(HASH_BYTES_MIN),
                on_refusal: OnRefusal::Drop,
                compare_with_store: false,
            })?;
            Ok(Ok(watch))
        }
        Err(why) => {
            let watch = Mount::watch(engine, shown);
            if watch.is_ok() {
                warn!(
                    "--residency kernel: evicted pages cannot be copied: {why}; the cache below gets their names, without data"
                );
                engine.demote_by_notice();
            }
            Ok(watch)
        }
    }
}

fn warn_of_absence(why: &str) {
    warn!(
        "--residency kernel: the page cache cannot be watched: {why}; this process holds the blocks, as with --residency futae"
    );
}

/// Marks are kept for every page of the volumes, cached or not.
fn check_memory(engine: &Engine, shown: &[ShownFile]) -> Result<(), Failure> {
    let (marks, cache) = (Mount::watch_bytes(engine, shown), engine.wanted_bytes());
    if marks <= cache / WATCH_SHARE {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--residency kernel: the marks of the pages of these volumes take {}, more than a {WATCH_SHARE}th of --cache {}; give it at \
         least {}, or leave out --residency kernel",
        Size::Bytes(marks),
        Size::Bytes(cache),
        Size::Bytes((marks * WATCH_SHARE).next_multiple_of(1 << 20))
    )))
}

/// What was wrong with the command, or went wrong.
fn failure(error: MountError) -> Failure {
    match error {
        MountError::Name { .. } | MountError::NameTwice { .. } => Failure::usage(error),
        other => other.into(),
    }
}
