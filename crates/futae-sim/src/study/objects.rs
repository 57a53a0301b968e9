//! Studies of objects that differ in size.

use super::settings::{Listener, Stage};
use super::{StudyError, Warmup};
use crate::objects::{Lives, ObjectReport, ObjectSimulation, simulate};
use crate::run::{Reading, Traces, ViewChoice};
use crate::spec::LevelSpec;
use futae_trace::{TraceOptions, TraceReader};
use futae_units::Size;
use std::path::Path;

/// What is asked about caches of objects for one trace.
#[derive(Clone, Debug)]
pub struct ObjectStudy {
    /// The caches, one for each run.
    pub caches: Vec<LevelSpec>,
    /// How long objects live.
    pub lives: Lives,
    /// Larger objects are not placed: a size in bytes.
    pub admit_size_max: Option<Size>,
    /// The seed of randomised policies.
    pub seed: u64,
    /// What goes before counting begins.
    pub warmup: Option<Warmup>,
    /// Requests that are counted; `None`: all remaining ones.
    pub requests: Option<u64>,
    /// Threads.
    pub threads: usize,
}

impl ObjectStudy {
    /// How the trace has to be read: `options` and `view` with what the study needs.
    #[must_use]
    pub fn reading(&self, options: TraceOptions, view: ViewChoice) -> Reading {
        let options = TraceOptions {
            sizes: true,
            lives: self.lives == Lives::Trace,
            ..options
        };
        Reading {
            keep_times: self.lives != Lives::Ever || self.warmup.is_some_and(Warmup::needs_times),
            options: vec![options],
            view: match view {
                ViewChoice::Usual => ViewChoice::Start,
                chosen => chosen,
            },
            ..Reading::default()
        }
    }

    /// Reads a trace file and simulates it.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or it cannot be simulated as asked.
    pub fn of_file(
        &self,
        path: &Path,
        options: TraceOptions,
        view: ViewChoice,
        listener: &dyn Listener,
    ) -> Result<ObjectReport, StudyError> {
        let reading = self.reading(options, view);
        let traces = Traces::read_guests(&[path.into()], &reading, &mut |done| {
            listener.progress(Stage::Reading, done);
        });
        self.of_traces(&traces?, listener)
    }

    /// The same from a reader that was opened with the options of [`reading`](Self::reading).
    ///
    /// # Errors
    ///
    /// As of [`of_file`](Self::of_file).
    pub fn of_opened(
        &self,
        reader: TraceReader,
        origin: &'static str,
        reading: &Reading,
        listener: &dyn Listener,
    ) -> Result<ObjectReport, StudyError> {
        let traces = Traces::read_opened(vec![reader], origin, reading, &mut |done| {
            listener.progress(Stage::Reading, done);
        });
        self.of_traces(&traces?, listener)
    }

    /// Simulates a trace that was read as [`reading`](Self::reading) says.
    ///
    /// # Errors
    ///
    /// It cannot be simulated as asked.
    pub fn of_traces(
        &self,
        traces: &Traces,
        listener: &dyn Listener,
    ) -> Result<ObjectReport, StudyError> {
        let admit_bytes_max = match self.admit_size_max {
            None => None,
            Some(Size::Bytes(bytes)) => Some(bytes),
            Some(other) => return Err(StudyError::AdmitSize(other)),
        };
        listener.read(traces.facts());
        let warmup = self.warmup.map(|warmup| warmup.of_traces(traces));
        let warmup = warmup.transpose()?;
        let one = |level: &LevelSpec| ObjectSimulation {
            size: level.size,
            policy: level.policy.clone(),
            admit_bytes_max,
            lives: self.lives,
            seed: self.seed,
            warmup_requests: warmup.unwrap_or(0),
            requests: self.requests,
        };
        let simulations: Vec<_> = self.caches.iter().map(one).collect();
        let report = simulate(traces, &simulations, self.threads, &|done| {
            listener.progress(Stage::Simulating, done);
        });
        Ok(report?)
    }
}
