//! The caches of a guest that are compared, by the names of their policies.

/// The policy that stands for the cache of an ordinary guest.
pub const ORDINARY: &str = "lru";
/// The lists by which Linux orders an ordinary guest's page cache: active and inactive pages.
pub const TWO_LISTS: &str = "linux";
/// The newer way, by generations of pages. No policy here does the same: it is run live only.
pub const GENERATIONS: &str = "linux-generations";
/// The same for a file that is read through a map: then every use of a page counts for its generation, and what has
/// not been used for longest goes.
pub const MAPPED: &str = "linux-generations-mapped";
/// Linux's lists again, below a program that reads everything twice in a row: each page is then active from the start, so
/// none leaves early.
pub const TWICE: &str = "linux-twice";

/// Whether a policy stands for the cache of an ordinary guest, which keeps units and not the blocks of
/// a file system.
#[must_use]
pub fn is_ordinary(policy: &str) -> bool {
    [ORDINARY, TWO_LISTS, GENERATIONS, MAPPED, TWICE].contains(&policy)
}

/// Const Cache FS.
pub const CHOSEN: &str = "const";
/// LFU Cache FS as printed.
pub const LITERAL: &str = "lfu-history(min_gain=0)";
/// LFU Cache FS with a margin, which the paper has not.
pub const GAIN: &str = "lfu-history(min_gain=10)";
