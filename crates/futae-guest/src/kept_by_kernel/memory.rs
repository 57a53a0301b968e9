//! The memory that is needed beside the pages: a mount takes as much as its cache was said to be, and a tenth. Tables, buffers of
//! requests, copies of dirty blocks, and pages that wait to be given up are measured, and the cache is made smaller by what is more.

use super::KernelKeeper;
use futae_engine::Engine;
use futae_page_cache::PAGE_BYTES;
use std::fs;
use std::sync::Arc;

/// What may be beside the cache: this share of it (one in this many).
const BESIDE_SHARE: u64 = 10;
/// Less this share of it, for what comes before the next look.
const SPARE_SHARE: u64 = 64;
/// What is taken from the pages is at most this share of them.
const ASIDE_SHARE: u64 = 3;
/// The step in which that grows. It shrinks by one step after this many looks at which there was room for two.
const STEP_BYTES: u64 = 1 << 20;
const LOOKS: u32 = 100;
/// What this process soon has for itself when it is used.
const PRIVATE_BYTES: u64 = 8 << 20;
/// Pages that were given up and are not dropped yet.
const WAITING_BYTES: u64 = 4 << 20;
/// In a smaller cache than this, what does not depend on the cache would be more than a fifth. It has all the pages that it was said
/// to have.
const CACHE_BYTES_MIN: u64 = 64 << 20;

/// Looks at the memory now and then.
pub(super) struct Looking {
    keeper: Arc<KernelKeeper>,
    engine: Arc<Engine>,
    share: Share,
}

impl Looking {
    pub(super) fn new(keeper: Arc<KernelKeeper>, engine: Arc<Engine>) -> Self {
        Self {
            keeper,
            engine,
            share: Share::default(),
        }
    }

    /// Makes the cache smaller or larger if its memory is not what it was said to be.
    pub(super) fn look(&mut self) {
        let (watch, beside) = (&self.keeper.watch, &self.keeper.beside);
        let (before, cache) = (beside.aside_bytes(), self.engine.wanted_bytes());
        let aside = if cache < CACHE_BYTES_MIN {
            0
        } else if let Some(private) = private_bytes() {
            // What will be there soon comes faster than pages go.
            let full = self.engine.capacity_bytes() + WAITING_BYTES;
            let pages = (beside.most_pages() * PAGE_BYTES).max(full);
            let private = private.max(PRIVATE_BYTES) + self.engine.may_become_dirty_bytes();
            self.share
                .next(before, cache, pages + private + watch.bytes())
        } else {
            before
        };
        if aside != before {
            beside.set_aside(aside);
            self.engine.fit_keeper();
        }
    }
}

/// Decides how much is to be taken from the pages.
#[derive(Default)]
struct Share {
    /// Looks in which there was room for more pages.
    roomy: u32,
}

impl Share {
    /// What is to be taken from a cache of which `before` was taken, while so many bytes are in use.
    fn next(&mut self, before: u64, cache: u64, in_use: u64) -> u64 {
        let most = cache + cache / BESIDE_SHARE - cache / SPARE_SHARE;
        let steps = in_use.saturating_sub(most).div_ceil(STEP_BYTES);
        if steps > 0 {
            self.roomy = 0;
            return (before + steps * STEP_BYTES).min(cache / ASIDE_SHARE);
        }
        let has_room = in_use + 2 * STEP_BYTES <= most;
        self.roomy = if has_room { self.roomy + 1 } else { 0 };
        if self.roomy < LOOKS {
            return before;
        }
        self.roomy = 0;
        before.saturating_sub(STEP_BYTES)
    }
}

/// Memory of this process that is not of files and not shared.
fn private_bytes() -> Option<u64> {
    let sizes = fs::read_to_string("/proc/self/statm").ok()?;
    let mut sizes = sizes.split(' ').skip(1).map(str::parse);
    let (resident, shared): (u64, u64) = (sizes.next()?.ok()?, sizes.next()?.ok()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_more_than_a_tenth_is_taken_at_once_and_given_back_slowly() {
        // 640 MiB may have 694 in use.
        let (mut share, cache) = (Share::default(), 640 * MIB);
        assert_eq!(share.next(0, cache, 694 * MIB), 0);
        assert_eq!(share.next(0, cache, 694 * MIB + 1), MIB);
        assert_eq!(share.next(MIB, cache, 704 * MIB), 11 * MIB);
        assert_eq!(share.next(MIB, cache, 2000 * MIB), cache / 3);
        let wait =
            |share: &mut Share, in_use| (1..LOOKS).all(|_| share.next(MIB, cache, in_use) == MIB);
        assert!(wait(&mut share, 692 * MIB));
        assert_eq!(share.next(MIB, cache, 692 * MIB), 0);
        // Not while it would be taken again soon.
        assert!(wait(&mut share, 692 * MIB + 1));
        assert_eq!(share.next(MIB, cache, 692 * MIB + 1), MIB);
        assert!(wait(&mut share, 692 * MIB));
        assert_eq!(share.next(MIB, cache, 693 * MIB), MIB);
    }
}
