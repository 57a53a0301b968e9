//! Reads of the store by memory: which runs are worth their memory.

use super::mean::Mean;
use super::runs::Run;
use crate::plot::{Line, Look, Plot, axis_unit};
use futae_terminal::failure::Failure;
use std::collections::{BTreeMap, BTreeSet};

/// What the legend calls the runs that no other run beats.
const FRONT: &str = "no run has less of both";

/// By the sizes of the levels: the memory of all, and how often the store was read.
type BySizes<'a> = BTreeMap<Vec<u64>, (u64, Mean<'a>)>;

/// Marks by hierarchy and source, means over seeds, and behind them the line through the best of each source.
pub fn pareto(runs: &[Run]) -> Result<Plot, Failure> {
    let sources: BTreeSet<&str> = runs.iter().map(|run| run.source.as_str()).collect();
    // By source and policies, then by sizes.
    let mut all: BTreeMap<(&str, String), BySizes<'_>> = BTreeMap::new();
    for run in runs {
        let Some(reads) = run.reads_per_request else {
            return Err(Failure::usage(
                "the results do not say how often the store was read; those of futae sweep, and of futae sim --csv or \
                 --json, do",
            ));
        };
        let (policies, sizes): (Vec<&str>, Vec<u64>) = run
            .levels
            .iter()
            .map(|(policy, bytes)| (policy.as_str(), *bytes))
            .unzip();
        let of_policies = all.entry((&run.source, policies.join(" > "))).or_default();
        let (memory, mean) = of_policies.entry(sizes).or_default();
        *memory = run.memory_bytes;
        mean.add(run, reads)?;
    }
    let largest = runs.iter().map(|run| run.memory_bytes).max().unwrap_or(0);
    let (unit, unit_name) = axis_unit(largest as f64);
    let points = |found: &BySizes<'_>| -> Vec<(f64, f64)> {
        let found = found.values();
        found
            .map(|(memory, mean)| (*memory as f64 / unit, mean.value()))
            .collect()
    };
    let shown = |name: &str, source: &str| match sources.len() {
        0 | 1 => name.to_owned(),
        _ => format!("{name}, {source}"),
    };
    let mut lines: Vec<Line> = all
        .iter()
        .map(|((source, policies), found)| Line {
            name: shown(policies, source),
            points: points(found),
            look: Look::Marks,
        })
        .collect();
    for source in &sources {
        let of_source = all.iter().filter(|((of, _), _)| of == source);
        let of_source = of_source.flat_map(|(_, found)| points(found)).collect();
        lines.push(Line {
            name: shown(FRONT, source),
            points: front(of_source),
            look: Look::Reference,
        });
    }
    let only = sources
        .first()
        .filter(|source| sources.len() == 1 && !source.is_empty());
    let title = "reads of the store by memory";
    Ok(Plot {
        title: only.map_or_else(|| title.to_owned(), |source| format!("{title}, {source}")),
        x_label: format!("memory of all caches, {unit_name}"),
        x_unit: unit_name,
        y_label: "reads of the store for each request".to_owned(),
        lines,
        ..Plot::default()
    })
}

/// The points than which no other has as little memory and as few reads, by memory.
fn front(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut least = f64::INFINITY;
    points.retain(|&(_, reads)| {
        let is_better = reads < least;
        least = least.min(reads);
        is_better
    });
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: &str, bytes: u64, reads: Option<f64>) -> Run {
        Run {
            source: "a".to_owned(),
            levels: vec![(policy.to_owned(), bytes)],
            miss_ratio: 0.5,
            half_width: None,
            memory_bytes: bytes,
            reads_per_request: reads,
            seed: None,
            conditions: Vec::new(),
        }
    }

    #[test]
    fn the_line_goes_through_what_no_run_beats() {
        let points = vec![(3.0, 0.2), (1.0, 0.9), (2.0, 0.9), (2.0, 0.4), (4.0, 0.3)];
        assert_eq!(front(points), [(1.0, 0.9), (2.0, 0.4), (3.0, 0.2)]);
        assert!(front(Vec::new()).is_empty());
    }

    #[test]
    fn seeds_are_one_mark_and_policies_have_their_own() {
        let mut runs = [
            run("lru", 512, Some(0.5)),
            run("lru", 512, Some(0.25)),
            run("arc", 1024, Some(0.5)),
        ];
        runs[1].seed = Some(2);
        let plot = pareto(&runs).map_err(|e| e.to_string()).expect("a plot");
        let names: Vec<&str> = plot.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["arc", "lru", FRONT]);
        assert_eq!(plot.lines[1].points, [(512.0, 0.375)]);
        assert_eq!(plot.lines[2].points, [(512.0, 0.375)], "arc reads more");
        assert!(plot.title.ends_with(", a"));
        let refused = pareto(&[run("lru", 512, None)]).map_err(|e| e.to_string());
        assert!(refused.is_err_and(|why| why.contains("how often the store was read")));
    }
}
