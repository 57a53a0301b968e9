//! One budget for all memory that peers can make a server hold: payloads on their way in, requests
//! under way, and replies that have not been sent.
//!
//! | part | use |
//! | --- | --- |
//! | a quarter | an allotment for each possible connection: its buffers, and short requests |
//! | one longest request | the reserve, for one connection at a time, in order of waiting |
//! | the rest | the pool: a connection may hold half of what the others leave of it |
//!
//! Every connection can thus always have a short request carried out, and the longest one in its
//! turn. The cap per connection falls as the pool fills up. A connection that holds more than its
//! allotment while others wait must move its bytes, or is ended ([`Account::is_stalled`]).

use crate::mailbox::Mailbox;
use futae_nbd::constants::MAX_PAYLOAD_BYTES;
use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::info;

/// The smallest budget: with less, the longest request and short ones would not fit side by side.
pub const BUFFER_MEMORY_MIN: u64 = 64 << 20;
/// Bytes that a connection takes from the pool at a time, so that most requests need no pool
/// access.
const QUANTUM: u64 = 256 << 10;
/// The largest part of the reserve for one connection: the longest request and some more.
const RESERVE: u64 = MAX_PAYLOAD_BYTES as u64 + QUANTUM;
/// The largest allotment of a connection.
const ALLOTMENT_MAX: u64 = 256 << 10;
/// A connection that has moved this many bytes is not stalled.
const MOVED_ENOUGH: u64 = 1 << 20;

/// Held memory and its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) budget: u64,
    pub(crate) now: u64,
    pub(crate) peak: u64,
    /// Number of connections that wait for room.
    pub(crate) waiting: u64,
    /// Number of connections that were ended because they held memory that others waited for.
    pub(crate) stalled: u64,
}

#[derive(Default)]
struct Inner {
    connections: u64,
    /// Bytes of the pool granted to connections.
    granted: u64,
    /// Number of exports.
    exports: usize,
    /// Granted bytes by the number of the export.
    by_export: Vec<u64>,
    reserve_taken: bool,
    peak: u64,
    stalled: u64,
    /// When exhaustion of the pool was last logged.
    said: Option<Instant>,
    next: u64,
    queue: VecDeque<Waiter>,
}

struct Waiter {
    id: u64,
    export: usize,
    granted: u64,
    shortage: u64,
    mailbox: Arc<Mailbox>,
}

/// Shortest time between two log lines about a shortage of buffer memory.
const SILENCE: Duration = Duration::from_secs(60);

/// The budget of a server.
pub(crate) struct Budget {
    total: u64,
    allotment: u64,
    pool: u64,
    inner: Mutex<Inner>,
    waiting: AtomicUsize,
}

/// The source of a grant's bytes.
enum Source {
    Pool,
    Reserve,
}

impl Budget {
    /// A budget of `total` bytes, at least [`BUFFER_MEMORY_MIN`], for this many connections and
    /// exports.
    pub(crate) fn new(total: u64, connections_max: usize, exports: usize) -> Self {
        let total = total.max(BUFFER_MEMORY_MIN);
        let connections = connections_max.max(1) as u64;
        let allotment = (total / 4 / connections).min(ALLOTMENT_MAX);
        let pool = total - RESERVE - allotment * connections;
        Self {
            total,
            allotment,
            pool,
            inner: Mutex::new(Inner {
                exports,
                by_export: vec![0; exports],
                ..Inner::default()
            }),
            waiting: AtomicUsize::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the number of exports; each has a number below `numbers`.
    pub(crate) fn set_exports(&self, exports: usize, numbers: usize) {
        let mut inner = self.lock();
        inner.exports = exports;
        if inner.by_export.len() < numbers {
            inner.by_export.resize(numbers, 0);
        }
    }

    /// The largest size of a connection's buffer for requests.
    pub(crate) fn intake_bytes(&self) -> usize {
        (self.allotment / 2).clamp(4 << 10, 128 << 10) as usize
    }

    pub(crate) fn held(&self) -> Held {
        let inner = self.lock();
        Held {
            budget: self.total,
            now: self.held_by(&inner),
            peak: inner.peak,
            waiting: inner.queue.len() as u64,
            stalled: inner.stalled,
        }
    }

    fn held_by(&self, inner: &Inner) -> u64 {
        let reserve = if inner.reserve_taken { RESERVE } else { 0 };
        inner.connections * self.allotment + inner.granted + reserve
    }

    /// Reserves a connection's allotment until the place is dropped.
    pub(crate) fn place(self: &Arc<Self>) -> BudgetPlace {
        let mut inner = self.lock();
        inner.connections += 1;
        inner.peak = inner.peak.max(self.held_by(&inner));
        drop(inner);
        BudgetPlace(Arc::clone(self))
    }

    fn source(&self, inner: &Inner, wish: &Waiter) -> Option<Source> {
        let free = self.pool - inner.granted;
        let of_export = inner.by_export.get(wish.export).copied().unwrap_or(0);
        // The limit of one export within the pool.
        let export_max = if inner.exports > 1 {
            self.pool / 2
        } else {
            self.pool
        };
        let fits_export = of_export + wish.shortage <= export_max;
        if fits_export && wish.granted + wish.shortage <= free / 2 {
            return Some(Source::Pool);
        }
        // Waiters that already hold a grant continue when they have moved it.
        let first = inner.queue.iter().find(|waiter| waiter.granted == 0);
        let is_next = first.is_none_or(|first| first.id == wish.id);
        let may_reserve = wish.granted == 0 && !inner.reserve_taken && is_next;
        (may_reserve && wish.shortage <= RESERVE).then_some(Source::Reserve)
    }

    /// Wakes the first connection that can continue.
    fn wake_next(&self, inner: &Inner) {
        let next = inner
            .queue
            .iter()
            .find(|waiter| self.source(inner, waiter).is_some());
        if let Some(next) = next {
            next.mailbox.ring();
        }
    }

    fn forget_waiter(&self, inner: &mut Inner, id: u64) {
        inner.queue.retain(|waiter| waiter.id != id);
        self.waiting.store(inner.queue.len(), Relaxed);
    }
}

/// A connection's allotment.
pub(crate) struct BudgetPlace(Arc<Budget>);

impl Drop for BudgetPlace {
    fn drop(&mut self) {
        self.0.lock().connections -= 1;
    }
}

/// The memory held by one connection.
pub(crate) struct Account {
    budget: Arc<Budget>,
    export: usize,
    id: u64,
    mailbox: Arc<Mailbox>,
    /// Bytes of payloads and replies that need no grant.
    own: u64,
    held: u64,
    granted: u64,
    has_reserve: bool,
    is_waiting: bool,
    /// Since when this connection has blocked others, and what it has moved since.
    watched: Option<(Instant, u64)>,
}

impl Account {
    pub(crate) fn new(budget: &Arc<Budget>, export: usize, mailbox: &Arc<Mailbox>) -> Self {
        let mut inner = budget.lock();
        inner.next += 1;
        Self {
            export,
            id: inner.next,
            mailbox: Arc::clone(mailbox),
            // The rest of the allotment covers the buffer of requests, and the state of each
            // request.
            own: budget.allotment / 4,
            held: 0,
            granted: 0,
            has_reserve: false,
            is_waiting: false,
            watched: None,
            budget: Arc::clone(budget),
        }
    }

    /// Bytes held.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// Whether it holds more than its allotment.
    pub(crate) fn has_grant(&self) -> bool {
        self.granted > 0 || self.has_reserve
    }

    /// Whether another connection waits for room.
    fn is_wanted(&self) -> bool {
        self.budget.waiting.load(Relaxed) > usize::from(self.is_waiting)
    }

    fn available(&self) -> u64 {
        let reserve = if self.has_reserve { RESERVE } else { 0 };
        self.own + self.granted + reserve
    }

    /// Takes `bytes` more. If there is no room, the connection waits, and its mailbox is rung when
    /// it should try again.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        if self.held + bytes > self.available() && !self.widen(bytes) {
            return false;
        }
        self.held += bytes;
        true
    }

    fn widen(&mut self, bytes: u64) -> bool {
        self.trim();
        let shortage = (self.held + bytes).saturating_sub(self.available());
        let budget = Arc::clone(&self.budget);
        let mut inner = budget.lock();
        // A whole quantum if available, otherwise what is needed now.
        for shortage in [shortage.next_multiple_of(QUANTUM), shortage] {
            let wish = Waiter {
                id: self.id,
                export: self.export,
                granted: self.granted + if self.has_reserve { RESERVE } else { 0 },
                shortage,
                mailbox: Arc::clone(&self.mailbox),
            };
            match budget.source(&inner, &wish) {
                Some(Source::Pool) => {
                    inner.granted += shortage;
                    if let Some(of_export) = inner.by_export.get_mut(self.export) {
                        *of_export += shortage;
                    }
                    self.granted += shortage;
                }
                Some(Source::Reserve) => {
                    inner.reserve_taken = true;
                    self.has_reserve = true;
                }
                None => continue,
            }
            inner.peak = inner.peak.max(budget.held_by(&inner));
            if std::mem::take(&mut self.is_waiting) {
                budget.forget_waiter(&mut inner, self.id);
                budget.wake_next(&inner);
            }
            return true;
        }
        let granted = self.granted;
        match inner.queue.iter_mut().find(|waiter| waiter.id == self.id) {
            Some(waiter) => (waiter.granted, waiter.shortage) = (granted, shortage),
            None => inner.queue.push_back(Waiter {
                id: self.id,
                export: self.export,
                granted,
                shortage,
                mailbox: Arc::clone(&self.mailbox),
            }),
        }
        if inner.said.is_none_or(|said| said.elapsed() >= SILENCE) {
            inner.said = Some(Instant::now());
            let mib = budget.total >> 20;
            info!(
                "the {mib} MiB of --buffer-memory are used up by requests and by replies that clients have not taken; \
                 connections wait"
            );
        }
        self.is_waiting = true;
        budget.waiting.store(inner.queue.len(), Relaxed);
        false
    }

    /// Returns `bytes`. While others wait, unused bytes return to the pool at once.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.held = self.held.saturating_sub(bytes);
        let excess = self.available() - self.held.min(self.available());
        if self.has_grant() && (self.is_wanted() || excess >= 8 * QUANTUM) {
            self.trim();
        }
    }

    /// Returns granted bytes that are not in use.
    pub(crate) fn trim(&mut self) {
        if !self.has_grant() {
            return;
        }
        let needed = self.held.saturating_sub(self.own);
        let budget = Arc::clone(&self.budget);
        let mut inner = budget.lock();
        if self.has_reserve && needed <= self.granted {
            self.has_reserve = false;
            inner.reserve_taken = false;
        }
        if !self.has_reserve && self.granted > needed {
            let excess = self.granted - needed;
            inner.granted -= excess;
            if let Some(of_export) = inner.by_export.get_mut(self.export) {
                *of_export -= excess;
            }
            self.granted = needed;
        }
        if !self.has_grant() {
            self.watched = None;
        }
        budget.wake_next(&inner);
    }

    /// Counts bytes that the peer received or sent.
    pub(crate) fn moved(&mut self, bytes: u64) {
        if let Some((_, moved)) = &mut self.watched {
            *moved += bytes;
        }
    }

    /// Whether the connection holds memory that another one waits for, and its peer has moved next
    /// to nothing for `timeout` although it is the peer's turn.
    pub(crate) fn is_stalled(&mut self, peers_turn: bool, timeout: Duration) -> bool {
        if !peers_turn || !self.has_grant() || !self.is_wanted() {
            self.watched = None;
            return false;
        }
        let (since, moved) = *self.watched.get_or_insert_with(|| (Instant::now(), 0));
        if since.elapsed() < timeout {
            return false;
        }
        self.watched = None;
        let is_stalled = moved < MOVED_ENOUGH;
        if is_stalled {
            self.budget.lock().stalled += 1;
            let seconds = timeout.as_secs_f64();
            info!(
                "a connection was ended: it held buffer memory that others waited for, and its client moved next to \
                 nothing for {seconds} s"
            );
        }
        is_stalled
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.held = 0;
        self.trim();
        if self.is_waiting {
            let mut inner = self.budget.lock();
            self.budget.forget_waiter(&mut inner, self.id);
            self.budget.wake_next(&inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn account(budget: &Arc<Budget>, export: usize) -> Account {
        let mailbox = Arc::new(Mailbox::new().expect("an eventfd"));
        Account::new(budget, export, &mailbox)
    }

    #[test]
    fn the_parts_come_to_the_whole() {
        for total in [64, 128, 256, 1024].map(|size| size * MIB) {
            for connections in [1, 512, 100_000] {
                let budget = Budget::new(total, connections, 1);
                let parts = budget.allotment * connections as u64 + RESERVE + budget.pool;
                assert_eq!(parts, total);
                assert!(budget.pool >= 15 * MIB);
            }
        }
    }

    #[test]
    fn many_that_take_all_they_can_stay_within_it_and_leave_the_others_something() {
        let budget = Arc::new(Budget::new(256 * MIB, 512, 1));
        let places: Vec<_> = (0..200).map(|_| budget.place()).collect();
        let mut greedy: Vec<_> = (0..200).map(|_| account(&budget, 0)).collect();
        for account in &mut greedy {
            while account.take(32 * MIB) {}
            while account.take(MIB) {}
        }
        let held = budget.held();
        assert!(held.peak <= 256 * MIB, "{held:?}");
        assert!(held.now > 200 * MIB, "{held:?}");
        let mut modest = account(&budget, 0);
        assert!(modest.take(16 << 10), "the allotment is not the pool's");
        drop(greedy);
        assert!(modest.take(32 * MIB));
        drop((modest, places));
        assert_eq!((budget.held().now, budget.held().waiting), (0, 0));
    }

    #[test]
    fn the_reserve_goes_round() {
        let budget = Arc::new(Budget::new(64 * MIB, 512, 1));
        let mut accounts: Vec<_> = (0..3).map(|_| account(&budget, 0)).collect();
        assert!(accounts[0].take(32 * MIB));
        assert!(!accounts[1].take(32 * MIB) && !accounts[2].take(32 * MIB));
        accounts[0].give_back(32 * MIB);
        assert!(!accounts[2].take(32 * MIB), "it is not its turn");
        assert!(!accounts[0].take(32 * MIB), "nor this one's again");
        assert!(accounts[1].take(32 * MIB));
        accounts.remove(1);
        assert!(accounts[1].take(32 * MIB), "what a dead one had is free");
    }

    #[test]
    fn an_export_gets_no_more_than_half_of_the_pool() {
        let budget = Arc::new(Budget::new(256 * MIB, 512, 2));
        let mut greedy: Vec<_> = (0..400).map(|_| account(&budget, 0)).collect();
        for account in &mut greedy {
            while account.take(MIB) {}
        }
        let taken = budget.lock().by_export[0];
        assert!(taken <= budget.pool / 2, "{taken}");
        assert!(account(&budget, 1).take(32 * MIB));
    }

    #[test]
    fn only_one_who_is_in_the_way_and_moves_nothing_is_stalled() {
        let budget = Arc::new(Budget::new(64 * MIB, 512, 1));
        let (mut holder, mut other) = (account(&budget, 0), account(&budget, 0));
        let at_once = Duration::ZERO;
        assert!(holder.take(32 * MIB));
        assert!(!holder.is_stalled(true, at_once), "nobody waits");
        assert!(!other.take(32 * MIB));
        assert!(!holder.is_stalled(false, at_once), "the cache's turn");
        assert!(!holder.is_stalled(true, Duration::from_secs(3600)));
        holder.moved(2 * MIB);
        assert!(!holder.is_stalled(true, at_once), "it moves");
        assert!(holder.is_stalled(true, at_once));
        assert!(!other.is_stalled(true, at_once), "it holds nothing");
        assert_eq!(budget.held().stalled, 1);
    }
}
