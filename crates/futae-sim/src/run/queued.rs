//! A run in which requests wait for each other.

use super::order::SPAN_US_MAX;
use super::{Requests, SimulationError, TraceSimulation};
use crate::batch::Batch;
use crate::link::Store;
use crate::machine::{Machine, OneByOne, Served};
use crate::queueing::{Latencies, LatencyModel, Network, Route};
use crate::write_back::Written;
use futae_policy::{Counters, SpecError};

/// The arrival of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At the times of the trace, which must have been kept.
    Recorded,
    /// A constant number of requests of all guests together is under way.
    Clients(u32),
}

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

impl Requests<'_> {
    /// The mean number of requests with the same time; `None` if times are unknown.
    #[must_use]
    pub fn requests_together(&self) -> Option<f64> {
        let Self::Traces(traces) = self else {
            return None;
        };
        let clock = traces.clock()?;
        let times = clock.chunk_by(|a, b| a.0 == b.0).count();
        Some(clock.len() as f64 / times.max(1) as f64)
    }

    /// Runs one hierarchy as [`until`](Self::until) does, with a number of requests after a
    /// warm-up, and returns their latencies with queueing. Hits are decided in the order of the
    /// requests: a request for a block that is still being read does not wait for that read.
    ///
    /// # Errors
    ///
    /// Those of any simulation; also if arrivals are recorded ones and times are unknown.
    pub fn queued(
        &self,
        spec: &TraceSimulation,
        block_bytes: u64,
        (warmup, requests): (u64, u64),
        (model, arrivals): (&LatencyModel, Arrivals),
        progress: &mut dyn FnMut(f64),
    ) -> Result<Latencies, SimulationError> {
        let (clock, clients) = match (self, arrivals) {
            (_, Arrivals::Clients(clients)) => (&[][..], Some(clients)),
            (Self::Traces(traces), Arrivals::Recorded) => {
                let clock = traces.clock().ok_or(SimulationError::NoArrivals)?;
                if traces.span_us().is_some_and(|us| us > SPAN_US_MAX) {
                    return Err(SimulationError::Span(traces.facts().files.join(", ")));
                }
                (clock, None)
            }
            (Self::Workloads { .. }, Arrivals::Recorded) => {
                return Err(SimulationError::NoArrivals);
            }
        };
        let end = warmup + requests;
        self.driven(
            spec,
            block_bytes,
            (warmup, end),
            progress,
            |mut drive, (levels, guests)| {
                let network = Network::new(*model, guests, levels as u32, clients, spec.seed);
                let queued = |machine| Queued {
                    clock,
                    ..Queued::new(machine, network, (warmup, levels))
                };
                let mut served = vec![Served::default(); (levels + 1) * guests as usize];
                drive.through(queued, &mut served)?.finish()
            },
        )?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{WriteMode, links};
    use futae_trace::WorkloadSpec;

    fn run(
        levels: &str,
        workload: &str,
        write_mode: WriteMode,
        model: &str,
        clients: u32,
    ) -> Latencies {
        let levels: Vec<_> = levels
            .split(' ')
            .map(|level| level.parse().expect("a level"))
            .collect();
        let workload: WorkloadSpec = workload.parse().expect("a workload");
        let spec = TraceSimulation {
            links: links(&levels, None),
            levels,
            write_mode,
            seed: 5,
            warmup_requests: 2000,
            requests: Some(10_000),
        };
        let requests = Requests::Workloads {
            workloads: std::slice::from_ref(&workload),
            block_bytes: 4096,
            seed: 5,
        };
        let model = model.parse().expect("a model");
        let arrivals = Arrivals::Clients(clients);
        let asked = (&model, arrivals);
        let found = requests.queued(&spec, 4096, (2000, 10_000), asked, &mut |_| {});
        found.expect("a run")
    }

    /// Without waiting, the mean latency is that computed from the counts.
    #[test]
    fn without_queues_times_are_those_of_the_counts() {
        const LEVELS: &str = "lru:100blocks exclusive:200blocks";
        let model = "upper=1us,lower=10us,link=5us,store=100us";
        for write_mode in [WriteMode::WriteThrough, WriteMode::WriteBack] {
            let workload = "zipf(0.9,writes=0.2):1000blocks";
            let found = run(LEVELS, workload, write_mode, model, 3);
            let levels: Vec<_> = LEVELS
                .split(' ')
                .map(|level| level.parse().expect("a level"))
                .collect();
            let whole = crate::SimulationSpec {
                links: links(&levels, None),
                levels,
                write_mode,
                guests: 1,
                workload: workload.parse().expect("a workload"),
                block_bytes: 4096,
                seed: 5,
                warmup_requests: Some(2000),
                requests: Some(10_000),
            };
            let mut report = crate::simulate(&whole, &mut |_| {}).expect("a run");
            let run = &mut report.runs[0];
            run.set_latency(&model.parse().expect("a latency"));
            let times = run.access_times.expect("times");
            let same = |a: Option<f64>, b: Option<f64>, share: f64| {
                let (a, b) = (a.expect("a time"), b.expect("a time"));
                assert!((a / b - 1.0).abs() < share, "{a} and {b}, {write_mode}");
            };
            same(found.all.mean_seconds, times.mean_access_seconds, 1e-9);
            same(found.all.p90_seconds, times.p90_access_seconds, 0.002);
            assert_eq!(
                (found.reads.requests, found.writes.requests),
                (run.reads, run.writes)
            );
        }
    }

    /// Demotions use the link, so requests behind them wait; with unlimited width none does.
    #[test]
    fn demotions_are_in_the_way_where_the_link_is_narrow() {
        let levels = "lru:100blocks exclusive:200blocks";
        let mean = |model| {
            let found = run(
                levels,
                "uniform:1000blocks",
                WriteMode::WriteThrough,
                model,
                1,
            );
            found.all.mean_seconds.expect("requests")
        };
        let (wide, narrow) = (mean("link=5us"), mean("link=5us*1"));
        assert!(narrow > wide * 1.2, "{narrow} and {wide}");
    }

    #[test]
    fn a_store_that_writes_back_is_slower_for_reads() {
        let workload = "zipf(0.9,writes=0.5):1000blocks";
        let wait = |workload| {
            let found = run(
                "lru:100blocks",
                workload,
                WriteMode::WriteBack,
                "store=100us*1",
                1,
            );
            found.store.expect("it has a width").mean_wait_seconds
        };
        assert_eq!(wait("zipf(0.9):1000blocks"), 0.0);
        assert!(wait(workload) > 1e-5);
    }
}
