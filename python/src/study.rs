//! Studies: what is asked for, on the thread that simulates.

use crate::arrow::Rows;
use crate::error::refused;
use crate::numbers::{NAME, NumberReader};
use crate::reading::{Reading, of_facts};
use futae_sim::SimulationError;
use futae_sim::objects::Lives;
use futae_sim::run::{Think, TraceFacts, Traces};
use futae_sim::study::{Listener, ObjectStudy, Stage, Study, StudyError};
use futae_trace::{TraceOptions, View, WorkloadSpec};
use futae_units::Size;
use pyo3::prelude::*;
use serde_json::to_string;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

type Tell<'a> = &'a (dyn Fn(f64) + Sync);
/// The report as JSON, with warnings; or why there is none.
type Outcome = Result<(String, Vec<String>), String>;
type Work<'a> = Box<dyn FnOnce(Tell<'_>) -> Outcome + Send + 'a>;

/// What of objects that differ in size is asked for.
pub struct Objects {
    pub lives: Lives,
    pub admit_size_max: Option<Size>,
}

/// What a simulation is made of, once it has been read.
pub struct Asked {
    pub sources: Vec<OsString>,
    pub guests: Option<u32>,
    pub study: Study,
    pub objects: Option<Objects>,
}

/// Makes one fraction of the stages, and keeps what is to be warned of.
struct Ear<'a> {
    tell: Tell<'a>,
    stages: Vec<Stage>,
    warnings: Mutex<Vec<String>>,
}

impl<'a> Ear<'a> {
    fn new(tell: Tell<'a>, stages: Vec<Stage>) -> Self {
        let warnings = Mutex::default();
        Self {
            tell,
            stages,
            warnings,
        }
    }

    fn kept(&self, more: impl IntoIterator<Item = String>) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.extend(more);
    }

    /// What came of the study, with what was kept.
    fn outcome<E: ToString>(self, found: Result<serde_json::Result<String>, E>) -> Outcome {
        let json = found.map_err(|error| error.to_string())?;
        let json = json.map_err(|error| error.to_string())?;
        let warnings = self.warnings.into_inner();
        Ok((json, warnings.unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Listener for Ear<'_> {
    fn progress(&self, stage: Stage, fraction: f64) {
        match self.stages.iter().position(|it| *it == stage) {
            Some(at) => (self.tell)((at as f64 + fraction) / self.stages.len() as f64),
            None => (self.tell)(fraction),
        }
    }

    fn warn(&self, warning: &str) {
        self.kept([warning.to_owned()]);
    }

    fn read(&self, facts: &TraceFacts) {
        self.kept(of_facts(facts));
    }
}

impl Asked {
    /// An exclusive cache at the top is asked, but nobody demotes to it.
    pub fn lone_exclusive(&self) -> Option<String> {
        let mut tops = self.study.hierarchies.iter().filter_map(|it| it.first());
        let top = tops.find(|top| top.policy.lives_on_demotions())?;
        Some(format!(
            "{top} keeps only what the level above demotes to it, and there is none, so it hits nothing; name the upper level \
             first, such as levels=[\"lru:1GiB\", \"{top}\"]"
        ))
    }

    pub fn of_workloads<'a>(&'a self, reading: &Reading) -> PyResult<Work<'a>> {
        let read = |source: &OsString| {
            let source = source.to_string_lossy();
            source
                .parse::<WorkloadSpec>()
                .map_err(|error| match source.contains(':') {
                    true => refused(error),
                    false => refused(format!("{source} is no file, and no workload: {error}")),
                })
        };
        if self.objects.is_some() {
            return Err(no_objects());
        }
        let workloads = self.sources.iter().map(read);
        let workloads = workloads.collect::<PyResult<Vec<WorkloadSpec>>>()?;
        reading.refuse()?;
        let study = &self.study;
        Ok(Box::new(move |tell| {
            let ear = Ear::new(tell, study.stages(false));
            let found = study.of_workloads(&workloads, self.guests, &ear);
            ear.outcome(found.map(|(report, _)| to_string(&report)))
        }))
    }

    /// Reads the arrays on the thread that simulates.
    pub fn of_arrays<'a>(
        &'a self,
        arrays: &[Bound<'_, PyAny>],
        reading: &Reading,
    ) -> PyResult<Work<'a>> {
        reading.refuse()?;
        self.check_guests(arrays.len())?;
        let study = &self.study;
        if self.objects.is_some() {
            return Err(no_objects());
        }
        let timed = [
            ("think", study.think.is_some()),
            ("order", study.order.is_some()),
        ];
        if let Some((option, _)) = timed.iter().find(|option| option.1) {
            let message =
                format!("{option} is for traces and tables: arrays have no times, and take turns");
            return Err(refused(message));
        }
        let block_bytes = study.block_bytes;
        let open = |array| NumberReader::open(array, block_bytes);
        let readers = arrays.iter().map(open).collect::<PyResult<Vec<_>>>()?;
        Ok(Box::new(move |tell| {
            let ear = Ear::new(tell, study.stages(true));
            let count = readers.len() as f64;
            let telling = |(at, reader): (usize, NumberReader)| {
                let share = study.stages(true).len() as f64;
                reader.telling(move |done| tell((at as f64 + done) / count / share))
            };
            let mut readers: Vec<_> = readers.into_iter().enumerate().map(telling).collect();
            let each = (View::Start, block_bytes);
            let traces = Traces::of_readers(&mut readers, NAME, each, study.neighbours());
            let found = traces.map_err(StudyError::from);
            let found = found.and_then(|traces| study.of_traces(&traces, &ear));
            ear.outcome(found.map(|report| to_string(&report)))
        }))
    }

    /// Reads the tables on the thread that simulates.
    pub fn of_tables<'a>(
        &'a self,
        tables: &[PyRef<'_, Rows>],
        reading: &Reading,
    ) -> PyResult<Work<'a>> {
        self.check_guests(tables.len())?;
        let objects = self.objects_study()?;
        let study = &self.study;
        let options = TraceOptions {
            latencies: study.think == Some(Think::Recorded),
            ..reading.options()?
        };
        let all = match &objects {
            Some(objects) => objects.reading(options, reading.view()?),
            None => study.reading(vec![options; tables.len()], reading.view()?),
        };
        if objects.is_some() && tables.len() != 1 {
            return Err(one_trace());
        }
        let mut opened = Vec::new();
        for ((at, table), options) in tables.iter().enumerate().zip(&all.options) {
            let name = match tables.len() {
                1 => "table".to_owned(),
                _ => format!("table {at}"),
            };
            opened.push(table.open(&name, options)?);
        }
        Ok(Box::new(move |tell| {
            let (ear, mut opened) = (Ear::new(tell, study.stages(true)), opened);
            if let Some(objects) = objects {
                let reader = opened.pop().ok_or(SimulationError::Empty);
                let found = reader.map_err(StudyError::from);
                let found = found.and_then(|it| objects.of_opened(it, "table", &all, &ear));
                return ear.outcome(found.map(|report| to_string(&report)));
            }
            let traces = Traces::read_opened(opened, "table", &all, &mut |done| {
                ear.progress(Stage::Reading, done);
            });
            let found = traces.map_err(StudyError::from);
            let found = found.and_then(|traces| study.of_traces(&traces, &ear));
            ear.outcome(found.map(|report| to_string(&report)))
        }))
    }

    /// An error if another number of guests is asked for than there are.
    fn check_guests(&self, guests: usize) -> PyResult<()> {
        match self.guests {
            Some(asked) if asked as usize != guests => Err(refused(StudyError::Guests)),
            _ => Ok(()),
        }
    }

    /// The study of objects, if it is that.
    fn objects_study(&self) -> PyResult<Option<ObjectStudy>> {
        let Some(objects) = &self.objects else {
            return Ok(None);
        };
        let study = &self.study;
        if study.hierarchies.iter().any(|levels| levels.len() != 1) {
            return Err(refused(
                "objects=True is for caches of one level, such as policies=[\"lru\"], sizes=[\"1GiB\"]",
            ));
        }
        Ok(Some(ObjectStudy {
            caches: study.hierarchies.iter().flatten().cloned().collect(),
            lives: objects.lives,
            admit_size_max: objects.admit_size_max,
            seed: study.seed,
            warmup: study.warmup,
            requests: study.requests,
            threads: study.threads,
        }))
    }

    pub fn of_traces<'a>(&'a self, reading: &Reading) -> PyResult<Work<'a>> {
        let paths: Vec<PathBuf> = self.sources.iter().map(PathBuf::from).collect();
        self.check_guests(paths.len())?;
        let (view, options) = (reading.view()?, reading.options()?);
        let study = &self.study;
        if let Some(objects) = self.objects_study()? {
            let Ok([path]) = <[PathBuf; 1]>::try_from(paths) else {
                return Err(one_trace());
            };
            return Ok(Box::new(move |tell| {
                let ear = Ear::new(tell, study.stages(true));
                let found = objects.of_file(&path, options, view, &ear);
                ear.outcome(found.map(|report| to_string(&report)))
            }));
        }
        Ok(Box::new(move |tell| {
            let ear = Ear::new(tell, study.stages(true));
            let options = vec![options; paths.len()];
            let found = study.of_files(&paths, options, view, &ear);
            ear.outcome(found.map(|(report, _)| to_string(&report)))
        }))
    }
}

fn no_objects() -> PyErr {
    refused("objects=True is for a trace or a table, whose objects have sizes")
}

fn one_trace() -> PyErr {
    refused("objects=True is for one trace")
}
