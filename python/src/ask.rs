//! `simulate`: from arguments as a command line has them to the JSON that it prints.

use crate::arrow::Rows;
use crate::numbers::{NAME, NumberReader};
use crate::patience::patiently;
use crate::policy::Classes;
use crate::refused;
use futae_policy::register;
use futae_sim::run::{
    Latency, Reading as FileReading, TraceFacts, TraceSimulation, Traces, ViewChoice,
    simulate_guests, simulate_one_pass,
};
use futae_sim::{
    LevelSpec, Link, Report, SimulationError, SimulationSpec, WriteMode, links, simulate_all,
};
use futae_trace::{Columns, Format, TraceOptions, WorkloadSpec, is_trace};
use futae_units::{BLOCK_BYTES_MAX, SIMULATED_BLOCK_BYTES_MIN, parse_block_bytes};
use pyo3::prelude::*;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

type Tell<'a> = &'a (dyn Fn(f64) + Sync);

/// How requests are read, as the options of the command line say it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Reading {
    block: String,
    format: Option<String>,
    columns: Option<String>,
    skip_bad: bool,
    view: Option<String>,
}

/// How levels are joined and what is counted, as the options of the command line say it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Settings {
    link: Option<String>,
    write_mode: String,
    guests: Option<u32>,
    seed: u64,
    warmup: Option<u64>,
    requests: Option<u64>,
    latency: Option<String>,
    threads: Option<usize>,
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

/// What a simulation is made of, once it has been read.
struct Asked {
    sources: Vec<String>,
    hierarchies: Vec<Vec<LevelSpec>>,
    link: Option<Link>,
    write_mode: WriteMode,
    threads: usize,
}

pub fn parsed<T: FromStr<Err: Display>>(text: &str) -> PyResult<T> {
    text.parse().map_err(refused)
}

fn parsed_option<T: FromStr<Err: Display>>(text: Option<&String>) -> PyResult<Option<T>> {
    text.map(|text| parsed(text)).transpose()
}

impl Reading {
    /// Bytes of a block.
    pub fn block_bytes(&self) -> PyResult<u64> {
        parse_block_bytes(&self.block, SIMULATED_BLOCK_BYTES_MIN, BLOCK_BYTES_MAX).map_err(refused)
    }

    /// What a reader of traces is told.
    pub fn options(&self) -> PyResult<TraceOptions> {
        Ok(TraceOptions {
            format: parsed_option::<Format>(self.format.as_ref())?,
            columns: parsed_option::<Columns>(self.columns.as_ref())?,
            unit_bytes: self.block_bytes()?,
            skip_bad: self.skip_bad,
            ..TraceOptions::default()
        })
    }

    /// What of a request is a block.
    pub fn view(&self) -> PyResult<ViewChoice> {
        Ok(parsed_option(self.view.as_ref())?.unwrap_or_default())
    }

    /// An error if something is said of files, where there is none.
    pub fn refuse(&self) -> PyResult<()> {
        let given = [
            ("format", self.format.is_some()),
            ("columns", self.columns.is_some()),
            ("skip_bad", self.skip_bad),
            ("view", self.view.is_some()),
        ];
        match given.iter().find(|option| option.1) {
            Some((option, _)) => Err(refused(format!("{option} is for trace files"))),
            None => Ok(()),
        }
    }
}

/// Simulates each of `hierarchies` under the same requests. Returns what `futae sim --json` prints, and warnings.
#[pyfunction]
pub fn simulate(
    py: Python<'_>,
    sources: Vec<String>,
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
        let raised = classes.as_ref().and_then(|classes| classes.raised());
        if raised.is_some() {
            refused.set_cause(py, raised);
        }
        refused
    };
    let parsed = |text: &str| {
        text.parse::<LevelSpec>()
            .map_err(|error| refused(error.to_string()))
    };
    let levels = |texts: &Vec<String>| texts.iter().map(|text| parsed(text)).collect();
    let usual = || std::thread::available_parallelism().map_or(1, usize::from);
    let asked = Asked {
        hierarchies: hierarchies.iter().map(levels).collect::<PyResult<_>>()?,
        link: parsed_option(settings.link.as_ref())?,
        write_mode: self::parsed(&settings.write_mode)?,
        // There is one lock for all that Python does.
        threads: match &classes {
            Some(_) => 1,
            None => settings.threads.unwrap_or_else(usual),
        },
        sources,
    };
    let latency: Option<Latency> = parsed_option(settings.latency.as_ref())?;
    let is_file = |source: &&String| is_trace(source);
    let work = match asked.sources.iter().filter(is_file).count() {
        0 if !given.tables.is_empty() => asked.of_tables(&given.tables, &settings, &reading)?,
        0 if !given.arrays.is_empty() => asked.of_arrays(&given.arrays, &settings, &reading)?,
        0 => asked.of_workloads(&settings, &reading)?,
        files if files == asked.sources.len() => asked.of_traces(&settings, &reading)?,
        _ => {
            return Err(refused(
                "either all guests have traces, or all have workloads".to_owned(),
            ));
        }
    };
    let report = patiently(py, progress.as_ref(), classes.is_some(), work)?;
    let mut report = report.map_err(|error| refused(error.to_string()))?;
    if let Some(latency) = &latency {
        report
            .runs
            .iter_mut()
            .for_each(|run| run.set_latency(latency));
    }
    let mut warnings = asked.lone_exclusive();
    warnings.extend(report.trace.iter().flat_map(of_facts));
    let json = serde_json::to_string(&report).map_err(|error| refused(error.to_string()))?;
    Ok((json, warnings))
}

/// Why the traces may not be read as they were meant, and what was left out of them.
pub fn of_facts(facts: &TraceFacts) -> Vec<String> {
    let mut warnings: Vec<String> = facts.doubts.iter().map(ToString::to_string).collect();
    if facts.records_skipped > 0 {
        warnings.push(format!("{} bad records left out", facts.records_skipped));
    }
    warnings
}

type Outcome = Result<Report, SimulationError>;
type Work<'a> = Box<dyn FnOnce(Tell<'_>) -> Outcome + Send + 'a>;

impl Asked {
    /// An exclusive cache at the top is asked, but nobody demotes to it.
    fn lone_exclusive(&self) -> Vec<String> {
        let tops = self.hierarchies.iter().filter_map(|levels| levels.first());
        let lone = tops.into_iter().find(|top| top.policy.lives_on_demotions());
        let warning = |top: &LevelSpec| {
            format!(
                "{top} keeps only what the level above demotes to it, and there is none, so it hits nothing; name the \
                 upper level first, such as levels=[\"lru:1GiB\", \"{top}\"]"
            )
        };
        lone.map(warning).into_iter().collect()
    }

    fn of_workloads<'a>(&'a self, settings: &'a Settings, reading: &Reading) -> PyResult<Work<'a>> {
        let read = |source: &String| {
            source
                .parse::<WorkloadSpec>()
                .map_err(|error| match source.contains(':') {
                    true => refused(error),
                    false => refused(format!("{source} is no file, and no workload: {error}")),
                })
        };
        let workloads: Vec<_> = self
            .sources
            .iter()
            .map(read)
            .collect::<PyResult<Vec<WorkloadSpec>>>()?;
        reading.refuse()?;
        let Some(first) = workloads.first() else {
            return Err(refused(SimulationError::Empty));
        };
        let several = workloads.len() > 1;
        let guests = match settings.guests {
            Some(guests) if several && guests as usize != workloads.len() => {
                let message = format!("guests={guests} does not fit {} workloads", workloads.len());
                return Err(refused(message));
            }
            guests => guests.unwrap_or(workloads.len() as u32),
        };
        let block_bytes = reading.block_bytes()?;
        let one = |levels: &Vec<LevelSpec>| SimulationSpec {
            links: links(levels, self.link),
            levels: levels.clone(),
            write_mode: self.write_mode,
            guests,
            workload: first.clone(),
            block_bytes,
            seed: settings.seed,
            warmup_requests: settings.warmup,
            requests: settings.requests,
        };
        let specs: Vec<_> = self.hierarchies.iter().map(one).collect();
        Ok(Box::new(move |tell| match several {
            true => simulate_guests(&specs, &workloads, self.threads, tell),
            false => simulate_all(&specs, self.threads, tell),
        }))
    }

    /// Reads the arrays on the thread that simulates.
    fn of_arrays<'a>(
        &'a self,
        arrays: &[Bound<'_, PyAny>],
        settings: &Settings,
        reading: &Reading,
    ) -> PyResult<Work<'a>> {
        reading.refuse()?;
        self.check_guests(settings, arrays.len())?;
        let block_bytes = reading.block_bytes()?;
        let open = |array| NumberReader::open(array, block_bytes);
        let readers = arrays.iter().map(open).collect::<PyResult<Vec<_>>>()?;
        let hierarchies = self.of_trace(settings);
        Ok(Box::new(move |tell| {
            let count = readers.len() as f64;
            let telling = |(at, reader): (usize, NumberReader)| {
                reader.telling(move |done| tell((at as f64 + done) / count / 2.0))
            };
            let mut readers: Vec<_> = readers.into_iter().enumerate().map(telling).collect();
            let traces = Traces::of_readers(&mut readers, NAME, block_bytes)?;
            let later = |done: f64| tell(0.5 + done / 2.0);
            traces.simulate(&hierarchies, block_bytes, self.threads, &later)
        }))
    }

    /// Reads the tables on the thread that simulates.
    fn of_tables<'a>(
        &'a self,
        tables: &[PyRef<'_, Rows>],
        settings: &'a Settings,
        reading: &Reading,
    ) -> PyResult<Work<'a>> {
        self.check_guests(settings, tables.len())?;
        let options = reading.options()?;
        let mut opened = Vec::new();
        for (at, table) in tables.iter().enumerate() {
            let name = match tables.len() {
                1 => "table".to_owned(),
                _ => format!("table {at}"),
            };
            opened.push(table.open(&name, &options)?);
        }
        let all = FileReading {
            options: vec![options.clone(); opened.len()],
            view: reading.view()?,
            ..FileReading::default()
        };
        let hierarchies = self.of_trace(settings);
        Ok(Box::new(move |tell| {
            let traces = Traces::read_opened(opened, "table", &all, &mut |done| tell(done / 2.0))?;
            let later = |done: f64| tell(0.5 + done / 2.0);
            traces.simulate(&hierarchies, options.unit_bytes, self.threads, &later)
        }))
    }

    /// An error if another number of guests is asked for than there are.
    fn check_guests(&self, settings: &Settings, guests: usize) -> PyResult<()> {
        match settings.guests {
            Some(asked) if asked as usize != guests => Err(refused(
                "each guest has a trace of its own: name one for each",
            )),
            _ => Ok(()),
        }
    }

    fn of_trace(&self, settings: &Settings) -> Vec<TraceSimulation> {
        let one = |levels: &Vec<LevelSpec>| TraceSimulation {
            links: links(levels, self.link),
            levels: levels.clone(),
            write_mode: self.write_mode,
            seed: settings.seed,
            warmup_requests: settings.warmup.unwrap_or(0),
            requests: settings.requests,
        };
        self.hierarchies.iter().map(one).collect()
    }

    fn of_traces<'a>(&'a self, settings: &'a Settings, reading: &Reading) -> PyResult<Work<'a>> {
        let paths: Vec<PathBuf> = self.sources.iter().map(PathBuf::from).collect();
        self.check_guests(settings, paths.len())?;
        let (view, options) = (reading.view()?, reading.options()?);
        let hierarchies = self.of_trace(settings);
        Ok(Box::new(move |tell| {
            if let ([path], [only]) = (&paths[..], &hierarchies[..])
                && only.is_one_pass(view)
            {
                return simulate_one_pass(path, &options, view, only, &mut |done| tell(done));
            }
            let traces = Traces::read(&paths, &options, view, &mut |done| tell(done / 2.0))?;
            let later = |done: f64| tell(0.5 + done / 2.0);
            traces.simulate(&hierarchies, options.unit_bytes, self.threads, &later)
        }))
    }
}
