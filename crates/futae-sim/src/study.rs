//! Studies: what `futae sim` does between its arguments and its results.
//!
//! The command line and the Python package make the same [`Study`] of what they are told, so that their results are
//! the same. Messages are those of the command line, and name its options.

mod error;
mod objects;
mod queued;
mod settings;
mod warmup;
mod windows;

pub use error::StudyError;
pub use objects::ObjectStudy;
pub use settings::{Listener, Stage, Study};
pub use warmup::Warmup;
pub use windows::Windows;

use crate::run::{
    ClosedLoop, Neighbours, Reading, Report, Requests, SimulationSpec, TraceSimulation, Traces,
    ViewChoice, simulate_all, simulate_guests, simulate_one_pass,
};
use crate::spec::{LevelSpec, links};
use futae_trace::{TraceOptions, TraceReader, WorkloadSpec, is_trace};
use std::path::{Path, PathBuf};

impl Study {
    /// Simulates workloads, one for each guest, or one for all `guests`. Returns the workload of each guest, too.
    ///
    /// # Errors
    ///
    /// They cannot be simulated as asked.
    pub fn of_workloads(
        &self,
        workloads: &[WorkloadSpec],
        guests: Option<u32>,
        listener: &dyn Listener,
    ) -> Result<(Report, Vec<WorkloadSpec>), StudyError> {
        let several = workloads.len() > 1;
        let Some(first) = workloads.first() else {
            return Err(crate::SimulationError::Empty.into());
        };
        let guests = match guests {
            Some(guests) if several && guests as usize != workloads.len() => {
                let workloads = workloads.len();
                return Err(StudyError::Workloads { guests, workloads });
            }
            guests => guests.unwrap_or(workloads.len() as u32),
        };
        let warmup = self.warmup.map(Warmup::of_workload).transpose()?;
        if self.bounds {
            return Err(StudyError::BoundsOfWorkload);
        }
        if self.think.is_some() {
            return Err(StudyError::ThinkOfWorkload);
        }
        if self.order.is_some() {
            return Err(StudyError::OrderOfWorkload);
        }
        self.check()?;
        let one = |levels: &Vec<LevelSpec>| SimulationSpec {
            links: links(levels, self.link),
            levels: levels.clone(),
            write_mode: self.write_mode,
            guests,
            workload: first.clone(),
            block_bytes: self.block_bytes,
            seed: self.seed,
            warmup_requests: warmup,
            requests: self.requests,
        };
        let specs: Vec<_> = self.hierarchies.iter().map(one).collect();
        let set = |done| listener.progress(Stage::Simulating, done);
        let mut report = match several {
            true => simulate_guests(&specs, workloads, self.threads, &set)?,
            false => simulate_all(&specs, self.threads, &set)?,
        };
        let workloads = match several {
            true => workloads.to_vec(),
            false => vec![first.clone(); guests as usize],
        };
        let requests = Requests::Workloads {
            workloads: &workloads,
            block_bytes: self.block_bytes,
            seed: self.seed,
        };
        if let Some(windows) = self.windows {
            let set = |done| listener.progress(Stage::Windows, done);
            windows.of_workloads(&requests, &specs, &mut report, &set)?;
        }
        self.add_latencies(&mut report, Some(requests), listener)?;
        Ok((report, workloads))
    }

    /// Which of its hierarchies use neighbours.
    #[must_use]
    pub fn neighbours(&self) -> Neighbours {
        Neighbours::of(self.hierarchies.iter().map(Vec::as_slice))
    }

    /// How traces have to be read for it, each with its options.
    #[must_use]
    pub fn reading(&self, options: Vec<TraceOptions>, view: ViewChoice) -> Reading {
        let closed = self.think.zip(self.latency);
        Reading {
            options,
            view,
            order: self.order.unwrap_or_default(),
            keep_times: self.warmup.is_some_and(Warmup::needs_times)
                || self.windows.is_some_and(Windows::needs_times)
                || self.is_queued() && self.clients.is_none(),
            neighbours: self.neighbours(),
            closed: closed.map(|(think, model)| ClosedLoop { think, model }),
        }
    }

    /// Reads trace files, one for each guest, and simulates them. A trace that is read in one pass is not kept, and
    /// so not returned.
    ///
    /// # Errors
    ///
    /// They cannot be read, or not be simulated as asked.
    pub fn of_files(
        &self,
        paths: &[PathBuf],
        options: Vec<TraceOptions>,
        view: ViewChoice,
        listener: &dyn Listener,
    ) -> Result<(Report, Option<Traces>), StudyError> {
        self.check()?;
        let in_requests = match self.warmup {
            None => Some(0),
            Some(Warmup::Requests(requests)) => Some(requests),
            Some(_) => None,
        };
        let goes_on = self.stages(true).len() > 2 || self.bounds || self.think.is_some();
        if let ([path], [options], Some(warmup), false) = (
            paths,
            &options[..],
            in_requests,
            goes_on || self.keeps_requests,
        ) && let [only] = &self.simulations(warmup)[..]
            && only.is_one_pass(view, options.unit_bytes)
            && !has_sizes(path, options)
        {
            let set = &mut |done| listener.progress(Stage::OnePass, done);
            let mut report = simulate_one_pass(path, options, view, only, self.threads, set)?;
            report.trace.iter().for_each(|facts| listener.read(facts));
            self.add_latencies(&mut report, None, listener)?;
            return Ok((report, None));
        }
        let reading = self.reading(options, view);
        let traces = Traces::read_guests(paths, &reading, &mut |done| {
            listener.progress(Stage::Reading, done);
        });
        let traces = traces?;
        let report = self.of_traces(&traces, listener)?;
        Ok((report, Some(traces)))
    }

    /// Simulates traces that were read as [`reading`](Self::reading) says.
    ///
    /// # Errors
    ///
    /// They cannot be simulated as asked.
    pub fn of_traces(
        &self,
        traces: &Traces,
        listener: &dyn Listener,
    ) -> Result<Report, StudyError> {
        self.check()?;
        listener.read(traces.facts());
        let warmup = self.warmup.map(|warmup| warmup.of_traces(traces));
        let simulations = self.simulations(warmup.transpose()?.unwrap_or(0));
        let set = |done| listener.progress(Stage::Simulating, done);
        let block_bytes = self.block_bytes;
        let mut report = traces.simulate(&simulations, block_bytes, self.threads, &set)?;
        if let Some(windows) = self.windows {
            let set = |done| listener.progress(Stage::Windows, done);
            windows.of_traces(traces, &simulations, block_bytes, &mut report, &set)?;
        }
        if self.bounds {
            for (simulation, run) in simulations.iter().zip(&mut report.runs) {
                run.bounds = Some(traces.bounds(simulation, block_bytes)?);
            }
        }
        let requests = Requests::Traces(traces);
        self.add_latencies(&mut report, Some(requests), listener)?;
        Ok(report)
    }

    fn simulations(&self, warmup_requests: u64) -> Vec<TraceSimulation> {
        let one = |levels: &Vec<LevelSpec>| TraceSimulation {
            links: links(levels, self.link),
            levels: levels.clone(),
            write_mode: self.write_mode,
            seed: self.seed,
            warmup_requests,
            requests: self.requests,
        };
        self.hierarchies.iter().map(one).collect()
    }
}

/// Whether a trace's objects have sizes, which one pass does not keep. What is neither a file nor behind a URL can be
/// read only once.
fn has_sizes(path: &Path, options: &TraceOptions) -> bool {
    let reads_again = match path.metadata() {
        Ok(metadata) => metadata.is_file(),
        Err(_) => is_trace(path),
    };
    reads_again && TraceReader::open(path, options).is_ok_and(|reader| reader.has_sizes())
}
