//! Rows, as they come or all at the end.

use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use serde::Serialize;
use serde_json::json;
use std::io::Write;

/// One guest, one workload, and its model.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub kernel: String,
    pub lists: &'static str,
    pub bound: &'static str,
    /// The file system of the file that was read; none if it was the disk.
    pub file_system: Option<&'static str>,
    pub workload: String,
    /// Size of the page cache, once full.
    pub cache_pages: u64,
    pub reads: u64,
    /// As the agent counted.
    pub guest_hit_ratio: f64,
    /// From the reads of the guest's disk.
    pub disk_hit_ratio: f64,
    /// Share of the pages in the guest's cache at the end that are in the model's, too.
    pub common_share: f64,
    pub model: String,
    pub model_hit_ratio: f64,
    pub lru_hit_ratio: f64,
    /// From the agent's ratio, or with read-ahead from the disk's.
    pub difference_points: f64,
}

/// Prints a line a row, or JSON at the end.
pub struct Printer {
    is_json: bool,
    is_first: bool,
}

impl Printer {
    pub fn new(is_json: bool) -> Self {
        Self {
            is_json,
            is_first: true,
        }
    }

    /// Prints a row that is ready.
    pub fn row(&mut self, row: &Row) -> Result<(), Failure> {
        if self.is_json {
            return Ok(());
        }
        let mut out = output();
        if std::mem::take(&mut self.is_first) {
            writeln!(
                out,
                "kernel | lists | bound | reads | workload | pages | guest % | by disk % | model | model % | points | lru % | common %"
            )?;
            writeln!(
                out,
                "--- | --- | --- | --- | --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---:"
            )?;
        }
        let percent = |ratio: f64| format!("{:.2}", 100.0 * ratio);
        writeln!(
            out,
            "{} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:+.2} | {} | {}",
            row.kernel,
            row.lists,
            row.bound,
            row.file_system.unwrap_or("disk"),
            row.workload,
            row.cache_pages,
            percent(row.guest_hit_ratio),
            percent(row.disk_hit_ratio),
            row.model,
            percent(row.model_hit_ratio),
            row.difference_points,
            percent(row.lru_hit_ratio),
            percent(row.common_share),
        )?;
        out.flush()?;
        Ok(())
    }

    /// Prints what was not printed yet.
    pub fn end(&self, rows: &[Row]) -> Result<(), Failure> {
        if self.is_json {
            let mut out = output();
            serde_json::to_writer_pretty(&mut out, &json!({ "rows": rows }))?;
            writeln!(out)?;
        }
        Ok(())
    }
}
