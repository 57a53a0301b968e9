//! A machine in which requests wait for each other.

use super::SimulationError;
use crate::batch::Batch;
use crate::link::Store;
use crate::machine::{Machine, OneByOne, Served};
use crate::queueing::{Latencies, Network, Route};
use crate::write_back::Written;
use futae_policy::{Counters, SpecError};

/// A machine whose requests also pass through a network of queues.
pub(super) struct Queued<'a> {
    inner: OneByOne<'a>,
    network: Network,
    /// Times in microseconds, and accesses up to and including each; empty for arrivals from
    /// clients.
    clock: &'a [(u64, u64)],
    /// The index in `clock` of the next request.
    tick: usize,
    sent: u64,
    /// Requests before counting begins.
    warmup: u64,
    /// Levels and the store.
    places: usize,
    counters: Vec<Counters>,
    store: Store,
    taken: Option<Vec<u64>>,
}

impl<'a> Queued<'a> {
    /// A machine above empty queues, for this many requests before counting begins, and levels.
    pub(super) fn new(
        inner: &'a mut dyn Machine,
        network: Network,
        (warmup, levels): (u64, usize),
    ) -> Self {
        Self {
            network,
            clock: &[],
            tick: 0,
            sent: 0,
            warmup,
            places: levels + 1,
            counters: inner.counters(),
            store: inner.store(),
            taken: inner.written().map(|written| written.taken),
            inner: OneByOne::new(inner),
        }
    }

    /// The same with requests that arrive at these times, of which [`clock`](Self::clock) says more.
    pub(super) fn at_times(self, clock: &'a [(u64, u64)]) -> Self {
        Self { clock, ..self }
    }

    /// The next answer: see [`Network::answer`].
    pub(super) fn answer(&mut self, until: Option<u64>) -> Option<(u64, u32)> {
        self.network.answer(until)
    }

    /// The latencies of all requests.
    pub(super) fn finish(mut self) -> Result<Latencies, SimulationError> {
        match self.network.drain() {
            true => Ok(self.network.finish()),
            false => Err(SimulationError::Ages),
        }
    }

    /// The arrival of the next request, in nanoseconds since the first.
    fn recorded(&mut self) -> u64 {
        while self
            .clock
            .get(self.tick)
            .is_some_and(|&(_, until)| until <= self.sent)
        {
            self.tick += 1;
        }
        let times = self.clock.first().zip(self.clock.get(self.tick));
        times.map_or(0, |(first, now)| (now.0 - first.0).saturating_mul(1000))
    }

    fn one(&mut self, batch: &Batch<'_>, served: &mut [Served]) {
        let recorded = self.recorded();
        let now = self.network.arrival(recorded);
        self.send(now, batch, served);
    }

    /// Sends the only request of `batch`, at `now`.
    pub(super) fn send(&mut self, now: u64, batch: &Batch<'_>, served: &mut [Served]) {
        if self.sent == self.warmup {
            self.network.begin_counting();
        }
        let place = self.inner.feed(batch, served);
        self.sent += 1;
        let levels = self.places as u32 - 1;
        let guest = (place / self.places) as u32;
        let is_write = batch.is_write(0);
        let depth = match is_write {
            true => self.written_to(),
            false => (place % self.places) as u32,
        };
        self.network.ask(
            now,
            Route {
                guest,
                depth,
                is_write,
            },
        );
        self.behind(now, guest, is_write && depth == levels);
    }

    /// The level that accepted the last request, a write; under write-through the store.
    fn written_to(&mut self) -> u32 {
        let levels = self.places as u32 - 1;
        let Some(Written { taken, .. }) = self.inner.machine.written() else {
            return levels;
        };
        let before = self.taken.replace(taken);
        let now = self.taken.iter().flatten();
        let mut changed = now.zip(before.iter().flatten());
        let at = changed.position(|(now, before)| now > before);
        at.map_or(levels, |at| at as u32)
    }

    /// The background work of a guest's last request.
    fn behind(&mut self, now: u64, guest: u32, wrote_store: bool) {
        if self.places > 2 {
            let counters = self.inner.machine.counters();
            for (above, (is, was)) in (0..).zip(counters.iter().zip(&self.counters)) {
                for _ in was.demotions_out..is.demotions_out {
                    self.network.demote(now, guest, above);
                }
            }
            self.counters = counters;
        }
        let store = self.inner.machine.store();
        let since = store.since(&self.store);
        for _ in 0..since.notice_reads + since.preload_reads {
            self.network.use_store(now, false);
        }
        for _ in u64::from(wrote_store)..since.writes {
            self.network.use_store(now, true);
        }
        self.store = store;
    }
}

impl Machine for Queued<'_> {
    fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served]) {
        batch.each_one(|one| self.one(one, served));
    }
    fn counters(&self) -> Vec<Counters> {
        self.inner.machine.counters()
    }
    fn remarks(&self) -> Vec<Vec<String>> {
        self.inner.machine.remarks()
    }
    fn fault(&self) -> Option<&SpecError> {
        self.inner.machine.fault()
    }
    fn store(&self) -> Store {
        self.inner.machine.store()
    }
    fn written(&self) -> Option<Written> {
        self.inner.machine.written()
    }
}
