//! What all machines have in common: they take requests in batches, and count where each is served.

use crate::batch::{Batch, Batches};
use crate::link::Store;
use crate::write_back::Written;
use futae_policy::{Counters, SpecError};
use serde::Serialize;

/// Requests served by one level, or by the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Served {
    /// Reads.
    pub reads: u64,
    /// Writes. All of them go to the store, but they count where the block was found.
    pub writes: u64,
    /// Bytes of reads and writes.
    pub bytes: u64,
}

impl Served {
    /// Counts one request more.
    #[inline(always)]
    pub(super) fn count(&mut self, is_write: bool, bytes: u32) {
        let is_write = u64::from(is_write);
        self.writes += is_write;
        self.reads += 1 - is_write;
        self.bytes += u64::from(bytes);
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.reads += more.reads;
        self.writes += more.writes;
        self.bytes += more.bytes;
    }
}

/// A hierarchy that takes requests in batches.
pub trait Machine: Send {
    /// Sends the next requests, and adds to `served`, which has for each guest an element for each
    /// level and one for the store, where each was served. Bytes are added only if the batch has
    /// them.
    fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served]);
    /// As [`feed`](Self::feed) for all of these batches, or until a policy fails.
    fn feed_all(&mut self, batches: &mut dyn Batches, served: &mut [Served]) {
        batches.each(&mut |batch| {
            self.feed(batch, served);
            self.fault().is_none()
        });
    }
    /// As [`feed_all`](Self::feed_all), on several threads if that is faster.
    fn feed_spread(&mut self, batches: &mut dyn Batches, served: &mut [Served]) {
        self.feed_all(batches, served);
    }
    /// The counters of each level, top down, summed over guests.
    fn counters(&self) -> Vec<Counters>;
    /// The decisions of each level's policy about itself, top down, of all guests.
    fn remarks(&self) -> Vec<Vec<String>>;
    /// The error of the first level whose policy has failed.
    fn fault(&self) -> Option<&SpecError>;
    /// The store's counts.
    fn store(&self) -> Store;
    /// Where writes went under write-back.
    fn written(&self) -> Option<Written> {
        None
    }
}

/// The counters of two copies of a level together.
pub(super) fn sum_of(a: &Counters, b: &Counters) -> Counters {
    Counters {
        requests: a.requests + b.requests,
        hits: a.hits + b.hits,
        misses: a.misses + b.misses,
        admissions: a.admissions + b.admissions,
        bypasses: a.bypasses + b.bypasses,
        evictions: a.evictions + b.evictions,
        demotions_in: a.demotions_in + b.demotions_in,
        demotions_declined: a.demotions_declined + b.demotions_declined,
        demotions_out: a.demotions_out + b.demotions_out,
        notices_in: a.notices_in + b.notices_in,
        notices_out: a.notices_out + b.notices_out,
        invalidations: a.invalidations + b.invalidations,
    }
}
