//! Hit ratios that papers print, beside ours on the same traces.

use crate::command::sim::failure;
use crate::save::print;
use anyhow::{Context, anyhow};
use futae_sim::run::{TraceSimulation, Traces, ViewChoice};
use futae_sim::{LevelSpec, WriteMode};
use futae_terminal::failure::Failure;
use futae_terminal::progress::Progress;
use futae_terminal::table::Table;
use futae_trace::TraceOptions;
use serde::{Serialize, Serializer};
use std::path::PathBuf;

/// What the papers print, by trace.
const PRINTED: &str = include_str!("published.csv");

/// A paper that prints hit ratios of traces that can be had.
struct Paper {
    /// Its name in `published.csv`.
    key: &'static str,
    name: &'static str,
    /// Its blocks, in its own terms.
    blocks: &'static str,
    /// Points that a figure may be away, and why.
    tolerance_points: f64,
    why: &'static str,
}

/// In results it is its name.
impl Serialize for Paper {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

/// The pages of the traces that have any. The others number their blocks.
const BLOCK_BYTES: u64 = 512;

const PAPERS: [Paper; 2] = [
    // "ARC: a self-tuning, low overhead replacement cache", section V: its tables of OLTP and of all traces.
    Paper {
        key: "megiddo-2003",
        name: "Megiddo and Modha 2003",
        blocks: "pages of 512 bytes",
        tolerance_points: 0.02,
        why: "the paper prints hundredths, and leaves open how a trace begins and in which order a request's pages are asked for",
    },
    // "Mooncake: Trading More Storage for Less Computation", FAST 2025: the cache ratios of table 2, and figure 9 at 3 million
    // tokens, where it prints the part of these ratios.
    Paper {
        key: "qin-2025",
        name: "Qin and others 2025",
        blocks: "blocks of 512 tokens",
        tolerance_points: 4.0,
        why: "a shared prefix ends within a block, and the traces show it up to the block before, on average half a block too short",
    },
];

/// A printed figure, with ours.
#[derive(Clone, Serialize)]
pub struct Figure {
    paper: &'static Paper,
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
            key,
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
        let paper = PAPERS.iter().find(|paper| paper.key == key)?;
        Some(Figure {
            paper,
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

/// Simulates each trace at the sizes of the paper, prints, and fails if a figure is further away than its paper explains.
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
        let why = anyhow!("{away} figures are further from the published ones than is explained");
        return Err(why.into());
    }
    Ok(())
}

fn is_away(figure: &Figure) -> bool {
    figure.difference_points.abs() > figure.paper.tolerance_points
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
            "{} is none of the papers' traces ({}): {why}",
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
    let of_papers = figures.chunk_by(|a, b| a.paper.key == b.paper.key);
    let parts: Vec<String> = of_papers.map(render_paper).collect();
    parts.join("\n")
}

/// The figures of one paper, of which there is at least one.
fn render_paper(figures: &[Figure]) -> String {
    let paper = figures[0].paper;
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
        "Hit ratios of {} and of futae, in {}\n\n{}\n{} of {} figures are within {} points: {}.\n",
        paper.name,
        paper.blocks,
        table.render(),
        figures.len() - away,
        figures.len(),
        paper.tolerance_points,
        paper.why
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_figures_are_whole() {
        let figures = printed().expect("figures");
        assert_eq!(figures.len(), 18);
        for trace in figures.chunk_by(|a, b| a.trace == b.trace) {
            let same = |figure: &Figure| (figure.trace_requests, figure.size, figure.view);
            assert!(trace.iter().all(|figure| same(figure) == same(&trace[0])));
            if trace[0].paper.key != "megiddo-2003" {
                continue;
            }
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
