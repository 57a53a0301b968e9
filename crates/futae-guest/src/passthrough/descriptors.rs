//! Limits on descriptors by user: files that users have open take descriptors of this process, and no user
//! may take those of the others.

use super::lock::locked;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::sync::Mutex;

/// One in this many of the process's descriptors is for known files.
const KNOWN_SHARE: u64 = 4;
/// Known files with a descriptor at most, and at least if the process may have that many. In between, one for
/// this many bytes of the cache: each takes about 2 KiB of the kernel's memory.
const KNOWN_MAX: u64 = 65_536;
const KNOWN_MIN: u64 = 1024;
const KNOWN_BYTES: u64 = 64 << 10;
/// Known files keep this many descriptors, however many files users have open.
const KNOWN_LEAST: u64 = 16;
/// What the engine keeps open to sweep the page cache: one in this many, and this many at most.
const SWEEP_SHARE: u64 = 16;
const SWEEP_MAX: u64 = 1024;
/// What is left to root's files and to this process: one in this many, and this many at most.
const RESERVE_SHARE: u64 = 10;
const RESERVE_MAX: u64 = 4096;
/// One user other than root may take one part in this many of the share of all such users.
const USER_SHARE: u64 = 2;
/// The limit to reckon with if there is none: the kernel's own, `fs.nr_open`, as it is by default.
const LIMIT_DEFAULT: u64 = 1 << 20;

/// How the descriptors are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Files that the kernel knows and that are not open.
    pub(crate) known: usize,
    /// Files that users other than root have open, together. Known files give theirs up for these
    /// (`Nodes::with_room`), but for the last few.
    pub(crate) users: u64,
}

impl Shares {
    /// Raises the number of descriptors that this process may have to what it can be, and shares them out
    /// beside a cache of this many bytes.
    pub(crate) fn raise(cache_bytes: u64) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        let most = if setrlimit(Resource::Nofile, raised).is_ok() {
            limit.maximum
        } else {
            limit.current
        };
        Self::of(most.unwrap_or(LIMIT_DEFAULT), cache_bytes)
    }

    fn of(limit: u64, cache_bytes: u64) -> Self {
        let wanted = (cache_bytes / KNOWN_BYTES).clamp(KNOWN_MIN, KNOWN_MAX);
        let known = (limit / KNOWN_SHARE).min(wanted).max(KNOWN_LEAST);
        let sweep = (limit / SWEEP_SHARE).min(SWEEP_MAX);
        let reserve = (limit / RESERVE_SHARE).min(RESERVE_MAX);
        Self {
            known: usize::try_from(known).unwrap_or(usize::MAX),
            users: limit.saturating_sub(KNOWN_LEAST + sweep + reserve),
        }
    }
}

#[derive(Default)]
struct Taken {
    by_user: HashMap<u32, u64>,
    total: u64,
}

/// What users have taken. Root and the owner of this process are bounded by the process's own limit only.
pub(crate) struct Descriptors {
    owner: u32,
    all_max: u64,
    user_max: u64,
    taken: Mutex<Taken>,
}

/// Descriptors of a user who is about to have something open. They are given back unless they are
/// [kept](Self::keep).
pub(crate) struct Charge<'a> {
    of: &'a Descriptors,
    user: u32,
    count: u64,
}

impl Descriptors {
    /// `users` of them for users other than root and `owner`.
    pub(crate) fn new(users: u64, owner: u32) -> Self {
        Self {
            owner,
            all_max: users,
            user_max: users / USER_SHARE,
            taken: Mutex::default(),
        }
    }

    /// Charges a user; none if that would be more than the user's share, or than all users' together.
    pub(crate) fn charge(&self, user: u32, count: u64) -> Option<Charge<'_>> {
        let of = self;
        if !self.is_free(user) {
            let mut taken = locked(&self.taken);
            let has = taken.by_user.get(&user).copied().unwrap_or(0);
            if has + count > self.user_max || taken.total + count > self.all_max {
                return None;
            }
            taken.by_user.insert(user, has + count);
            taken.total += count;
        }
        Some(Charge { of, user, count })
    }

    /// Takes back what a user was charged when a handle was opened; once for each handle.
    pub(crate) fn give_back(&self, user: u32, count: u64) {
        if self.is_free(user) {
            return;
        }
        let mut taken = locked(&self.taken);
        if let Some(has) = taken.by_user.get_mut(&user) {
            let returned = count.min(*has);
            *has -= returned;
            if *has == 0 {
                taken.by_user.remove(&user);
            }
            taken.total -= returned;
        }
    }

    fn is_free(&self, user: u32) -> bool {
        user == 0 || user == self.owner
    }
}

impl Charge<'_> {
    /// The handle is open: its end gives them back.
    pub(crate) fn keep(mut self) {
        self.count = 0;
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.count > 0 {
            self.of.give_back(self.user, self.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_fit_into_the_limit() {
        for limit in [256, 1024, 4096, 524_288, 1 << 20] {
            let shares = Shares::of(limit, 1 << 40);
            // Users are not turned away below four fifths of the limit.
            assert!(
                shares.users >= limit * 4 / 5 - KNOWN_LEAST,
                "{limit}: {shares:?}"
            );
            let others = (limit / RESERVE_SHARE).min(RESERVE_MAX);
            assert!(KNOWN_LEAST + shares.users + others <= limit);
        }
        let known = 256;
        assert_eq!(Shares::of(1024, 0), Shares { known, users: 842 });
        // So few that nobody but root can open anything.
        assert_eq!(Shares::of(16, 0).users, 0);
    }

    #[test]
    fn one_user_takes_half_and_all_users_no_more_than_all() {
        let descriptors = Descriptors::new(100, 7);
        let take = |user, count| descriptors.charge(user, count).map(Charge::keep).is_some();
        assert!(take(1, 50));
        assert!(!take(1, 1), "beyond the half");
        assert!(take(2, 48));
        assert!(!take(3, 3), "beyond what users have together");
        assert!(take(3, 2));
        assert!(take(0, 1000) && take(7, 1000), "root and the owner");
        descriptors.give_back(0, 1000);
        descriptors.give_back(1, 20);
        assert!(take(3, 20));
        assert!(!take(1, 1));
        for (user, count) in [(1, 30), (2, 48), (3, 22), (7, 1000)] {
            descriptors.give_back(user, count);
        }
        let taken = locked(&descriptors.taken);
        assert_eq!((taken.total, taken.by_user.len()), (0, 0));
    }

    #[test]
    fn what_was_not_opened_is_given_back() {
        let descriptors = Descriptors::new(8, 0);
        for _ in 0..100 {
            assert!(descriptors.charge(1, 4).is_some());
        }
        assert!(descriptors.charge(1, 5).is_none());
        assert_eq!(locked(&descriptors.taken).total, 0);
    }
}
