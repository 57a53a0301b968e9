//! `sweep`: the cells of a plan, as `futae sweep` does them.

use crate::error::refused;
use crate::patience::patiently;
use futae_sim::run::{Column, TraceFacts, Values};
use futae_sweep::{Folder, Plan, Rows, Table, summary, work};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Cells with what came of them, as text; cells that failed, with the reason; and warnings.
type Done = (Vec<(usize, String)>, Vec<(usize, String)>, Vec<String>);

/// A plan.
#[pyclass(frozen)]
pub struct Sweep(Plan);

#[pymethods]
impl Sweep {
    /// A plan from text, in TOML or JSON. Names of traces are relative to `folder`.
    #[new]
    fn new(text: &str, folder: PathBuf, is_json: bool) -> PyResult<Self> {
        futae_plugin::enable();
        let plan = match is_json {
            true => Plan::of_json(text, &folder),
            false => Plan::of_toml(text, &folder),
        };
        Ok(Self(plan.map_err(refused)?))
    }

    /// Each cell: the number of its source, and what it is called.
    fn cells(&self) -> Vec<(usize, String)> {
        let cells = self.0.cells.iter();
        cells.map(|cell| (cell.source, cell.to_string())).collect()
    }

    /// What a result may not be meant to be.
    fn warnings(&self) -> Vec<String> {
        self.0.warning().into_iter().collect()
    }

    /// The cells that a folder does not hold yet. The folder is made if it is not there.
    fn missing(&self, out: PathBuf) -> PyResult<Vec<usize>> {
        let folder = Folder::open(&out, &self.0).map_err(refused)?;
        let mut missing = Vec::new();
        for cell in 0..self.0.cells.len() {
            if !folder.is_done(cell).map_err(refused)? {
                missing.push(cell);
            }
        }
        Ok(missing)
    }

    /// Keeps in the folder what came of a cell.
    fn keep(&self, out: PathBuf, cell: usize, text: &str) -> PyResult<()> {
        let folder = Folder::open(&out, &self.0).map_err(refused)?;
        folder.keep_text(cell, text).map_err(refused)
    }

    /// Does cells. What comes of them is kept in the folder, or else returned.
    fn work(
        &self,
        py: Python<'_>,
        cells: Vec<usize>,
        threads: Option<usize>,
        out: Option<PathBuf>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Done> {
        if let Some(cell) = cells.iter().find(|&&cell| cell >= self.0.cells.len()) {
            return Err(refused(format!("the plan has no cell {cell}")));
        }
        let folder = out.map(|out| Folder::open(&out, &self.0)).transpose();
        let folder = folder.map_err(refused)?;
        let (found, warnings) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let usual = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or_else(usual);
        let keep = |cell: usize, rows: &Rows| match &folder {
            Some(folder) => folder.keep(cell, rows).map_err(|why| why.to_string()),
            None => {
                push(&found, (cell, rows.text()));
                Ok(())
            }
        };
        let read = |facts: &TraceFacts| {
            for warning in crate::reading::of_facts(facts) {
                push(&warnings, warning);
            }
        };
        let failed = patiently(py, progress.as_ref(), None, |tell| {
            work(&self.0, &cells, threads, tell, &keep, &read)
        })?;
        Ok((taken(found), failed, taken(warnings)))
    }

    /// The table of what a folder holds, which then holds it as `results.csv`, or of what is given: its columns by name.
    /// Of its summary, if that is asked for.
    fn table<'py>(
        &self,
        py: Python<'py>,
        out: Option<PathBuf>,
        mut rows: Vec<(usize, String)>,
        summed: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let columns = match out {
            Some(out) => {
                let folder = Folder::open(&out, &self.0).map_err(refused)?;
                let columns = folder.table().map_err(refused)?;
                folder.write_csv(&columns).map_err(refused)?;
                columns
            }
            None => {
                rows.sort_unstable();
                let mut table = Table::new(&self.0);
                for (cell, text) in &rows {
                    if !table.add(*cell, text) {
                        return Err(refused(format!("what came of cell {cell} is not whole")));
                    }
                }
                table.columns().map_err(refused)?
            }
        };
        let columns = match summed {
            true => summary(&columns),
            false => columns,
        };
        let dict = PyDict::new(py);
        for Column { name, values } in columns {
            let values = match values {
                Values::Counts(counts) => PyList::new(py, counts)?,
                Values::Numbers(numbers) => PyList::new(py, numbers)?,
                Values::Texts(texts) => PyList::new(py, texts)?,
            };
            dict.set_item(name, values)?;
        }
        Ok(dict)
    }
}

fn push<T>(to: &Mutex<Vec<T>>, one: T) {
    to.lock().unwrap_or_else(PoisonError::into_inner).push(one);
}

fn taken<T>(from: Mutex<Vec<T>>) -> Vec<T> {
    from.into_inner().unwrap_or_else(PoisonError::into_inner)
}
