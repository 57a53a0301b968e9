//! The hit ratio over time, from the windows of runs.

use super::runs::is_ratio;
use crate::plot::{Line, Look, Plot, Scale};
use anyhow::Context;
use futae_terminal::failure::Failure;
use futae_terminal::text_file::read_text;
use serde::Deserialize;
use std::path::PathBuf;

/// What of a report is drawn.
#[derive(Deserialize)]
struct Report {
    runs: Vec<Run>,
    #[serde(default)]
    sources: Vec<String>,
    #[serde(default)]
    seed: u64,
}

#[derive(Deserialize)]
struct Run {
    levels: Vec<Level>,
    #[serde(default)]
    windows: Vec<Window>,
}

#[derive(Deserialize)]
struct Level {
    policy: String,
    capacity_blocks: u64,
}

#[derive(Deserialize)]
struct Window {
    begin_requests: u64,
    begin_seconds: Option<f64>,
    combined_hit_ratio: Option<f64>,
}

/// A line for each run. Windows without requests are left out.
pub fn over_time(files: &[PathBuf]) -> Result<Plot, Failure> {
    let mut reports = Vec::new();
    for file in files {
        let shown = file.display();
        let text = read_text(file).with_context(|| format!("cannot read {shown}"))?;
        let report: Report = serde_json::from_str(&text)
            .map_err(|error| Failure::usage(format!("{shown} is no JSON of futae sim: {error}")))?;
        let windows = report.runs.iter().flat_map(|run| &run.windows);
        let mut ratios = windows.filter_map(|window| window.combined_hit_ratio);
        if let Some(ratio) = ratios.find(|&ratio| !is_ratio(ratio)) {
            return Err(Failure::usage(format!(
                "{shown}: a window has a hit ratio of {ratio}; ratios are from 0 to 1"
            )));
        }
        reports.push(report);
    }
    drawn(&reports)
}

/// What tells a report from the others: its sources and its seed, where those differ.
fn told_apart(report: &Report, all: &[Report]) -> String {
    let mut more = String::new();
    if all.iter().any(|other| other.sources != report.sources) {
        more += &format!(", {}", report.sources.join(" + "));
    }
    if all.iter().any(|other| other.seed != report.seed) {
        more += &format!(", seed {}", report.seed);
    }
    more
}

fn drawn(reports: &[Report]) -> Result<Plot, Failure> {
    let runs = || {
        let each = reports.iter().map(|report| (report, &report.runs));
        each.flat_map(|(report, runs)| runs.iter().map(move |run| (report, run)))
    };
    let windows = || runs().flat_map(|(_, run)| &run.windows);
    if windows().next().is_none() {
        return Err(Failure::usage(
            "there are no windows in the results; futae sim writes them with --windows 24 --json, or --windows 1h --json",
        ));
    }
    let by_seconds = windows()
        .filter(|window| window.begin_seconds.is_some())
        .count();
    if by_seconds > 0 && by_seconds < windows().count() {
        return Err(Failure::usage(
            "some windows are of time and others of requests; draw them in pictures of their own",
        ));
    }
    let latest = windows()
        .filter_map(|window| window.begin_seconds)
        .fold(0.0, f64::max);
    let (unit, unit_name) = match latest {
        _ if by_seconds == 0 => (1.0, "requests"),
        86_400.0.. => (86_400.0, "days"),
        3600.0.. => (3600.0, "hours"),
        60.0.. => (60.0, "minutes"),
        _ => (1.0, "s"),
    };
    let line = |(report, run): (&Report, &Run)| Line {
        name: run
            .levels
            .iter()
            .map(|level| format!("{} of {}", level.policy, level.capacity_blocks))
            .collect::<Vec<_>>()
            .join(" > ")
            + &told_apart(report, reports),
        points: run
            .windows
            .iter()
            .filter_map(|window| {
                let x = window.begin_seconds.unwrap_or(window.begin_requests as f64);
                Some((x / unit, window.combined_hit_ratio?))
            })
            .collect(),
        look: Look::Marked,
    };
    Ok(Plot {
        title: "hit ratio over time".to_owned(),
        x_label: match by_seconds {
            0 => "requests counted when the window begins".to_owned(),
            _ => format!("time since the first request, {unit_name}"),
        },
        x_unit: unit_name,
        y_label: "hit ratio".to_owned(),
        y_scale: Scale::Percent,
        lines: runs().map(line).collect(),
        ..Plot::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(windows: &str) -> Result<Plot, String> {
        let text = format!(
            "{{\"levels\":[{{\"policy\":\"lru\",\"capacity_blocks\":5}}],\"windows\":[{windows}]}}"
        );
        let text = format!("{{\"runs\":[{text}]}}");
        let report: Report = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        drawn(&[report]).map_err(|failure| failure.to_string())
    }

    #[test]
    fn lines_of_other_sources_and_seeds_have_other_names() {
        let report = |source: &str, seed: u64| {
            let text = format!(
                "{{\"seed\":{seed},\"sources\":[\"{source}\"],\"runs\":[{{\"levels\":[{{\"policy\":\"lru\",\"capacity_blocks\":5}}],\
                 \"windows\":[{{\"begin_requests\":0,\"begin_seconds\":null,\"combined_hit_ratio\":0.25}}]}}]}}"
            );
            serde_json::from_str::<Report>(&text).expect("a report")
        };
        let names = |reports: &[Report]| -> Vec<String> {
            let plot = drawn(reports).map_err(|failure| failure.to_string());
            let lines = plot.expect("a plot").lines;
            lines.into_iter().map(|line| line.name).collect()
        };
        let two = names(&[report("a.csv", 1), report("b.csv", 1)]);
        assert_eq!(two, ["lru of 5, a.csv", "lru of 5, b.csv"]);
        let two = names(&[report("a.csv", 1), report("a.csv", 2)]);
        assert_eq!(two, ["lru of 5, seed 1", "lru of 5, seed 2"]);
        assert_eq!(names(&[report("a.csv", 1)]), ["lru of 5"]);
    }

    #[test]
    fn windows_are_points_of_a_line() {
        let timed = "{\"begin_requests\":0,\"begin_seconds\":0.0,\"combined_hit_ratio\":null},\
                     {\"begin_requests\":0,\"begin_seconds\":7200.0,\"combined_hit_ratio\":0.5}";
        let plot = runs(timed).expect("a plot");
        assert_eq!(plot.lines[0].points, [(2.0, 0.5)]);
        assert!(plot.x_label.ends_with("hours") && plot.lines[0].name == "lru of 5");
        let counted = "{\"begin_requests\":7,\"begin_seconds\":null,\"combined_hit_ratio\":0.25}";
        assert_eq!(
            runs(counted).expect("a plot").lines[0].points,
            [(7.0, 0.25)]
        );
        assert!(runs("").is_err_and(|e| e.contains("--windows")));
        let mixed = format!("{counted},{timed}");
        assert!(runs(&mixed).is_err_and(|e| e.contains("pictures of their own")));
    }
}
