//! `futae sim --objects`: caches of objects that differ in size.

use super::args::Args;
use super::ask::{Shown, hierarchies, refused, threads};
use crate::save::print;
use futae_sim::objects::{ObjectReport, ObjectRun};
use futae_sim::study::ObjectStudy;
use futae_terminal::failure::Failure;
use futae_terminal::table::{Table, count};

/// Simulates and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let [source] = &args.sources[..] else {
        return Err(Failure::usage("--objects is for one trace"));
    };
    if !source.is_trace() {
        return Err(Failure::usage(format!(
            "--objects is for a trace, whose objects have sizes; {source} is no file"
        )));
    }
    let study = ObjectStudy {
        caches: hierarchies(args)?.into_iter().flatten().collect(),
        lives: args.ttl.unwrap_or_default(),
        admit_size_max: args.admit_size_max,
        seed: args.seed,
        warmup: args.warmup,
        requests: args.requests,
        threads: threads(args),
    };
    let (options, view) = (args.trace.options()?, args.view.choice()?);
    let shown = Shown::new(args.json);
    let report = study.of_file(source.path(), options, view, &shown);
    let report = report.map_err(refused)?;
    drop(shown);
    print(&if args.json {
        format!("{}\n", serde_json::to_string_pretty(&report)?)
    } else if args.csv {
        report.csv()
    } else {
        render(&report, source.text())
    })
}

fn render(report: &ObjectReport, source: &str) -> String {
    let mut table = Table::new([
        "policy",
        "bytes",
        "hits",
        "bytes missed",
        "too large",
        "expired",
        "evicted",
        "at the end",
    ]);
    let percent = |ratio: Option<f64>| match ratio {
        Some(ratio) => format!("{:.2} %", 100.0 * ratio),
        None => "–".to_owned(),
    };
    let row = |run: &ObjectRun| {
        [
            run.policy.clone(),
            count(run.capacity_bytes),
            percent(run.hit_ratio),
            percent(run.byte_miss_ratio),
            count(run.counts.too_large),
            count(run.counts.expired),
            count(run.counts.evictions),
            format!("{} objects", count(run.resident_objects)),
        ]
    };
    report.runs.iter().for_each(|run| table.row(row(run)));
    let requests = report.runs.first().map_or(0, |run| run.counts.requests);
    format!(
        "{source}: {} requests for {} objects of {} bytes in all, seed {}\n\n{}",
        count(requests),
        count(report.objects),
        count(report.footprint_bytes),
        report.seed,
        table.render()
    )
}
