//! The limit on requests under way of all exports together, and each export's share of it by
//! weight.
//!
//! While there is room, every request is carried out. When there is none, the active exports, which
//! have requests under way or waiting, get shares by their weights. A freed place goes to the
//! waiting export with the least for its weight; an export at its share or above waits for those
//! below theirs. The share of an idle export is free for the others.

use crate::mailbox::Mailbox;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The default weight of an export.
pub(crate) const USUAL_WEIGHT: u32 = 1;

/// A connection that was rung and has not tried again for this long waits for something else;
/// others no longer wait for it.
const RUNG_MAX: Duration = Duration::from_millis(100);

/// The shared limit of a server.
pub(crate) struct Fair {
    max: usize,
    /// As [`RUNG_MAX`].
    rung_max: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    used: usize,
    next: u64,
    members: Vec<Member>,
}

/// An export.
struct Member {
    number: u64,
    weight: u32,
    used: usize,
    waiting: Vec<Waiter>,
    /// Requests that had to wait.
    waits: u64,
}

/// A waiting connection, until it tries again.
struct Waiter {
    mailbox: Weak<Mailbox>,
    rung: Option<Instant>,
}

impl Waiter {
    /// Whether the connection still exists and is expected to try again.
    fn is_alive(&self, rung_max: Duration) -> bool {
        let is_late = |rung: Instant| rung.elapsed() >= rung_max;
        self.mailbox.strong_count() > 0 && !self.rung.is_some_and(is_late)
    }
}

impl Member {
    fn is_active(&self) -> bool {
        self.used > 0 || !self.waiting.is_empty()
    }
}

impl Inner {
    /// The share of a member while all active ones want more.
    fn part(&self, member: &Member, max: usize) -> usize {
        let active = self
            .members
            .iter()
            .filter(|one| one.is_active() || one.number == member.number);
        let weights: u64 = active.map(|one| u64::from(one.weight)).sum();
        let part = max as u64 * u64::from(member.weight) / weights.max(1);
        usize::try_from(part).unwrap_or(max).max(1)
    }

    fn is_below(&self, member: &Member, max: usize) -> bool {
        member.used < self.part(member, max)
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.members.iter().position(|one| one.number == number)
    }
}

impl Fair {
    /// Room for `max` requests.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Self::with(max, RUNG_MAX)
    }

    fn with(max: usize, rung_max: Duration) -> Arc<Self> {
        Arc::new(Self {
            max: max.max(1),
            rung_max,
            inner: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an export.
    pub(crate) fn join(self: &Arc<Self>, weight: u32) -> Part {
        let mut inner = self.lock();
        let number = inner.next;
        inner.next += 1;
        inner.members.push(Member {
            number,
            weight: weight.max(1),
            used: 0,
            waiting: Vec::new(),
            waits: 0,
        });
        Part {
            number,
            fair: Arc::clone(self),
        }
    }
}

/// The membership of one export. Dropping it frees its share.
pub(crate) struct Part {
    number: u64,
    fair: Arc<Fair>,
}

impl Part {
    /// Takes room for a request. If there is none, the mailbox is rung when the caller should try
    /// again.
    pub(crate) fn take(&self, mailbox: &Arc<Mailbox>) -> bool {
        let (max, rung_max) = (self.fair.max, self.fair.rung_max);
        let mut inner = self.fair.lock();
        let Some(at) = inner.position(self.number) else {
            return true;
        };
        // It tries again, so it no longer waits.
        let waiting = &mut inner.members[at].waiting;
        let is_it = |one: &Waiter| one.mailbox.as_ptr() == Arc::as_ptr(mailbox);
        let known = waiting.iter().position(is_it);
        if let Some(known) = known {
            waiting.swap_remove(known);
        }
        let (used, member) = (inner.used, &inner.members[at]);
        let is_owed = |one: &Member| {
            one.number != self.number
                && one.waiting.iter().any(|one| one.is_alive(rung_max))
                && inner.is_below(one, max)
        };
        let yields = !inner.is_below(member, max) && inner.members.iter().any(is_owed);
        let member = &mut inner.members[at];
        if used < max && !yields {
            member.used += 1;
            inner.used += 1;
            return true;
        }
        member.waiting.push(Waiter {
            mailbox: Arc::downgrade(mailbox),
            rung: None,
        });
        member.waits += u64::from(known.is_none());
        false
    }

    /// Frees the room of a request. Rings the waiting export with the least for its weight; rings
    /// all waiters if no request is under way, since no later completion would ring them.
    pub(crate) fn give_back(&self) {
        let mut rung = Vec::new();
        let mut inner = self.fair.lock();
        if let Some(at) = inner.position(self.number) {
            inner.members[at].used = inner.members[at].used.saturating_sub(1);
            inner.used = inner.used.saturating_sub(1);
        }
        inner.ring(self.fair.rung_max, &mut rung);
        drop(inner);
        rung.iter().for_each(|mailbox| mailbox.ring());
    }

    /// One that may have been rung will not try again: free room is for the next. `mailbox` is its own, if that still
    /// exists.
    pub(crate) fn leave(&self, mailbox: Option<&Arc<Mailbox>>) {
        let mut rung = Vec::new();
        let mut inner = self.fair.lock();
        if let (Some(at), Some(mailbox)) = (inner.position(self.number), mailbox) {
            let is_other = |one: &Waiter| one.mailbox.as_ptr() != Arc::as_ptr(mailbox);
            inner.members[at].waiting.retain(is_other);
        }
        if inner.used < self.fair.max {
            inner.ring(self.fair.rung_max, &mut rung);
        }
        drop(inner);
        rung.iter().for_each(|mailbox| mailbox.ring());
    }

    /// Changes the weight.
    pub(crate) fn set_weight(&self, weight: u32) {
        let mut inner = self.fair.lock();
        if let Some(at) = inner.position(self.number) {
            inner.members[at].weight = weight.max(1);
        }
    }

    /// Requests that had to wait.
    pub(crate) fn waits(&self) -> u64 {
        let inner = self.fair.lock();
        inner
            .position(self.number)
            .map_or(0, |at| inner.members[at].waits)
    }
}

impl Inner {
    /// Collects the connections that are to try again.
    fn ring(&mut self, rung_max: Duration, rung: &mut Vec<Arc<Mailbox>>) {
        if self.members.iter().all(|one| one.waiting.is_empty()) {
            return;
        }
        let now = Instant::now();
        for member in &mut self.members {
            member.waiting.retain(|one| one.is_alive(rung_max));
        }
        let mut ring = |one: &mut Member| {
            for waiter in &mut one.waiting {
                waiter.rung.get_or_insert(now);
                rung.extend(waiter.mailbox.upgrade());
            }
        };
        let mut waiting = self
            .members
            .iter_mut()
            .filter(|one| !one.waiting.is_empty());
        if self.used == 0 {
            return waiting.for_each(&mut ring);
        }
        // Compares requests per weight without a division.
        let least = waiting.by_ref().min_by(|one, other| {
            let of = |one: &Member, other: &Member| one.used as u64 * u64::from(other.weight);
            of(one, other).cmp(&of(other, one))
        });
        if let Some(least) = least {
            ring(least);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut rung = Vec::new();
        let mut inner = self.fair.lock();
        if let Some(at) = inner.position(self.number) {
            let gone = inner.members.remove(at);
            inner.used = inner.used.saturating_sub(gone.used);
            inner.ring(self.fair.rung_max, &mut rung);
        }
        drop(inner);
        rung.iter().for_each(|mailbox| mailbox.ring());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox() -> Arc<Mailbox> {
        Arc::new(Mailbox::new().expect("an eventfd"))
    }

    /// Takes as many as available, at most `most`.
    fn grab(part: &Part, mailbox: &Arc<Mailbox>, most: usize) -> usize {
        (0..most).take_while(|_| part.take(mailbox)).count()
    }

    #[test]
    fn parts_are_as_the_weights_once_all_want_more() {
        let fair = Fair::new(64);
        let (heavy, light, idle) = (fair.join(3), fair.join(1), fair.join(9));
        let (one, other) = (mailbox(), mailbox());
        assert_eq!(grab(&light, &other, 1000), 64, "alone it has all");
        assert_eq!(grab(&heavy, &one, 1000), 0, "no room");
        // Each request that ends makes room for one; both always want more.
        let mut has = [0, 64];
        for _ in 0..64 {
            light.give_back();
            has[1] -= 1;
            has[1] += grab(&light, &other, 1000);
            has[0] += grab(&heavy, &one, 1000);
        }
        assert_eq!(has, [48, 16], "3 to 1");
        for _ in 0..200 {
            heavy.give_back();
            has[0] -= 1;
            has[1] += grab(&light, &other, 1000);
            has[0] += grab(&heavy, &one, 1000);
        }
        assert_eq!(has, [48, 16]);
        // The other export gets what this one does not want.
        drop(one);
        (0..48).for_each(|_| heavy.give_back());
        assert_eq!(grab(&light, &other, 1000), 48);
        drop(heavy);
        let one = mailbox();
        assert!(light.waits() > 0 && idle.waits() == 0);
        idle.set_weight(1);
        assert_eq!(grab(&idle, &one, 1), 0);
        light.give_back();
        assert_eq!((grab(&light, &other, 1), grab(&idle, &one, 9)), (0, 1));
    }

    #[test]
    fn nobody_waits_for_one_who_is_gone() {
        let fair = Fair::new(4);
        let (gone, here) = (fair.join(1), fair.join(1));
        let mine = mailbox();
        assert_eq!(grab(&here, &mine, 9), 4);
        let theirs = mailbox();
        assert!(!gone.take(&theirs), "no room");
        here.give_back();
        assert!(!here.take(&mine), "it is theirs");
        drop(theirs);
        assert!(here.take(&mine));
        let theirs = mailbox();
        // A removed export with requests under way leaves its room.
        assert!(!gone.take(&theirs));
        drop(here);
        assert_eq!(grab(&gone, &theirs, 9), 4);

        // A rung connection that does not try again is not waited for after a while, here at once.
        let fair = Fair::with(4, Duration::ZERO);
        let (absent, here) = (fair.join(1), fair.join(1));
        assert_eq!(grab(&here, &mine, 9), 4);
        assert!(!absent.take(&theirs));
        here.give_back();
        assert!(here.take(&mine));
    }
}
