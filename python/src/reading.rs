//! How traces are read, as Python says it.

use crate::error::refused;
use futae_sim::run::{TraceFacts, ViewChoice};
use futae_trace::{Columns, Format, TraceOptions};
use futae_units::{BLOCK_BYTES_MAX, SIMULATED_BLOCK_BYTES_MIN, parse_block_bytes};
use pyo3::prelude::*;
use std::fmt::Display;
use std::str::FromStr;

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

/// An argument that is written as an option of the command line.
pub fn parsed<T: FromStr<Err: Display>>(text: &str) -> PyResult<T> {
    text.parse().map_err(refused)
}

/// The same of one that may be absent.
pub fn parsed_option<T: FromStr<Err: Display>>(text: Option<&String>) -> PyResult<Option<T>> {
    text.map(|text| parsed(text)).transpose()
}

/// Why the traces may not be read as they were meant, and what was left out of them.
pub fn of_facts(facts: &TraceFacts) -> Vec<String> {
    let mut warnings: Vec<String> = facts.doubts.iter().map(ToString::to_string).collect();
    if facts.records_skipped > 0 {
        warnings.push(format!("{} bad records left out", facts.records_skipped));
    }
    warnings
}
