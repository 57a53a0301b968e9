//! Hit ratios that papers print, beside ours on the same traces.

use crate::command::sim::failure;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::save::print;
use crate::table::Table;
use anyhow::{Context, anyhow};
use futae_sim::run::{TraceSimulation, Traces, ViewChoice};
use futae_sim::{LevelSpec, WriteMode};
use futae_trace::TraceOptions;
use serde::Serialize;
use std::path::PathBuf;

/// Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003, section V: its tables of OLTP and of all
/// traces.
const PRINTED: &str = include_str!("published.csv");
const PAPER: &str = "Megiddo and Modha 2003";
/// The paper's pages, and the unit of its traces.
const BLOCK_BYTES: u64 = 512;
/// Points that a figure may be away. The paper prints hundredths, and leaves open how a trace begins and in which order a request's pages
/// are asked for.
const TOLERANCE: f64 = 0.02;

/// A printed figure, with ours.
#[derive(Clone, Serialize)]
pub struct Figure {
    paper: &'static str,
    trace: &'static str,
    #[serde(skip)]
    trace_requests: u64,
    #[serde(skip)]
    view: ViewChoice,
    /// Requests for blocks, and distinct blocks, as the paper has them.
    #[serde(skip)]
    size: (u64, u64),
    policy: &'static str,
    capacity_blocks: u64,
    published_hit_percent: f64,
    futae_hit_percent: f64,
    difference_points: f64,
}

fn printed() -> Option<Vec<Figure>> {
    let figure = |line: &'static str| {
        let cells: Vec<&str> = line.split(',').collect();
        let &[
            trace,
            requests,
            view,
            accesses,
            distinct,
            policy,
            blocks,
            hits,
        ] = &cells[..]
        else {
            return None;
        };
        Some(Figure {
            paper: PAPER,
            trace,
            trace_requests: requests.parse().ok()?,
            view: match view {
                "start" => ViewChoice::Start,
                "blocks" => ViewChoice::Blocks,
                _ => return None,
            },
            size: (accesses.parse().ok()?, distinct.parse().ok()?),
            policy,
            capacity_blocks: blocks.parse().ok()?,
            published_hit_percent: hits.parse().ok()?,
            futae_hit_percent: 0.0,
            difference_points: 0.0,
        })
    };
    PRINTED.lines().skip(1).map(figure).collect()
}

/// Simulates each trace at the sizes of the paper, prints, and fails if a figure is further away than [`TOLERANCE`].
pub fn run(files: &[PathBuf], threads: usize, json: bool) -> Result<(), Failure> {
    let printed = printed().context("the published figures cannot be read")?;
    let mut all = Vec::new();
    for file in files {
        all.extend(of_file(file, &printed, threads, json)?);
    }
    let text = match json {
        true => format!("{}\n", serde_json::to_string_pretty(&all)?),
        false => render(&all),
    };
    print(&text)?;
    let away = all.iter().filter(|figure| is_away(figure)).count();
    if away > 0 {
        let why =
            anyhow!("{away} figures are more than {TOLERANCE} points from the published ones");
        return Err(why.into());
    }
    Ok(())
}

fn is_away(figure: &Figure) -> bool {
    figure.difference_points.abs() > TOLERANCE
}

fn of_file(
    file: &PathBuf,
    printed: &[Figure],
    threads: usize,
    json: bool,
) -> Result<Vec<Figure>, Failure> {
    let options = TraceOptions {
        unit_bytes: BLOCK_BYTES,
        ..TraceOptions::default()
    };
    let read = |view| {
        let progress = Progress::new("reading", json);
        Traces::read(std::slice::from_ref(file), &options, view, &mut |done| {
            progress.set(done);
        })
        .map_err(failure)
    };
    let mut traces = read(ViewChoice::Start)?;
    let requests = traces.facts().trace_requests;
    let of_trace = printed
        .iter()
        .filter(|figure| figure.trace_requests == requests);
    let mut figures: Vec<Figure> = of_trace.cloned().collect();
    let known = || {
        let mut names: Vec<&str> = printed.iter().map(|figure| figure.trace).collect();
        names.dedup();
        names.join(", ")
    };
    let stranger = |why: String| {
        Failure::usage(format!(
            "{} is none of the paper's traces ({}): {why}",
            file.display(),
            known()
        ))
    };
    let Some(first) = figures.first() else {
        return Err(stranger(format!("it has {requests} requests")));
    };
    if first.view == ViewChoice::Blocks {
        traces = read(ViewChoice::Blocks)?;
    }
    let facts = traces.facts();
    if (facts.accesses, facts.distinct_blocks) != first.size {
        return Err(stranger(format!(
            "it has as many requests as {}, but they are for {} of {} pages, and the paper has {} of {}",
            first.trace, facts.accesses, facts.distinct_blocks, first.size.0, first.size.1
        )));
    }
    let simulation = |figure: &Figure| {
        let level = format!("{}:{}blocks", figure.policy, figure.capacity_blocks);
        Ok(TraceSimulation {
            levels: vec![level.parse::<LevelSpec>()?],
            links: Vec::new(),
            write_mode: WriteMode::default(),
            seed: 1,
            warmup_requests: 0,
            requests: None,
        })
    };
    let simulations = figures
        .iter()
        .map(simulation)
        .collect::<Result<Vec<_>, Failure>>()?;
    let progress = Progress::new("simulating", json);
    let report = traces.simulate(&simulations, BLOCK_BYTES, threads, &|done| {
        progress.set(done);
    });
    let report = report.map_err(failure)?;
    for (figure, run) in figures.iter_mut().zip(&report.runs) {
        figure.futae_hit_percent = 100.0 * run.combined_hit_ratio.unwrap_or(0.0);
        figure.difference_points = figure.futae_hit_percent - figure.published_hit_percent;
    }
    Ok(figures)
}

fn render(figures: &[Figure]) -> String {
    let mut table = Table::new(["trace", "policy", "blocks", "published", "futae", "points"]);
    for figure in figures {
        table.row([
            figure.trace.to_owned(),
            figure.policy.to_owned(),
            figure.capacity_blocks.to_string(),
            format!("{:.2} %", figure.published_hit_percent),
            format!("{:.3} %", figure.futae_hit_percent),
            format!("{:+.3}", figure.difference_points),
        ]);
    }
    let away = figures.iter().filter(|figure| is_away(figure)).count();
    format!(
        "Hit ratios of {PAPER} and of futae, in pages of {BLOCK_BYTES} bytes\n\n{}\n{} of {} figures are within {TOLERANCE} points.\n",
        table.render(),
        figures.len() - away,
        figures.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_figures_are_whole() {
        let figures = printed().expect("figures");
        assert_eq!(figures.len(), 14);
        for trace in figures.chunk_by(|a, b| a.trace == b.trace) {
            let same = |figure: &Figure| (figure.trace_requests, figure.size, figure.view);
            assert!(trace.iter().all(|figure| same(figure) == same(&trace[0])));
            // ARC is ahead of LRU at each size, as the paper says.
            let (lru, arc) = trace.split_at(trace.len() / 2);
            for (lru, arc) in lru.iter().zip(arc) {
                assert_eq!((lru.policy, arc.policy), ("lru", "arc"));
                assert_eq!(lru.capacity_blocks, arc.capacity_blocks);
                assert!(lru.published_hit_percent < arc.published_hit_percent);
            }
        }
    }
}
