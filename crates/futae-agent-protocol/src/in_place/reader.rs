//! The host's end of a ring. Whatever is read of the guest's memory is copied once, and the copy is checked.

use super::offer::RingOffer;
use super::table::{ENTRIES_A_PAGE, ENTRY_BYTES, HEAD_BYTES, Head, VERSION, decode_entry};
use crate::PAGE_BYTES;
use crate::evicted_pages::EvictedPage;
use crate::sync::{Ordering, fence};

/// The memory of a guest, of which nothing is known but how to copy out of it.
pub trait RingMemory {
    /// Fills `into` with what is at an address; false if that is not memory, or no longer.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
}

/// Why a ring cannot be read, or no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRing {
    /// The offer is of another version.
    Version(u32),
    /// The offer has no table or no ring, or they are longer than they may be.
    Length,
    /// A page of the table is not in the guest's memory.
    Memory,
    /// The table does not begin with the head of this offer.
    Head,
}

impl NoRing {
    /// For people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Version(_) => "it is of a version that is not known here",
            Self::Length => "it has no pages, or too many",
            Self::Memory => "it is not in the guest's memory",
            Self::Head => "the guest's memory does not hold it where it should be",
        }
    }
}

/// A page that is said to be in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingEntry {
    /// The number of the entry.
    pub number: u64,
    /// Which page it is.
    pub page: EvictedPage,
    /// Where it begins in the ring.
    position: u64,
}

/// Reads a ring from one entry to the next.
#[derive(Clone, Debug)]
pub struct RingReader {
    offer: RingOffer,
    cursor: u64,
    resyncs: u64,
    missed: u64,
    guest: (u64, u64),
}

impl RingReader {
    /// Begins with what comes next, if the memory holds what was offered.
    ///
    /// # Errors
    ///
    /// If it does not, or the offer breaks a rule.
    pub fn open(offer: RingOffer, memory: &impl RingMemory) -> Result<Self, NoRing> {
        if offer.version != VERSION {
            return Err(NoRing::Version(offer.version));
        }
        let has_table = (2..=RingOffer::MAX_TABLE_PAGES).contains(&offer.table.len());
        // The kernel's rings have at least a page, and are a power of two long.
        let has_ring =
            offer.ring.len().is_power_of_two() && offer.ring.len() <= RingOffer::MAX_RING_PAGES;
        if !has_table || !has_ring {
            return Err(NoRing::Length);
        }
        let mut reader = Self {
            offer,
            cursor: 0,
            resyncs: 0,
            missed: 0,
            guest: (0, 0),
        };
        let head = reader.head(memory)?;
        reader.cursor = head.begin.min(head.end);
        Ok(reader)
    }

    /// The number of the offer.
    #[must_use]
    pub fn offer(&self) -> u64 {
        self.offer.offer
    }

    /// The entry that comes next: those before were given out, or missed.
    #[must_use]
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Times that the reader did not find what came next, and went on behind it.
    #[must_use]
    pub fn resyncs(&self) -> u64 {
        self.resyncs
    }

    /// Entries that were over before they could be read.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// What the guest says that pages cost it: nanoseconds of processor time, and how many pages.
    #[must_use]
    pub fn guest_cost(&self) -> (u64, u64) {
        self.guest
    }

    /// The next entries, at most this many; none if there are none. Whatever they say, they are of this number.
    ///
    /// # Errors
    ///
    /// If the ring is no longer there. It will not come back.
    pub fn entries(
        &mut self,
        memory: &impl RingMemory,
        most: usize,
        into: &mut Vec<RingEntry>,
    ) -> Result<(), NoRing> {
        let end = self.head(memory)?.end;
        // What was written before `end` is seen from here on: the entries, and a `begin` that is no older.
        fence(Ordering::Acquire);
        let head = Head {
            end,
            ..self.head(memory)?
        };
        self.guest = (head.guest_ns, head.guest_pages);
        let slots = ((self.offer.table.len() - 1) * ENTRIES_A_PAGE) as u64;
        let is_sane = head.begin <= head.end && head.end - head.begin <= slots;
        if !is_sane || head.end < self.cursor {
            self.resync(head.end);
            return Ok(());
        }
        if head.begin > self.cursor {
            // Later than the agent was willing to wait.
            self.resync(head.begin);
        }
        let last = head.end.min(self.cursor.saturating_add(most as u64));
        while self.cursor < last {
            let mut bytes = [0; ENTRY_BYTES];
            let slot = (self.cursor % slots) as usize;
            let page = self.offer.table[1 + slot / ENTRIES_A_PAGE];
            let at = (slot % ENTRIES_A_PAGE * ENTRY_BYTES) as u64;
            if !read_page(memory, page, at, &mut bytes) {
                return Err(NoRing::Memory);
            }
            let (number, page, position) = decode_entry(&bytes);
            if number != self.cursor {
                self.resync(head.end);
                return Ok(());
            }
            into.push(RingEntry {
                number,
                page,
                position,
            });
            self.cursor += 1;
        }
        Ok(())
    }

    /// Copies the data of an entry; false if they are not all in the guest's memory. They are the entry's
    /// only if [`Self::first_valid`] says so afterwards, and the page's only if their hash says so.
    pub fn data(
        &self,
        memory: &impl RingMemory,
        entry: &RingEntry,
        into: &mut [u8; PAGE_BYTES as usize],
    ) -> bool {
        let pages = &self.offer.ring;
        let position = entry.position % (pages.len() as u64 * PAGE_BYTES);
        let (first, at) = ((position / PAGE_BYTES) as usize, position % PAGE_BYTES);
        let (head, tail) = into.split_at_mut((PAGE_BYTES - at) as usize);
        read_page(memory, pages[first], at, head)
            && (tail.is_empty() || read_page(memory, pages[(first + 1) % pages.len()], 0, tail))
    }

    /// The first entry of which the ring still holds what it held before: what was copied for those before it may
    /// be anything.
    ///
    /// # Errors
    ///
    /// If the ring is no longer there.
    pub fn first_valid(&self, memory: &impl RingMemory) -> Result<u64, NoRing> {
        // The copies came before this.
        fence(Ordering::Acquire);
        Ok(self.head(memory)?.begin)
    }

    /// Counts entries that were given out, and were over before their data were copied.
    pub fn note_late(&mut self, count: u64) {
        self.missed = self.missed.saturating_add(count);
    }

    fn resync(&mut self, to: u64) {
        self.resyncs += 1;
        self.missed = self.missed.saturating_add(to.saturating_sub(self.cursor));
        self.cursor = to;
    }

    fn head(&self, memory: &impl RingMemory) -> Result<Head, NoRing> {
        let mut bytes = [0; HEAD_BYTES];
        let page = self.offer.table.first().ok_or(NoRing::Length)?;
        if !read_page(memory, *page, 0, &mut bytes) {
            return Err(NoRing::Memory);
        }
        Head::decode(&bytes)
            .filter(|head| head.offer == self.offer.offer)
            .ok_or(NoRing::Head)
    }
}

/// Reads within a page of the guest's memory.
fn read_page(memory: &impl RingMemory, page: u64, at: u64, into: &mut [u8]) -> bool {
    let address = page.checked_mul(PAGE_BYTES);
    let address = address.and_then(|address| address.checked_add(at));
    address.is_some_and(|address| memory.read(address, into))
}

#[cfg(test)]
mod tests;
