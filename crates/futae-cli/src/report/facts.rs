//! What a report was made of, and its numbers as a table.

use super::sizes::{is_of_objects, level_name, size_text};
use super::study::Study;
use crate::plot::escaped;
use futae_sim::{Report, WriteMode};
use futae_terminal::table::{count, percent};
use std::fmt::Write;

/// The facts, as a description list.
pub fn facts(report: &Report, study: &Study, source: &str, command: &str) -> String {
    let Some(first) = report.runs.first() else {
        return String::new();
    };
    let requests = format!(
        "{} ({} reads, {} writes), after {} of warm-up",
        count(first.requests),
        count(first.reads),
        count(first.writes),
        count(first.warmup_requests)
    );
    let blocks = match is_of_objects(report) {
        true => format!("{}, one an object", count(first.footprint_blocks)),
        false => format!(
            "{} of {} bytes: {}",
            count(first.footprint_blocks),
            first.block_bytes,
            size_text(report, first.footprint_blocks)
        ),
    };
    let mut facts = vec![
        ("command", format!("<code>{}</code>", escaped(command))),
        ("requests from", escaped(source)),
        ("requests counted", requests),
        ("blocks", blocks),
        ("guests", first.guests.to_string()),
    ];
    if !first.links.is_empty() {
        let links = first.links.iter().map(ToString::to_string);
        facts.push(("links, top down", links.collect::<Vec<_>>().join(", ")));
    }
    let writes = match first.write_mode {
        WriteMode::WriteThrough => first.write_mode.to_string(),
        WriteMode::WriteBack => format!(
            "{}, {} of them to the store, {} blocks left dirty",
            first.write_mode,
            count(first.store_writes),
            count(first.dirty_blocks)
        ),
    };
    if first.writes > 0 {
        facts.push(("writes", writes));
    }
    if let Some(trace) = &report.trace {
        let read = format!(
            "{}, {} requests as {} accesses to {}",
            trace.formats.join(", "),
            count(trace.trace_requests),
            count(trace.accesses),
            match trace.view {
                "start" => "objects, one a request",
                _ => "blocks",
            }
        );
        facts.push(("trace", read));
        if trace.records_skipped > 0 {
            facts.push(("bad records left out", count(trace.records_skipped)));
        }
    }
    facts.push(("LRU curve", escaped(&study.method)));
    facts.push(("seed", report.seed.to_string()));
    let digest = escaped(&report.trace_digest);
    facts.push(("trace digest", format!("<code>{digest}</code>")));
    facts.push(("futae", report.version.to_owned()));
    let rows = facts.iter().fold(String::new(), |mut rows, (name, fact)| {
        // Writing to a string cannot fail.
        let _ = writeln!(rows, "<div><dt>{name}</dt><dd>{fact}</dd></div>");
        rows
    });
    format!("<dl>\n{rows}</dl>\n")
}

/// A cell: what it shows, and what it is sorted by.
type Cell = (String, Option<f64>);

fn whole(n: u64) -> Cell {
    (count(n), Some(n as f64))
}

fn text(text: &str) -> Cell {
    (escaped(text), None)
}

/// The results, a row for each level of each run.
pub fn table(report: &Report) -> String {
    let is_deep = report.runs.iter().any(|run| run.levels.len() > 1);
    let is_timed = report.runs.iter().any(|run| run.access_times.is_some());
    let mut heads = vec![
        "level",
        "blocks",
        "size",
        "requests",
        "hits",
        "misses",
        "hit ratio",
        "evictions",
        "demoted in",
        "byte miss ratio",
    ];
    if is_timed {
        heads.extend(["mean, µs", "p50, µs", "p90, µs", "p99, µs"]);
    }
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let ratio = |ratio: Option<f64>| (percent(ratio), Some(ratio.unwrap_or(-1.0)));
    for run in &report.runs {
        let times = |cells: &mut Vec<Cell>| {
            let times = run.access_times.filter(|_| is_timed);
            let us = |seconds: Option<f64>| match seconds {
                Some(seconds) => (format!("{:.2}", 1e6 * seconds), Some(seconds)),
                None => text("–"),
            };
            if let Some(times) = times {
                cells.push(us(times.mean_access_seconds));
                cells.push(us(times.p50_access_seconds));
                cells.push(us(times.p90_access_seconds));
                cells.push(us(times.p99_access_seconds));
            }
        };
        for level in &run.levels {
            let name = match is_deep {
                true => level_name(report, run, level),
                false => level.policy.clone(),
            };
            let counters = &level.counters;
            let mut cells = vec![
                text(&name),
                whole(level.capacity_blocks),
                (
                    size_text(report, level.all_copies_blocks),
                    Some(level.all_copies_blocks as f64),
                ),
                whole(counters.requests),
                whole(counters.hits),
                whole(counters.misses),
                ratio(level.hit_ratio),
                whole(counters.evictions),
                whole(counters.demotions_in),
            ];
            if is_deep {
                cells.push(text(""));
            } else {
                cells.push(ratio(run.byte_miss_ratio));
                times(&mut cells);
            }
            rows.push(cells);
        }
        if is_deep {
            let all = run.levels.iter().map(|level| level.all_copies_blocks).sum();
            let missed = run.served.last().map_or(0, |at| at.reads + at.writes);
            let mut cells = vec![
                text("all together"),
                whole(all),
                (size_text(report, all), Some(all as f64)),
                whole(run.requests),
                whole(run.requests - missed),
                whole(missed),
                ratio(run.combined_hit_ratio),
                text(""),
                text(""),
                ratio(run.byte_miss_ratio),
            ];
            times(&mut cells);
            rows.push(cells);
        }
    }
    let mut html = "<table>\n<thead><tr>".to_owned();
    // Writing to a string cannot fail.
    for head in &heads {
        let _ = write!(html, "<th scope=\"col\"><button>{head}</button></th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &rows {
        html.push_str("<tr>");
        for at in 0..heads.len() {
            let _ = match row.get(at) {
                Some((shown, Some(sorted))) => {
                    write!(html, "<td data-by=\"{sorted}\">{shown}</td>")
                }
                Some((shown, None)) => write!(html, "<td>{shown}</td>"),
                None => write!(html, "<td></td>"),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table>\n");
    html
}
