//! Sizes as people read them: bytes, or blocks where a block has no size.

use crate::plot::{self, axis_unit};
use futae_sim::{LevelResult, Report, Run};
use futae_terminal::table::count;

/// The axis of cache sizes.
pub struct SizeAxis {
    /// What a block is on it.
    per_block: f64,
    /// The name of its unit.
    pub unit: &'static str,
}

/// Whether a request is one block whatever its length, so that a cache has no size in bytes.
pub fn is_of_objects(report: &Report) -> bool {
    let trace = report.trace.as_ref();
    trace.is_some_and(|trace| trace.view == "start")
}

impl SizeAxis {
    /// One up to this many blocks.
    pub fn up_to(report: &Report, blocks: u64) -> Self {
        let block_bytes = report.runs.first().map_or(1, |run| run.block_bytes);
        if is_of_objects(report) {
            let (per_block, unit) = match blocks {
                0..20_000 => (1.0, "blocks"),
                20_000..20_000_000 => (1e-3, "thousand blocks"),
                _ => (1e-6, "million blocks"),
            };
            return Self { per_block, unit };
        }
        let (unit, name) = axis_unit(blocks as f64 * block_bytes as f64);
        Self {
            per_block: block_bytes as f64 / unit,
            unit: name,
        }
    }

    /// Where a size is on it.
    pub fn at(&self, blocks: u64) -> f64 {
        blocks as f64 * self.per_block
    }
}

/// A size in the unit that suits it.
pub fn size_text(report: &Report, blocks: u64) -> String {
    if is_of_objects(report) {
        return format!("{} blocks", count(blocks));
    }
    let block_bytes = report.runs.first().map_or(1, |run| run.block_bytes);
    plot::size_text(blocks as f64 * block_bytes as f64)
}

/// A level as it is called where several are shown.
pub fn level_name(report: &Report, run: &Run, level: &LevelResult) -> String {
    let size = size_text(report, level.capacity_blocks);
    let copies = match level.copies {
        1 => String::new(),
        copies => format!(" × {copies}"),
    };
    let name = format!("{} of {size}{copies}", level.policy);
    match run.levels.len() {
        1 => name,
        _ => {
            let at = run.levels.iter().position(|one| std::ptr::eq(one, level));
            format!("level {}: {name}", at.map_or(0, |at| at + 1))
        }
    }
}
