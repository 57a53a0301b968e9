//! What comes of cells: rows of a table.

use crate::{Plan, SweepError};
use futae_sim::Report;
use futae_sim::objects::ObjectReport;
use futae_sim::run::{Column, Values};
use std::collections::HashMap;

/// What is left out of the table: the number of a run within its cell, the time that it took, which is another
/// with each run, and the source, which the table names as the plan does.
const LEFT_OUT: [&str; 3] = ["run", "seconds", "source"];

/// What comes of one cell: a row for each of its levels.
pub struct Rows(Vec<Column>);

impl Rows {
    /// The rows of a cell, from the columns of its report.
    pub(crate) fn of(plan: &Plan, cell: usize, columns: Vec<Column>) -> Self {
        let rows = columns.first().map_or(0, |column| column.values.len());
        let mut all = names();
        let of_cell = &plan.cells[cell];
        let same = [
            Values::Counts(vec![cell as u64; rows]),
            Values::Texts(vec![of_cell.source_name.clone(); rows]),
            Values::Texts(vec![of_cell.hierarchy(); rows]),
        ];
        for (column, values) in all.iter_mut().zip(same) {
            column.values = values;
        }
        all.extend(kept(columns));
        Self(all)
    }

    /// The rows as the text that is kept of them: JSON, lists of texts.
    #[must_use]
    pub fn text(&self) -> String {
        let rows = 0..self.0.first().map_or(0, |first| first.values.len());
        let rows = rows.map(|row| {
            let texts = self.0.iter().map(|column| column.values.text(row));
            texts.collect::<Vec<_>>().into()
        });
        serde_json::Value::Array(rows.collect()).to_string()
    }
}

/// The columns before those of a report, without rows.
fn names() -> Vec<Column> {
    vec![
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
    ]
}

fn kept(columns: Vec<Column>) -> impl Iterator<Item = Column> {
    let columns = columns.into_iter();
    columns.filter(|column| !LEFT_OUT.contains(&column.name))
}

/// The table of a sweep: the columns of `futae sim --csv`, after `cell`, `source` and `hierarchy`.
pub struct Table<'a> {
    plan: &'a Plan,
    /// The columns of a cell, without rows.
    empty: Vec<Column>,
    columns: Vec<Column>,
}

impl<'a> Table<'a> {
    /// A table without rows.
    #[must_use]
    pub fn new(plan: &'a Plan) -> Self {
        let mut empty = names();
        empty.extend(kept(match plan.objects {
            Some(_) => ObjectReport::empty().columns(),
            None => Report::empty().columns(),
        }));
        Self {
            plan,
            columns: empty.clone(),
            empty,
        }
    }

    /// Adds the rows of a cell, as [`Rows::text`] wrote them. Returns false, and adds nothing, if the text is not
    /// whole, as a crash of the machine may leave it, or is of no such cell.
    pub fn add(&mut self, cell: usize, text: &str) -> bool {
        let rows = serde_json::from_str::<Vec<Vec<String>>>(text);
        let (Ok(rows), Some(of_plan)) = (rows, self.plan.cells.get(cell)) else {
            return false;
        };
        if rows.len() != of_plan.levels.len() {
            return false;
        }
        let mut scratch = self.empty.clone();
        for row in &rows {
            let is_whole = row.len() == scratch.len();
            let mut pairs = scratch.iter_mut().zip(row);
            if !is_whole || !pairs.all(|(column, text)| column.values.push(text)) {
                return false;
            }
        }
        for (column, more) in self.columns.iter_mut().zip(scratch) {
            column.values.append(more.values);
        }
        true
    }

    /// The columns.
    ///
    /// # Errors
    ///
    /// A trace was changed between two of its cells.
    pub fn columns(self) -> Result<Vec<Column>, SweepError> {
        self.same_requests(&self.columns)?;
        Ok(self.columns)
    }

    /// The cells of one source and seed have the same requests, unless the trace was changed meanwhile.
    fn same_requests(&self, columns: &[Column]) -> Result<(), SweepError> {
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
                return Err(SweepError::Files(format!(
                    "{} was changed between cell {at} and cell {cell}: remove the folder of the sweep and sweep again",
                    one.source_name,
                )));
            }
        }
        Ok(())
    }
}
