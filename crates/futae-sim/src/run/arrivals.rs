//! A run in which requests wait for each other, by when they arrive.

use super::order::SPAN_US_MAX;
use super::queued::Queued;
use super::{Requests, SimulationError, TraceSimulation};
use crate::machine::Served;
use crate::queueing::{Latencies, LatencyModel, Network};

/// The arrival of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At the times of the trace, which must have been kept.
    Recorded,
    /// A constant number of requests of all guests together is under way.
    Clients(u32),
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
                let queued =
                    |machine| Queued::new(machine, network, (warmup, levels)).at_times(clock);
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
