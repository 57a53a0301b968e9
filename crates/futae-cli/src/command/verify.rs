//! `futae verify`: what was forecast against what comes.

pub(super) mod judge;

use super::forecast::{Choice, Forecast};
use super::record::Source;
use crate::interruption::Interruption;
use anyhow::anyhow;
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_terminal::table::count;
use futae_units::parse_duration;
use judge::{Judgement, differences, judge};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// Compare a running cache with its forecast
///
/// Counts hits over a period and compares their ratio with what futae advise forecast for the
/// advised choice. A measured ratio outside the bounds is an alarm, with its likely cause, and the
/// exit status is 1. A cache with another policy, size or write mode than was forecast is a
/// warning. The bounds are wider than in the forecast if the period has fewer requests than the
/// forecast was made from.
#[derive(clap::Args)]
pub struct Args {
    /// What futae advise --save wrote
    forecast: PathBuf,
    /// The control socket of the running server or mount: unix:PATH or PATH
    control: String,
    /// The export whose cache is compared, if exports have separate caches
    #[arg(long)]
    export: Option<String>,
    /// The period over which hits are counted, e.g. 60s, 10min
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    time: String,
    /// Continue, period after period, until SIGINT or SIGTERM; alarms go to standard error
    #[arg(long)]
    watch: bool,
    /// Print JSON, one line at the start and one for each period
    #[arg(long)]
    json: bool,
}

/// Measures and compares.
pub fn run(args: &Args) -> Result<(), Failure> {
    let forecast = Forecast::read(&args.forecast)?;
    let choice = forecast.advised();
    if choice.host_hit_ratio.is_none() {
        let message = "the forecast advises to have no cache on the host, so there is nothing to hold a server against";
        return Err(Failure::usage(message));
    }
    let period = parse_duration(&args.time).map_err(Failure::usage)?;
    let source = Source::new(&args.control, args.export.clone());
    let mut before = source.traffic()?;
    let interruption = Interruption::listen()?;
    announce(args, choice)?;
    let mut said = warn_of(differences(&forecast, &before), &[]);
    loop {
        let ended = interruption.within(period);
        let now = match source.traffic() {
            Ok(now) => now,
            // It may be back in the next period, and counts from 0 then.
            Err(problem) if args.watch && !ended => {
                eprintln!("futae: warning: {problem}; trying again in {}", args.time);
                continue;
            }
            Err(problem) => return Err(problem),
        };
        // It may have been changed meanwhile.
        said = warn_of(differences(&forecast, &now), &said);
        let judgement = judge(&forecast, &now.since(&before));
        before = now;
        say(args, &judgement)?;
        match (&judgement.alarm, args.watch) {
            (Some(alarm), true) => eprintln!("futae: alarm: {alarm}"),
            (Some(alarm), false) => return Err(anyhow!("{alarm}").into()),
            (None, _) => {}
        }
        if ended || !args.watch {
            return Ok(());
        }
    }
}

/// Warns of each difference that was not said before. Returns all of them.
fn warn_of(differences: Vec<String>, said: &[String]) -> Vec<String> {
    for new in differences.iter().filter(|it| !said.contains(it)) {
        eprintln!("futae: warning: {new}; the figures are not comparable");
    }
    differences
}

fn announce(args: &Args, choice: &Choice) -> Result<(), Failure> {
    let mut out = output();
    if args.json {
        writeln!(
            out,
            "{}",
            json!({ "forecast": choice.host_hit_ratio, "levels": choice.levels })
        )?;
    } else {
        writeln!(out, "{}: counting for {}", choice.name(), args.time)?;
    }
    Ok(())
}

fn say(args: &Args, judgement: &Judgement) -> Result<(), Failure> {
    let mut out = output();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(judgement)?)?;
        return Ok(());
    }
    let percent = |ratio: f64| format!("{:.1} %", ratio * 100.0);
    let measured = judgement.hit_ratio.map_or_else(|| "no".to_owned(), percent);
    let verdict = if judgement.requests < judge::REQUESTS_MIN {
        "too few requests to tell"
    } else if judgement.alarm.is_none() {
        "as forecast"
    } else {
        "not as forecast"
    };
    writeln!(
        out,
        "{measured} hits of {} requests; forecast {} to {}: {verdict}",
        count(judgement.requests),
        percent(judgement.low),
        percent(judgement.high)
    )?;
    Ok(())
}
