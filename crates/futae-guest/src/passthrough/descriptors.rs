//! Limits on descriptors per user. Open files use descriptors of this process, and no user may
//! exhaust those of the others.

use super::log::SILENCE;
use crate::lock::locked;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;
use tracing::warn;

/// The fraction of the process's descriptors for known files (one in this many).
const KNOWN_SHARE: u64 = 4;
/// The largest number of known files with a descriptor, and the smallest one if the limit of the
/// process allows it. In between, one for this many bytes of the cache: each takes about 2 KiB of
/// the kernel's memory.
const KNOWN_MAX: u64 = 65_536;
const KNOWN_MIN: u64 = 1024;
const KNOWN_BYTES: u64 = 64 << 10;
/// Known files keep this many descriptors, however many files are open.
const KNOWN_LEAST: u64 = 16;
/// Descriptors that the engine uses to drop pages from the page cache: one in this many, and at
/// most this many.
const SWEEP_SHARE: u64 = 16;
const SWEEP_MAX: u64 = 1024;
/// Descriptors reserved for root's files and for this process: one in this many, and at most this
/// many.
const RESERVE_SHARE: u64 = 10;
const RESERVE_MAX: u64 = 4096;
/// The fraction of the shared descriptors that a single user other than root may take (one in this
/// many).
const USER_SHARE: u64 = 2;
/// The assumed limit if there is none: the default of the kernel's own, `fs.nr_open`.
const LIMIT_DEFAULT: u64 = 1 << 20;

/// The distribution of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// For files that the kernel knows and that are not open.
    pub(crate) known: usize,
    /// For files that users other than root have open. Known files release theirs for these
    /// (`Nodes::with_room`), except for the last few.
    pub(crate) users: u64,
}

impl Shares {
    /// Raises the process's limit of descriptors to its maximum, and distributes them beside a
    /// cache of this many bytes.
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
    /// When a refusal was logged last.
    logged: Option<Instant>,
}

/// The descriptors charged to users. Root and the owner of this process are limited only by the
/// process's limit.
pub(crate) struct Descriptors {
    owner: u32,
    all_max: u64,
    user_max: u64,
    taken: Mutex<Taken>,
}

/// Descriptors charged for an open in progress. They are returned unless they are
/// [kept](Self::keep).
pub(crate) struct Charge<'a> {
    of: &'a Descriptors,
    user: u32,
    count: u64,
}

impl Descriptors {
    /// `users` descriptors for users other than root and `owner`.
    pub(crate) fn new(users: u64, owner: u32) -> Self {
        Self {
            owner,
            all_max: users,
            user_max: users / USER_SHARE,
            taken: Mutex::default(),
        }
    }

    /// Charges a user; `None` if that exceeds the user's share, or that of all users.
    pub(crate) fn charge(&self, user: u32, count: u64) -> Option<Charge<'_>> {
        let of = self;
        if !self.is_free(user) {
            let mut taken = locked(&self.taken);
            let has = taken.by_user.get(&user).copied().unwrap_or(0);
            if has + count > self.user_max || taken.total + count > self.all_max {
                self.log_refusal(user, has, &mut taken);
                return None;
            }
            taken.by_user.insert(user, has + count);
            taken.total += count;
        }
        Some(Charge { of, user, count })
    }

    /// Otherwise only the program would learn of it, and not who can raise the limit.
    fn log_refusal(&self, user: u32, has: u64, taken: &mut Taken) {
        if taken.logged.is_some_and(|at| at.elapsed() < SILENCE) {
            return;
        }
        taken.logged = Some(Instant::now());
        let (total, user_max, all_max) = (taken.total, self.user_max, self.all_max);
        warn!(
            user,
            has,
            user_max,
            total,
            all_max,
            "user {user} can open no more files: they have {has} of {user_max} descriptors, and all users have {total} of \
             {all_max}; raise the limit of open files of futae mount (LimitNOFILE=, ulimit -n)"
        );
    }

    /// Returns the charge of a handle; once per handle.
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
    /// The handle is open: closing it returns the charge.
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
            // Users are not refused below four fifths of the limit.
            assert!(
                shares.users >= limit * 4 / 5 - KNOWN_LEAST,
                "{limit}: {shares:?}"
            );
            let others = (limit / RESERVE_SHARE).min(RESERVE_MAX);
            assert!(KNOWN_LEAST + shares.users + others <= limit);
        }
        let known = 256;
        assert_eq!(Shares::of(1024, 0), Shares { known, users: 842 });
        // So few that only root can open files.
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
