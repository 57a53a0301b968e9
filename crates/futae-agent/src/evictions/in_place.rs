//! Evicted pages that the host reads in this machine's memory, where it sees that.
//!
//! The agent says once where the ring and a table beside it lie, writes into the table which page is where in the
//! ring, and gives the ring's places back to the kernel as the host says that it has read them. A host that is too slow
//! costs the data of some pages: they are told of without, and the kernel never waits for anybody.

use crate::extents::Pages;
use crate::ring::Ring;
use crate::sync::{Ordering, fence};
use crate::system::SharedMemory;
use futae_agent_protocol::PAGE_BYTES;
use futae_agent_protocol::evicted_pages::EvictedPage;
use futae_agent_protocol::in_place::{
    BEGIN_AT, END_AT, ENTRIES_A_PAGE, ENTRY_BYTES, GUEST_COST_AT, Head, RingAnswer, RingOffer,
    VERSION, Verdict, encode_entry,
};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use tracing::{info, warn};

const PAGE: usize = PAGE_BYTES as usize;
/// How long a page waits for the host; then it is told of without its data.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long the host may say nothing, or read nothing of what waits; then it counts as gone. It speaks every second.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How often the ring is offered to a host that does not read it.
const OFFER_INTERVAL: Duration = Duration::from_secs(5);

/// A page that is in the table.
struct Waiting {
    pages: Pages,
    /// Where the ring goes on behind it.
    end: u64,
    since: Instant,
}

/// The table, and what the host makes of it.
pub struct InPlace {
    table: SharedMemory,
    /// Entries that it has room for.
    slots: u64,
    offer: RingOffer,
    offered: Option<Instant>,
    /// When the host last read something, or had nothing to read; none while it does not read at all.
    heard: Option<Instant>,
    /// The number of the first that waits.
    begin: u64,
    waiting: VecDeque<Waiting>,
    /// Why the host refused last.
    why_not: String,
}

impl InPlace {
    /// For a table of an eBPF map, and a ring. `number` is random.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell where they lie, or one is longer than can be told.
    pub fn new(table: SharedMemory, ring: &Ring, number: u64) -> io::Result<Self> {
        let pages = table.length() / PAGE;
        let offer = RingOffer {
            version: VERSION,
            offer: number,
            table: crate::proc::page_numbers(table.address(), pages)?,
            ring: ring.pages()?,
        };
        let has_table = (2..=RingOffer::MAX_TABLE_PAGES).contains(&pages);
        if !has_table || offer.ring.len() > RingOffer::MAX_RING_PAGES {
            return Err(io::Error::other("the ring is too long to be told"));
        }
        Ok(Self::with(table, offer))
    }

    fn with(table: SharedMemory, offer: RingOffer) -> Self {
        let head = Head {
            offer: offer.offer,
            ..Head::default()
        };
        table.write(0, &head.encode());
        let entries = table.length() / PAGE * ENTRIES_A_PAGE;
        Self {
            slots: (entries - ENTRIES_A_PAGE) as u64,
            table,
            offer,
            offered: None,
            heard: None,
            begin: 0,
            waiting: VecDeque::new(),
            why_not: String::new(),
        }
    }

    /// Whether the host reads the ring.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.heard.is_some()
    }

    /// The connection is a new one, or gone: who is there next knows nothing.
    pub fn connected(&mut self) {
        (self.offered, self.heard) = (None, None);
    }

    /// What to tell the host, if it is time to.
    pub fn offer(&mut self, now: Instant) -> Option<RingOffer> {
        let is_due = self
            .offered
            .is_none_or(|at| !self.is_read() && now.duration_since(at) >= OFFER_INTERVAL);
        is_due.then(|| {
            self.offered = Some(now);
            self.offer.clone()
        })
    }

    /// Takes what the host says, and gives back to the kernel what the host has read.
    pub fn hear(&mut self, answer: &RingAnswer, ring: &Ring, now: Instant) {
        if answer.offer != self.offer.offer {
            return;
        }
        if answer.verdict == Verdict::Refuses {
            if self.why_not != answer.why {
                self.why_not.clone_from(&answer.why);
                let why = futae_agent_protocol::printable(&answer.why);
                info!("the host does not read evicted pages in this machine's memory: {why}");
            }
            self.heard = None;
            return;
        }
        if self.heard.is_none() {
            info!("the host reads evicted pages in this machine's memory");
            self.why_not.clear();
        }
        let count = answer.taken.saturating_sub(self.begin);
        let count = count.min(self.waiting.len() as u64);
        let was_idle = self.waiting.is_empty();
        let end = self.forget(count as usize, &mut |_| {});
        if let Some(end) = end {
            ring.release(end);
        }
        if end.is_some() || was_idle || self.heard.is_none() {
            self.heard = Some(now);
        }
    }

    /// Whether there is room in the table.
    #[must_use]
    pub fn has_room(&self) -> bool {
        (self.waiting.len() as u64) < self.slots
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Tells of a page that begins at `position` of the ring, where the ring goes on at `end` behind it. There has to be
    /// room.
    pub fn put(
        &mut self,
        (pages, page): (Pages, EvictedPage),
        (position, end): (u64, u64),
        now: Instant,
    ) {
        if self.waiting.is_empty() {
            // The host had nothing to read until now.
            self.heard = self.heard.map(|_| now);
        }
        let number = self.begin + self.waiting.len() as u64;
        let slot = (number % self.slots) as usize;
        self.table.write(
            PAGE + slot * ENTRY_BYTES,
            &encode_entry(number, page, position),
        );
        self.table.store(END_AT, number + 1);
        self.waiting.push_back(Waiting {
            pages,
            end,
            since: now,
        });
    }

    /// Gives up what waits for too long, or all if the host is gone: `left` gets what is to be told of without data.
    pub fn expire(&mut self, ring: &Ring, now: Instant, left: &mut Vec<Pages>) {
        let is_silent = |at: Instant| now.duration_since(at) >= SILENCE_MAX;
        if self.heard.is_some_and(is_silent) {
            warn!("the host no longer reads evicted pages in this machine's memory");
            self.heard = None;
        }
        let is_over =
            |waiting: &&Waiting| !self.is_read() || now.duration_since(waiting.since) >= TIMEOUT;
        let count = self.waiting.iter().take_while(is_over).count();
        if let Some(end) = self.forget(count, &mut |pages| left.push(pages)) {
            ring.release(end);
        }
    }

    /// Says what evicted pages have cost this machine so far.
    pub fn note_cost(&self, spent: Duration) {
        let spent = spent.as_nanos().try_into().unwrap_or(u64::MAX);
        self.table.store(GUEST_COST_AT, spent);
        let pages = self.begin + self.waiting.len() as u64;
        self.table.store(GUEST_COST_AT + 8, pages);
    }

    /// Forgets the first that wait, and says so in the table: before the ring's places may be given back, so that a
    /// host which is reading them sees it. Where the ring goes on behind them, if there were any.
    fn forget(&mut self, count: usize, tell: &mut dyn FnMut(Pages)) -> Option<u64> {
        let mut end = None;
        for waiting in self.waiting.drain(..count) {
            tell(waiting.pages);
            end = Some(waiting.end);
        }
        self.begin += count as u64;
        if end.is_some() {
            self.table.store(BEGIN_AT, self.begin);
            // A host that sees what is written from here on sees that, too.
            fence(Ordering::Release);
        }
        end
    }
}

#[cfg(test)]
mod tests;
