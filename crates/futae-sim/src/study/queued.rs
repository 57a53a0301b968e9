//! How long requests take: from the counts, or where they wait for each other from runs once more.

use super::StudyError;
use super::settings::{Listener, Stage, Study};
use crate::Report;
use crate::queueing::LatencyModel;
use crate::run::{Arrivals, Requests, Run, TraceSimulation, in_parallel};

/// More requests than these with the same time, on average, say that the times are coarse.
const TOGETHER_MAX: f64 = 8.0;

impl Study {
    /// Adds latencies to each run, whose simulations are those of the hierarchies in the same order.
    pub(super) fn add_latencies(
        &self,
        report: &mut Report,
        requests: Option<Requests<'_>>,
        listener: &dyn Listener,
    ) -> Result<(), StudyError> {
        if self.think.is_some() {
            return Ok(());
        }
        let Some(model) = self.latency else {
            return Ok(());
        };
        if self.is_queued() {
            let requests = requests.ok_or(StudyError::NotKept)?;
            return self.add_queued(model, requests, report, listener);
        }
        if let Some(latency) = model.fixed() {
            let runs = report.runs.iter_mut();
            runs.for_each(|run| run.set_latency(&latency));
        }
        Ok(())
    }

    fn add_queued(
        &self,
        model: LatencyModel,
        requests: Requests<'_>,
        report: &mut Report,
        listener: &dyn Listener,
    ) -> Result<(), StudyError> {
        let arrivals = self.clients.map_or(Arrivals::Recorded, Arrivals::Clients);
        if self.clients.is_none()
            && let Some(together) = requests.requests_together()
            && together > TOGETHER_MAX
        {
            listener.warn(&format!(
                "the trace's times are coarse: {together:.0} requests on average have the same, and wait for each other as if \
                 they had come at once; --clients N has N under way at a time instead"
            ));
        }
        let seed = report.seed;
        let one = |(run, levels): (&Run, &Vec<_>)| TraceSimulation {
            levels: levels.clone(),
            links: run.links.clone(),
            write_mode: run.write_mode,
            seed,
            warmup_requests: run.warmup_requests,
            requests: Some(run.requests),
        };
        let all: Vec<_> = report.runs.iter().zip(&self.hierarchies).map(one).collect();
        let counted = report.runs.iter();
        let counted: Vec<_> = counted
            .map(|run| (run.warmup_requests, run.requests))
            .collect();
        let set = |fraction| listener.progress(Stage::Queueing, fraction);
        let found = in_parallel(all.len(), self.threads, &set, |at, progress| {
            requests.queued(
                &all[at],
                self.block_bytes,
                counted[at],
                (&model, arrivals),
                progress,
            )
        });
        for (run, latencies) in report.runs.iter_mut().zip(found) {
            run.set_latencies(latencies?);
        }
        Ok(())
    }
}
