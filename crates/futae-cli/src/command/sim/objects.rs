//! `futae sim --objects`: caches of objects that differ in size.

use super::Args;
use super::ask::{failure, hierarchies, say_facts, threads};
use super::warmup::{Warmup, with_unit};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::save::print;
use crate::table::{Table, count};
use futae_sim::objects::{Lives, ObjectReport, ObjectRun, ObjectSimulation, simulate};
use futae_sim::run::{Reading, Traces, ViewChoice};
use futae_trace::{TraceOptions, is_trace};
use futae_units::Size;
use std::fmt::Write;
use std::str::FromStr;

/// How long objects live, as it is said on a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ttl(Lives);

impl FromStr for Ttl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(Lives::Ever));
        }
        let time = with_unit(text).map(|time| time.as_secs());
        let seconds = time.filter(|&seconds| seconds > 0);
        let lives = seconds.map(|seconds| Self(Lives::Seconds(seconds)));
        lives.ok_or_else(|| {
            format!("{text:?} is neither none nor a time of at least 1s (15min, 1h)")
        })
    }
}

/// Simulates and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let [source] = &args.sources[..] else {
        return Err(Failure::usage("--objects is for one trace"));
    };
    if !is_trace(source) {
        return Err(Failure::usage(format!(
            "--objects is for a trace, whose objects have sizes; {source} is no file"
        )));
    }
    let admit_bytes_max = match args.admit_size_max {
        None => None,
        Some(Size::Bytes(bytes)) => Some(bytes),
        Some(other) => {
            let message = format!(
                "--admit-size-max {other} is no size of an object: give bytes, such as 1MiB"
            );
            return Err(Failure::usage(message));
        }
    };
    let lives = args.ttl.map_or(Lives::Trace, |ttl| ttl.0);
    let options = TraceOptions {
        sizes: true,
        lives: lives == Lives::Trace,
        ..args.trace.options()?
    };
    let view = match args.view.choice()? {
        ViewChoice::Usual => ViewChoice::Start,
        chosen => chosen,
    };
    let progress = Progress::new("reading", args.json);
    let reading = Reading {
        keep_times: lives != Lives::Ever || args.warmup.is_some_and(Warmup::needs_times),
        options: vec![options],
        view,
        ..Reading::default()
    };
    let traces = Traces::read_guests(&[source.into()], &reading, &mut |done| {
        progress.set(done);
    });
    let traces = traces.map_err(failure)?;
    drop(progress);
    say_facts(traces.facts());
    let warmup = args
        .warmup
        .map(|warmup| warmup.of_traces(&traces))
        .transpose()?;
    let one = |level: futae_sim::LevelSpec| ObjectSimulation {
        size: level.size,
        policy: level.policy,
        admit_bytes_max,
        lives,
        seed: args.seed,
        warmup_requests: warmup.unwrap_or(0),
        requests: args.requests,
    };
    let simulations: Vec<_> = hierarchies(args)?.into_iter().flatten().map(one).collect();
    let progress = Progress::new("simulating", args.json);
    let report = simulate(&traces, &simulations, threads(args), &|done| {
        progress.set(done);
    });
    let report = report.map_err(Failure::usage)?;
    drop(progress);
    print(&if args.json {
        format!("{}\n", serde_json::to_string_pretty(&report)?)
    } else if args.csv {
        csv(&report)
    } else {
        render(&report, source)
    })
}

fn csv(report: &ObjectReport) -> String {
    let mut text = "policy,capacity_bytes,requests,hits,misses,hit_ratio,requested_bytes,missed_bytes,byte_miss_ratio,admissions,\
                    too_large,declined,expired,evictions,evicted_bytes,resident_objects,resident_bytes,objects,footprint_bytes\n"
        .to_owned();
    let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| ratio.to_string());
    for run in &report.runs {
        let c = &run.counts;
        let policy = match run.policy.contains(',') {
            true => format!("\"{}\"", run.policy),
            false => run.policy.clone(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{policy},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            run.capacity_bytes,
            c.requests,
            c.hits,
            c.misses,
            ratio(run.hit_ratio),
            c.requested_bytes,
            c.missed_bytes,
            ratio(run.byte_miss_ratio),
            c.admissions,
            c.too_large,
            c.declined,
            c.expired,
            c.evictions,
            c.evicted_bytes,
            run.resident_objects,
            run.resident_bytes,
            report.objects,
            report.footprint_bytes,
        );
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_is_a_time_or_none() {
        assert_eq!("1h".parse(), Ok(Ttl(Lives::Seconds(3600))));
        assert_eq!("none".parse(), Ok(Ttl(Lives::Ever)));
        for bad in ["", "0s", "5", "-1s", "never"] {
            assert!(bad.parse::<Ttl>().is_err(), "{bad}");
        }
    }
}
