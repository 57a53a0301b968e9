//! `simulate`: from arguments as a command line has them to the JSON that it prints.

use crate::arrow::Rows;
use crate::error::refused;
use crate::patience::patiently;
use crate::policy::Classes;
use crate::reading::{Reading, parsed, parsed_option};
use crate::study::{Asked, Objects};
use futae_policy::register;
use futae_sim::LevelSpec;
use futae_sim::study::Study;
use futae_trace::is_trace;
use futae_units::Size;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::sync::Arc;

/// How levels are joined and what is counted, as the options of the command line say it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Settings {
    link: Option<String>,
    write_mode: String,
    pub guests: Option<u32>,
    seed: u64,
    warmup: Option<String>,
    requests: Option<u64>,
    windows: Option<String>,
    bounds: bool,
    order: Option<String>,
    latency: Option<String>,
    clients: Option<u32>,
    think: Option<String>,
    threads: Option<usize>,
    objects: bool,
    ttl: Option<String>,
    admit_size_max: Option<String>,
}

/// What no command line can say.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Given<'py> {
    /// Arrays of block numbers, one for each guest, in place of sources.
    arrays: Vec<Bound<'py, PyAny>>,
    /// Tables of requests, likewise.
    tables: Vec<PyRef<'py, Rows>>,
    /// Policies written in Python by the names that levels have for them.
    classes: Vec<(String, Py<PyAny>)>,
}

impl Settings {
    /// The hierarchies and all that is asked about them.
    fn study(
        &self,
        hierarchies: Vec<Vec<LevelSpec>>,
        block_bytes: u64,
        threads: usize,
    ) -> PyResult<Study> {
        let study = Study {
            hierarchies,
            link: parsed_option(self.link.as_ref())?,
            write_mode: parsed(&self.write_mode)?,
            seed: self.seed,
            warmup: parsed_option(self.warmup.as_ref())?,
            requests: self.requests,
            windows: parsed_option(self.windows.as_ref())?,
            bounds: self.bounds,
            order: parsed_option(self.order.as_ref())?,
            latency: parsed_option(self.latency.as_ref())?,
            clients: self.clients,
            think: parsed_option(self.think.as_ref())?,
            block_bytes,
            threads,
            keeps_requests: false,
        };
        study.check().map_err(refused)?;
        Ok(study)
    }

    /// What is asked about objects that differ in size, if it is that.
    fn objects(&self) -> PyResult<Option<Objects>> {
        if !self.objects {
            let given = [
                ("ttl", self.ttl.is_some()),
                ("admit_size_max", self.admit_size_max.is_some()),
            ];
            return match given.iter().find(|option| option.1) {
                Some((option, _)) => Err(refused(format!("{option} is for objects=True"))),
                None => Ok(None),
            };
        }
        let others = [
            ("link", self.link.is_some()),
            ("write_mode", self.write_mode != "write-through"),
            ("guests", self.guests.is_some()),
            ("windows", self.windows.is_some()),
            ("bounds", self.bounds),
            ("order", self.order.is_some()),
            ("latency", self.latency.is_some()),
            ("clients", self.clients.is_some()),
            ("think", self.think.is_some()),
        ];
        if let Some((other, _)) = others.iter().find(|other| other.1) {
            let message = format!("objects=True is for one cache: {other} cannot be used with it");
            return Err(refused(message));
        }
        Ok(Some(Objects {
            lives: parsed_option(self.ttl.as_ref())?.unwrap_or_default(),
            admit_size_max: parsed_option::<Size>(self.admit_size_max.as_ref())?,
        }))
    }
}

/// Simulates each of `hierarchies` under the same requests. Returns what `futae sim --json` prints, and warnings.
#[pyfunction]
pub fn simulate(
    py: Python<'_>,
    sources: Vec<OsString>,
    hierarchies: Vec<Vec<String>>,
    settings: Settings,
    reading: Reading,
    progress: Option<Py<PyAny>>,
    given: Given<'_>,
) -> PyResult<(String, Vec<String>)> {
    futae_plugin::enable();
    let classes = (!given.classes.is_empty()).then(|| Arc::new(Classes::new(given.classes)));
    let _registered = classes.clone().map(|classes| register(classes));
    // Exceptions come with the error that they led to.
    let refused = |error: String| {
        let refused = refused(error);
        match classes.as_ref().and_then(|classes| classes.raised()) {
            // Ctrl-C and the end of the program are no errors of a simulation.
            Some(raised) if !raised.is_instance_of::<PyException>(py) => return raised,
            None => {}
            raised => refused.set_cause(py, raised),
        }
        refused
    };
    let parsed = |text: &str| {
        text.parse::<LevelSpec>()
            .map_err(|error| refused(error.to_string()))
    };
    let levels = |texts: &Vec<String>| texts.iter().map(|text| parsed(text)).collect();
    let hierarchies = hierarchies.iter().map(levels).collect::<PyResult<_>>()?;
    let usual = || std::thread::available_parallelism().map_or(1, usize::from);
    // There is one lock for all that Python does.
    let threads = match &classes {
        Some(_) => 1,
        None => settings.threads.unwrap_or_else(usual),
    };
    let asked = Asked {
        objects: settings.objects()?,
        study: settings.study(hierarchies, reading.block_bytes()?, threads)?,
        guests: settings.guests,
        sources,
    };
    let is_file = |source: &&OsString| is_trace(source);
    let work = match asked.sources.iter().filter(is_file).count() {
        0 if !given.tables.is_empty() => asked.of_tables(&given.tables, &reading)?,
        0 if !given.arrays.is_empty() => asked.of_arrays(&given.arrays, &reading)?,
        0 => asked.of_workloads(&reading)?,
        files if files == asked.sources.len() => asked.of_traces(&reading)?,
        _ => {
            return Err(refused(
                "either all guests have traces, or all have workloads".to_owned(),
            ));
        }
    };
    let found = patiently(
        py,
        progress.as_ref(),
        classes.as_ref().map(|it| it.is_stopped()),
        work,
    )?;
    let (json, of_traces) = found.map_err(refused)?;
    let mut warnings: Vec<String> = asked.lone_exclusive().into_iter().collect();
    warnings.extend(of_traces);
    Ok((json, warnings))
}
