//! A simulation as one page that needs nothing else: charts, numbers, and what they were made of.
//!
//! The page holds no time and no path but those of the command, so the same command gives the same
//! bytes. Charts are drawn here, in SVG; a small script adds what a hand can do with them. The
//! results are in the page as JSON too, under `results`.

mod bars;
mod charts;
mod facts;
mod sizes;
mod study;

use crate::plot::{Plot, escaped};
use charts::{Chart, Drawing};
use futae_sim::Report;
use futae_sim::run::Requests;
use futae_terminal::failure::Failure;
use serde_json::{Value, json};
use std::fmt::Write;
use study::{EXACT_REQUESTS_MAX, Study};

const STYLE: &str = include_str!("report/page.css");
const SCRIPT: &str = include_str!("report/page.js");

/// What a page is made of.
pub struct Subject<'a> {
    /// The results.
    pub report: &'a Report,
    /// The requests that led to them.
    pub requests: Requests<'a>,
    /// What the requests are called.
    pub source: &'a str,
    /// The command line.
    pub command: &'a str,
}

/// The page. `progress` is given the fraction done.
pub fn page(subject: &Subject<'_>, progress: &dyn Fn(f64)) -> Result<String, Failure> {
    let report = subject.report;
    let study = Study::new(report, subject.requests, EXACT_REQUESTS_MAX, progress)?;
    let charts = charts::charts(report, &study);
    let source = escaped(subject.source);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"futae {}\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>futae: {source}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header>\n<h1>{}</h1>\n<p>A simulation by futae of {source}.</p>\n</header>\n<main>\n",
        report.version,
        escaped(&heading(report)),
    );
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "<section id=\"facts\">\n<h2>The run</h2>\n{}</section>",
        facts::facts(report, &study, subject.source, subject.command)
    );
    page.push_str("<div class=\"charts\">\n");
    for chart in &charts {
        page.push_str(&figure(chart));
    }
    let data = data(report, &study)?;
    let _ = write!(
        page,
        "</div>\n<section id=\"numbers\">\n<h2>Numbers</h2>\n<div class=\"wide\">\n{}</div>\n\
         </section>\n</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n\
         <script type=\"application/json\" id=\"results\">{data}</script>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        facts::table(report)
    );
    Ok(page)
}

/// What the page is about, in a few words.
fn heading(report: &Report) -> String {
    match &report.runs[..] {
        [run] => {
            let levels = run.levels.iter().map(|level| {
                let size = sizes::size_text(report, level.capacity_blocks);
                format!("{} of {size}", level.policy)
            });
            levels.collect::<Vec<_>>().join(" over ")
        }
        runs => {
            let mut policies: Vec<&str> = runs
                .iter()
                .flat_map(|run| &run.levels)
                .map(|level| level.policy.as_str())
                .collect();
            policies.sort_unstable();
            policies.dedup();
            match policies.len() {
                1 => format!("{} at {} sizes", policies[0], runs.len()),
                n => format!("{n} policies, {} caches", runs.len()),
            }
        }
    }
}

fn figure(chart: &Chart) -> String {
    let mut class = "";
    let (drawing, legend) = match &chart.drawing {
        Drawing::Lines(plot) => (plot.figure(), legend(plot)),
        Drawing::Bars(panels) => {
            let largest = panels.iter().map(bars::Bars::largest).fold(0.0, f64::max);
            let is_narrow = panels.len() > 2;
            let panels = panels.iter();
            let panels = panels.map(|panel| panel.figure(largest, is_narrow));
            if is_narrow {
                class = " class=\"panels\"";
            }
            let panels = panels.collect::<String>();
            (format!("<div>\n{panels}</div>\n"), String::new())
        }
    };
    format!(
        "<figure id=\"{}\"{class}>\n<h2>{}</h2>\n{drawing}{legend}<figcaption>{}</figcaption>\n</figure>\n",
        chart.id,
        chart.title,
        escaped(&chart.note)
    )
}

/// The legend: a press on a name hides its line.
fn legend(plot: &Plot) -> String {
    let mut html = "<ul class=\"legend\">\n".to_owned();
    for (at, line) in plot.lines.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(
            html,
            "<li><button aria-pressed=\"true\" data-line=\"{at}\">{}{}</button></li>",
            Plot::legend_key(at, line.look),
            escaped(&line.name)
        );
        for rule in plot.rules.iter().filter(|rule| rule.line == at) {
            let _ = writeln!(
                html,
                "<li class=\"of-rule\">{}{}</li>",
                Plot::rule_key(at),
                escaped(&rule.name)
            );
        }
    }
    html + "</ul>\n"
}

/// The results as JSON, as it may stand in a script element; without how long they took, which is
/// never the same.
fn data(report: &Report, study: &Study) -> Result<String, Failure> {
    let mut results = serde_json::to_value(report)?;
    for run in results["runs"].as_array_mut().into_iter().flatten() {
        run.as_object_mut().map(|run| run.shift_remove("seconds"));
    }
    let trace = results.get_mut("trace").and_then(Value::as_object_mut);
    trace.map(|trace| trace.shift_remove("read_seconds"));
    let place = |(name, intervals): &(String, futae_sim::locality::Intervals)| {
        json!({
            "place": name,
            "reaccesses": intervals.reaccesses(),
            "median_bytes": intervals.quantile_bytes(0.5),
            "gap_bytes": intervals.gap_bytes(),
        })
    };
    let places: Vec<Value> = study.places.iter().map(place).collect();
    results["lru_curve"] = json!({ "method": study.method });
    results["locality"] = json!(places);
    Ok(serde_json::to_string(&results)?.replace('<', "\\u003c"))
}

#[cfg(test)]
mod tests;
