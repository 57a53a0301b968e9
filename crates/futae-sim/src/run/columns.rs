//! Results as a table for other programs: named columns, for CSV and Parquet.

use super::{LevelResult, Report, Run};
use std::fmt::Write;

/// One column of the table of results.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name, as in the JSON. Columns of the whole run that share their name with one of a level
    /// have the prefix `all_`.
    pub name: &'static str,
    /// One value for each row.
    pub values: Values,
}

/// The values of a column, row by row.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Counts and sizes.
    Counts(Vec<u64>),
    /// Ratios and seconds; `None` if undefined.
    Numbers(Vec<Option<f64>>),
    /// Names.
    Texts(Vec<String>),
}

impl Values {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Counts(counts) => counts.len(),
            Self::Numbers(numbers) => numbers.len(),
            Self::Texts(texts) => texts.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a row as text, which [`push`](Self::push) parses without loss.
    #[must_use]
    pub fn text(&self, row: usize) -> String {
        match self {
            Self::Texts(texts) => texts[row].clone(),
            other => other.cell(row),
        }
    }

    /// Adds a value in the format of [`text`](Self::text). Returns whether it is valid for this
    /// column.
    pub fn push(&mut self, text: &str) -> bool {
        match self {
            Self::Texts(texts) => texts.push(text.to_owned()),
            Self::Numbers(numbers) if text.is_empty() => numbers.push(None),
            Self::Numbers(numbers) => match text.parse() {
                Ok(number) => numbers.push(Some(number)),
                Err(_) => return false,
            },
            Self::Counts(counts) => match text.parse() {
                Ok(count) => counts.push(count),
                Err(_) => return false,
            },
        }
        true
    }

    /// Adds the values of the same column of another table; values of another type are left out.
    pub fn append(&mut self, more: Self) {
        match (self, more) {
            (Self::Counts(all), Self::Counts(more)) => all.extend(more),
            (Self::Numbers(all), Self::Numbers(more)) => all.extend(more),
            (Self::Texts(all), Self::Texts(more)) => all.extend(more),
            _ => {}
        }
    }

    /// A CSV cell: empty for `None`.
    fn cell(&self, row: usize) -> String {
        match self {
            Self::Counts(counts) => counts[row].to_string(),
            Self::Numbers(numbers) => numbers[row].map_or_else(String::new, |n| n.to_string()),
            Self::Texts(texts) => quoted(&texts[row]),
        }
    }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// A row: a run and one of its levels, with their numbers from 0.
struct Row<'a> {
    report: &'a Report,
    run: (u64, &'a Run),
    level: (u64, &'a LevelResult),
}

impl Report {
    /// The report as a table: a row for each level of each run, numbered from 0.
    #[must_use]
    pub fn columns(&self) -> Vec<Column> {
        let rows = (0..).zip(&self.runs).flat_map(|run| {
            let levels = (0..).zip(&run.1.levels);
            levels.map(move |level| Row {
                report: self,
                run,
                level,
            })
        });
        let rows: Vec<Row<'_>> = rows.collect();
        let counts = |name, of: fn(&Row<'_>) -> u64| Column {
            name,
            values: Values::Counts(rows.iter().map(of).collect()),
        };
        let numbers = |name, of: fn(&Row<'_>) -> Option<f64>| Column {
            name,
            values: Values::Numbers(rows.iter().map(of).collect()),
        };
        let texts = |name, of: fn(&Row<'_>) -> String| Column {
            name,
            values: Values::Texts(rows.iter().map(of).collect()),
        };
        vec![
            counts("run", |row| row.run.0),
            counts("level", |row| row.level.0),
            texts("policy", |row| row.level.1.policy.clone()),
            counts("capacity_blocks", |row| row.level.1.capacity_blocks),
            counts("copies", |row| u64::from(row.level.1.copies)),
            counts("all_copies_blocks", |row| row.level.1.all_copies_blocks),
            counts("requests", |row| row.level.1.counters.requests),
            counts("hits", |row| row.level.1.counters.hits),
            counts("misses", |row| row.level.1.counters.misses),
            numbers("hit_ratio", |row| row.level.1.hit_ratio),
            counts("admissions", |row| row.level.1.counters.admissions),
            counts("bypasses", |row| row.level.1.counters.bypasses),
            counts("evictions", |row| row.level.1.counters.evictions),
            counts("demotions_in", |row| row.level.1.counters.demotions_in),
            counts("demotions_declined", |row| {
                row.level.1.counters.demotions_declined
            }),
            counts("demotions_out", |row| row.level.1.counters.demotions_out),
            counts("notices_in", |row| row.level.1.counters.notices_in),
            counts("notices_out", |row| row.level.1.counters.notices_out),
            counts("all_requests", |row| row.run.1.requests),
            counts("all_reads", |row| row.run.1.reads),
            counts("all_writes", |row| row.run.1.writes),
            numbers("all_miss_ratio", |row| row.run.1.miss_ratio),
            numbers("all_byte_miss_ratio", |row| row.run.1.byte_miss_ratio),
            numbers("all_read_miss_ratio", |row| row.run.1.read_miss_ratio),
            counts("store_reads", |row| row.run.1.store_reads),
            counts("store_writes", |row| row.run.1.store_writes),
            counts("notice_reads", |row| row.run.1.notice_reads),
            counts("preload_reads", |row| row.run.1.preload_reads),
            counts("warmup_requests", |row| row.run.1.warmup_requests),
            counts("block_bytes", |row| row.run.1.block_bytes),
            counts("guests", |row| u64::from(row.run.1.guests)),
            counts("footprint_blocks", |row| row.run.1.footprint_blocks),
            numbers("seconds", |row| Some(row.run.1.seconds)),
            counts("seed", |row| row.report.seed),
            texts("trace_digest", |row| row.report.trace_digest.clone()),
            numbers("mean_access_seconds", |row| {
                row.run.1.access_times?.mean_access_seconds
            }),
            numbers("p50_access_seconds", |row| {
                row.run.1.access_times?.p50_access_seconds
            }),
            numbers("p90_access_seconds", |row| {
                row.run.1.access_times?.p90_access_seconds
            }),
            numbers("p99_access_seconds", |row| {
                row.run.1.access_times?.p99_access_seconds
            }),
            texts("write_mode", |row| row.run.1.write_mode.to_string()),
            counts("overwrites", |row| row.level.1.overwrites),
            counts("dirty_evictions", |row| row.level.1.dirty_evictions),
            counts("dirty_blocks", |row| row.level.1.dirty_blocks),
            counts("all_dirty_evictions", |row| row.run.1.dirty_evictions),
            counts("all_dirty_blocks", |row| row.run.1.dirty_blocks),
            counts("all_dirty_blocks_at_start", |row| {
                row.run.1.dirty_blocks_at_start
            }),
            texts("source", |row| row.report.source()),
        ]
    }

    /// What asked, as one text.
    #[must_use]
    pub fn source(&self) -> String {
        self.sources.join(" + ")
    }

    /// The [columns](Self::columns) as CSV, with a header.
    #[must_use]
    pub fn csv(&self) -> String {
        Column::csv(&self.columns())
    }

    /// A report without runs: its columns have names and types, and no rows.
    #[must_use]
    pub fn empty() -> Self {
        Self::of(Vec::new(), 0, String::new())
    }

    /// A report for each run, of the same requests.
    #[must_use]
    pub fn split(self) -> Vec<Self> {
        let of = |run| Self {
            runs: vec![run],
            sources: self.sources.clone(),
            seed: self.seed,
            trace_digest: self.trace_digest.clone(),
            trace: self.trace.clone(),
            version: self.version,
        };
        self.runs.into_iter().map(of).collect()
    }
}

impl Column {
    /// Columns of equal length as CSV, with a header.
    #[must_use]
    pub fn csv(columns: &[Self]) -> String {
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        let mut text = names.join(",") + "\n";
        for row in 0..columns.first().map_or(0, |first| first.values.len()) {
            let cells = columns.iter().map(|column| column.values.cell(row));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join(","));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Column, Values};

    #[test]
    fn a_name_with_lines_is_one_cell() {
        let names = ["a\nb", "a\rb", "plain", "a,\"b\""];
        let column = Column {
            name: "source",
            values: Values::Texts(names.map(str::to_owned).to_vec()),
        };
        let csv = "source\n\"a\nb\"\n\"a\rb\"\nplain\n\"a,\"\"b\"\"\"\n";
        assert_eq!(Column::csv(&[column]), csv);
    }
}
