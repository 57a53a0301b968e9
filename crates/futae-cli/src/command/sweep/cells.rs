//! The folder of a sweep: its manifest, a file for each cell that is done, and the table of all.

use super::plan::{Cell, Plan};
use crate::failure::Failure;
use crate::save::Output;
#[cfg(feature = "parquet")]
use crate::save::TableFile;
use anyhow::{Context, anyhow};
use futae_sim::Report;
use futae_sim::run::{Column, Values};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is left out of the table: the number of a run within its cell, and the time that it took, which is another
/// with each run.
const LEFT_OUT: [&str; 2] = ["run", "seconds"];

/// The results of a sweep, cell by cell.
pub struct Cells<'a> {
    folder: PathBuf,
    plan: &'a Plan,
    /// The columns of a cell, without rows.
    columns: Vec<Column>,
}

impl<'a> Cells<'a> {
    /// Opens the folder, or makes it. It is an error if another plan made it.
    pub fn open(folder: &Path, plan: &'a Plan) -> Result<Self, Failure> {
        let shown = folder.display();
        fs::create_dir_all(folder.join("cells"))
            .with_context(|| format!("cannot make the folder {shown}"))?;
        let manifest = folder.join("manifest");
        match fs::read_to_string(&manifest) {
            Ok(text) if text == plan.manifest => {}
            Ok(text) => return Err(Failure::usage(another(folder, &text, &plan.manifest))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Output::new(&manifest)?.write(plan.manifest.as_bytes())?;
            }
            Err(error) => return Err(anyhow!("cannot read {}: {error}", manifest.display()).into()),
        }
        Ok(Self {
            folder: folder.to_owned(),
            plan,
            columns: Self::columns_of(&[]),
        })
    }

    /// The table of some reports, each with the number of its cell.
    fn columns_of(reports: &[(usize, &Cell, &Report)]) -> Vec<Column> {
        let mut all = vec![
            Column {
                name: "cell",
                values: Values::Counts(Vec::new()),
            },
            Column {
                name: "source",
                values: Values::Texts(Vec::new()),
            },
            Column {
                name: "hierarchy",
                values: Values::Texts(Vec::new()),
            },
        ];
        let empty = Report::empty();
        all.extend(kept(&empty));
        for (number, cell, report) in reports {
            let rows: usize = report.runs.iter().map(|run| run.levels.len()).sum();
            for _ in 0..rows {
                for (column, text) in all.iter_mut().zip([
                    number.to_string(),
                    cell.source_name.clone(),
                    cell.hierarchy(),
                ]) {
                    // A number is one.
                    let _ = column.values.push(&text);
                }
            }
            for (column, more) in all.iter_mut().skip(3).zip(kept(report)) {
                column.values.append(more.values);
            }
        }
        all
    }

    fn path(&self, cell: usize) -> PathBuf {
        self.folder.join(format!("cells/{cell:06}.json"))
    }

    /// Whether a cell is done: its file is there and whole.
    pub fn is_done(&self, cell: usize) -> Result<bool, Failure> {
        let mut scratch = self.columns.clone();
        self.add(cell, &mut scratch)
    }

    /// Keeps what came of a cell.
    pub fn keep(&self, cell: usize, report: &Report) -> Result<(), Failure> {
        let columns = Self::columns_of(&[(cell, &self.plan.cells[cell], report)]);
        let rows = (0..columns.first().map_or(0, |first| first.values.len())).map(|row| {
            let texts = columns.iter().map(|column| column.values.text(row));
            texts.collect::<Vec<_>>()
        });
        let text = serde_json::to_string(&rows.collect::<Vec<_>>())?;
        Output::new(&self.path(cell))?.write(text.as_bytes())
    }

    /// Adds the rows of a cell to the columns. Returns whether it is done; a file that is not whole, as a crash of
    /// the machine may leave it, is as none.
    fn add(&self, cell: usize, columns: &mut [Column]) -> Result<bool, Failure> {
        let path = self.path(cell);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(anyhow!("cannot read {}: {error}", path.display()).into()),
        };
        let Ok(rows) = serde_json::from_str::<Vec<Vec<String>>>(&text) else {
            return Ok(false);
        };
        if rows.len() != self.plan.cells[cell].levels.len() {
            return Ok(false);
        }
        let mut scratch = self.columns.clone();
        for row in &rows {
            let is_whole = row.len() == columns.len();
            let mut pairs = scratch.iter_mut().zip(row);
            if !is_whole || !pairs.all(|(column, text)| column.values.push(text)) {
                return Ok(false);
            }
        }
        for (column, more) in columns.iter_mut().zip(scratch) {
            column.values.append(more.values);
        }
        Ok(true)
    }

    /// Writes the table of all cells that are done, in the order of the plan; where it is.
    pub fn write_table(&self) -> Result<PathBuf, Failure> {
        let mut columns = self.columns.clone();
        for cell in 0..self.plan.cells.len() {
            self.add(cell, &mut columns)?;
        }
        self.same_requests(&columns)?;
        let path = self.folder.join("results.csv");
        Output::new(&path)?.write(Column::csv(&columns).as_bytes())?;
        #[cfg(feature = "parquet")]
        TableFile::new(&self.folder.join("results.parquet"))?.write(&columns)?;
        Ok(path)
    }

    /// The cells of one source and seed have the same requests, unless the trace was changed meanwhile.
    fn same_requests(&self, columns: &[Column]) -> Result<(), Failure> {
        let texts = |name: &str| {
            let column = columns.iter().find(|column| column.name == name);
            let rows = column.map_or(0, |column| column.values.len());
            (0..rows).filter_map(move |row| Some(column?.values.text(row)))
        };
        let mut first = HashMap::new();
        for ((cell, digest), seed) in texts("cell").zip(texts("trace_digest")).zip(texts("seed")) {
            let Some(one) = cell
                .parse()
                .ok()
                .and_then(|at: usize| self.plan.cells.get(at))
            else {
                continue;
            };
            let (earlier, at) = first
                .entry((one.source, seed))
                .or_insert((digest.clone(), cell.clone()));
            if *earlier != digest {
                return Err(anyhow!(
                    "{} was changed between cell {at} and cell {cell}: remove their files in {} and sweep again",
                    one.source_name,
                    self.folder.join("cells").display()
                )
                .into());
            }
        }
        Ok(())
    }
}

fn kept(report: &Report) -> impl Iterator<Item = Column> {
    let columns = report.columns().into_iter();
    columns.filter(|column| !LEFT_OUT.contains(&column.name))
}

/// Says where two manifests part.
fn another(folder: &Path, there: &str, asked: &str) -> String {
    let shown = folder.display();
    let lines = there.lines().zip(asked.lines());
    let differs = lines.into_iter().find(|(a, b)| a != b);
    let what = match differs {
        Some((there, asked)) => format!("there: {there}; asked for: {asked}"),
        None => format!(
            "there are {} lines in its manifest, and {} are asked for",
            there.lines().count(),
            asked.lines().count()
        ),
    };
    format!(
        "{shown} holds the sweep of another plan ({what}); take another folder, or the plan that made it"
    )
}
