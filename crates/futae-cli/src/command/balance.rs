//! `futae balance`: memory moved between running guests.

use crate::failure::Failure;
use anyhow::Context;
use futae_balance::{Config, Controller, Report};
use futae_log::LogArgs;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Move memory between running guests to where it saves the most time
///
/// Every decision is a line that says which numbers made it. Runs until it is interrupted.
#[derive(clap::Args)]
pub struct Args {
    /// Guests, bounds and settings; docs/reference/configuration.md describes the file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print decisions and their reasons without carrying them out
    #[arg(long)]
    dry_run: bool,
    /// Number of periods to run
    #[arg(long, value_name = "N")]
    periods: Option<u64>,
    /// Print decisions as lines of JSON
    #[arg(long)]
    json: bool,
    /// The log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Balances until SIGTERM or SIGINT.
pub fn run(args: &Args) -> Result<(), Failure> {
    let path = args.config.display();
    let text = fs::read_to_string(&args.config).with_context(|| path.to_string())?;
    let config =
        Config::parse(&text).map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    let stopped = Arc::new(AtomicBool::new(false));
    // Before anything is told that must be taken back.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped))?;
    }
    let mut controller = Controller::new(&config, args.dry_run)
        .map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    futae_systemd::ready("balancing");
    let told = keep(&mut controller, args, &stopped);
    futae_systemd::stopping();
    let problems = controller.end();
    told?;
    if problems.is_empty() {
        return Ok(());
    }
    let problems = problems.join("; ");
    Err(anyhow::anyhow!("not everything could be given back: {problems}").into())
}

fn keep(controller: &mut Controller, args: &Args, stopped: &AtomicBool) -> Result<(), Failure> {
    let mut next = Instant::now();
    let mut number = 0;
    let mut hints = Vec::new();
    let mut watchdog = futae_systemd::Watchdog::from_environment();
    while args.periods.is_none_or(|periods| number < periods) {
        // A period that took too long does not make the next shorter.
        next = (next + controller.interval()).max(Instant::now());
        while Instant::now() < next {
            if stopped.load(Ordering::Relaxed) {
                return Ok(());
            }
            if let Some(watchdog) = &mut watchdog {
                watchdog.alive();
            }
            std::thread::sleep(LOOK_INTERVAL.min(next - Instant::now().min(next)));
        }
        let report = controller.period();
        tell(&report, &hints, args.json)?;
        hints = report.hints;
        number += 1;
    }
    Ok(())
}

/// Prints a period; hints that were given in the period before are not given again.
fn tell(report: &Report, given: &[String], as_json: bool) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if as_json {
        writeln!(out, "{}", serde_json::to_string(report)?)?;
    } else {
        let dry = if report.dry_run {
            " (nothing was done)"
        } else {
            ""
        };
        writeln!(out, "{}{dry}", report.decision)?;
        for problem in &report.problems {
            writeln!(out, "  {problem}")?;
        }
        for hint in report.hints.iter().filter(|hint| !given.contains(hint)) {
            writeln!(out, "  {hint}")?;
        }
    }
    Ok(out.flush()?)
}
