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
//! turn; others pass one that waits for something else first. The cap per connection falls as the pool
//! fills up. A connection that holds more than its allotment while others wait must move its bytes, or
//! is ended ([`Account::is_stalled`]).

use crate::mailbox::Mailbox;
use futae_engine::{IoBuf, PAGE_BYTES, STATE_BYTES};
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
/// What a READ or WRITE of a page counts.
const PAGE_REQUEST: u64 = STATE_BYTES + IoBuf::memory_bytes(PAGE_BYTES as u64);
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
    /// It waits for something else first, and keeps its place meanwhile. Nobody waits behind it.
    is_aside: bool,
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
        // With fewer exports, each may have more.
        self.wake_next(&inner);
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
        let first = inner.in_line().find(|waiter| waiter.granted == 0);
        let is_next = first.is_none_or(|first| first.id == wish.id);
        let may_reserve = wish.granted == 0 && !inner.reserve_taken && is_next;
        (may_reserve && wish.shortage <= RESERVE).then_some(Source::Reserve)
    }

    /// Wakes the first connection that can continue.
    fn wake_next(&self, inner: &Inner) {
        let next = inner
            .in_line()
            .find(|waiter| self.source(inner, waiter).is_some());
        if let Some(next) = next {
            next.mailbox.ring();
        }
    }

    fn forget_waiter(&self, inner: &mut Inner, id: u64) {
        inner.queue.retain(|waiter| waiter.id != id);
        self.count_waiters(inner);
    }

    fn count_waiters(&self, inner: &Inner) {
        self.waiting.store(inner.in_line().count(), Relaxed);
    }
}

impl Inner {
    /// The connections that wait for nothing but room.
    fn in_line(&self) -> impl Iterator<Item = &Waiter> {
        self.queue.iter().filter(|waiter| !waiter.is_aside)
    }
}

/// Whether a connection waits for room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    No,
    InLine,
    /// Its place in the queue is kept, but it waits for something else.
    Aside,
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
    waiting: Waiting,
    /// Since when this connection has blocked others, and what it has moved since.
    watched: Option<(Instant, u64)>,
}

impl Account {
    pub(crate) fn new(budget: &Arc<Budget>, export: usize, mailbox: &Arc<Mailbox>) -> Self {
        // The rest of the allotment covers the buffer of requests and the thread. If there is any room for it, a request of a page
        // fits.
        let own = (budget.allotment / 4).max(PAGE_REQUEST.min(budget.allotment / 2));
        Self::with_own(own, budget, export, mailbox)
    }

    /// The account of one of this many queues of a disk, which share an allotment and have no buffers of requests. A request of a
    /// page fits.
    pub(crate) fn of_queue(
        queues: u64,
        budget: &Arc<Budget>,
        export: usize,
        mailbox: &Arc<Mailbox>,
    ) -> Self {
        let own = (budget.allotment / queues).max(PAGE_REQUEST);
        Self::with_own(own, budget, export, mailbox)
    }

    fn with_own(own: u64, budget: &Arc<Budget>, export: usize, mailbox: &Arc<Mailbox>) -> Self {
        let mut inner = budget.lock();
        inner.next += 1;
        Self {
            export,
            id: inner.next,
            mailbox: Arc::clone(mailbox),
            own,
            held: 0,
            granted: 0,
            has_reserve: false,
            waiting: Waiting::No,
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
        self.budget.waiting.load(Relaxed) > usize::from(self.waiting == Waiting::InLine)
    }

    fn available(&self) -> u64 {
        let reserve = if self.has_reserve { RESERVE } else { 0 };
        self.own + self.granted + reserve
    }

    /// Takes `bytes` more. If there is no room, the connection waits, and its mailbox is rung when
    /// it should try again.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        if self.held + bytes > self.available() {
            if !self.widen(bytes) {
                return false;
            }
        } else {
            // What it held while it waited may have become free.
            self.withdraw();
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
                is_aside: false,
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
            self.leave_queue(&mut inner);
            return true;
        }
        // As when it tries again: a waiter that is rung in vain would keep the ring from the others.
        let granted = self.granted + if self.has_reserve { RESERVE } else { 0 };
        match inner.queue.iter_mut().find(|waiter| waiter.id == self.id) {
            Some(waiter) => {
                (waiter.granted, waiter.shortage) = (granted, shortage);
                waiter.is_aside = false;
            }
            None => inner.queue.push_back(Waiter {
                id: self.id,
                export: self.export,
                granted,
                shortage,
                is_aside: false,
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
        self.waiting = Waiting::InLine;
        budget.count_waiters(&inner);
        // Its place or its wish may have changed, and one that was rung before may no longer be the next.
        budget.wake_next(&inner);
        false
    }

    /// The request that waits for room now waits for something else first. It keeps its place in the queue until
    /// [`take`](Self::take) is called again, but others do not wait behind it.
    pub(crate) fn step_aside(&mut self) {
        if self.waiting != Waiting::InLine {
            return;
        }
        self.waiting = Waiting::Aside;
        let mut inner = self.budget.lock();
        let mut queue = inner.queue.iter_mut();
        if let Some(waiter) = queue.find(|waiter| waiter.id == self.id) {
            waiter.is_aside = true;
        }
        self.budget.count_waiters(&inner);
        self.budget.wake_next(&inner);
    }

    /// The connection waits for room no longer.
    pub(crate) fn withdraw(&mut self) {
        if self.waiting != Waiting::No {
            let budget = Arc::clone(&self.budget);
            self.leave_queue(&mut budget.lock());
        }
    }

    fn leave_queue(&mut self, inner: &mut Inner) {
        if std::mem::replace(&mut self.waiting, Waiting::No) != Waiting::No {
            self.budget.forget_waiter(inner, self.id);
            self.budget.wake_next(inner);
        }
    }

    /// Returns `bytes`. While others wait, unused bytes return to the pool at once.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.held, "{bytes} of {} bytes", self.held);
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
        self.withdraw();
    }
}

#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;
