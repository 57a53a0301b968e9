//! The hit ratio over time, from the windows of runs.

use crate::plot::{Line, Look, Plot, Scale};
use anyhow::Context;
use futae_terminal::failure::Failure;
use serde::Deserialize;
use std::path::PathBuf;

/// What of a report is drawn.
#[derive(Deserialize)]
struct Report {
    runs: Vec<Run>,
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
    let mut runs = Vec::new();
    for file in files {
        let shown = file.display();
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
        let report: Report = serde_json::from_str(&text)
            .map_err(|error| Failure::usage(format!("{shown} is no JSON of futae sim: {error}")))?;
        runs.extend(report.runs);
    }
    drawn(&runs)
}

fn drawn(runs: &[Run]) -> Result<Plot, Failure> {
    let windows = || runs.iter().flat_map(|run| &run.windows);
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
    let line = |run: &Run| Line {
        name: run
            .levels
            .iter()
            .map(|level| format!("{} of {}", level.policy, level.capacity_blocks))
            .collect::<Vec<_>>()
            .join(" > "),
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
        lines: runs.iter().map(line).collect(),
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
        let run: Run = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        drawn(&[run]).map_err(|failure| failure.to_string())
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
