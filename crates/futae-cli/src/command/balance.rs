//! `futae balance`: memory moved between running guests.

use super::file_lock::{self, FileLock, NotLocked};
use super::forecast::size;
use super::names::{file_name, first_directory};
use super::observe_args::address;
use anyhow::Context;
use futae_balance::config::EvaluatorName;
use futae_balance::samples::{self, Samples};
use futae_balance::{Advice, Adviser, Config, Controller, Report};
use futae_log::{LogArgs, utc};
use futae_observe::{Http, Moves, Period};
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_terminal::table::Table;
use futae_terminal::text_file::read_text;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};
use tracing::{error, info, warn};

const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Move memory between running guests to where it saves the most time
///
/// Prints each decision as a line with the numbers that led to it. Runs until interrupted.
#[derive(clap::Args)]
pub struct Args {
    /// Guests, bounds and settings; docs/reference/configuration.md describes the file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print decisions and their reasons without carrying them out
    #[arg(long)]
    dry_run: bool,
    /// Append each period to this file, for --advise: the memory, the requests and the miss-ratio
    /// curve of each guest. About 0.3 KiB per guest and period. Needs evaluator = "mrc"
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Report what the balancer would have done with the guests of a file that --record wrote, and
    /// how much access time that would have saved, and exit. Does not contact any guest
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "dry_run", "periods"])]
    advise: Option<PathBuf>,
    /// Number of periods to run
    #[arg(long, value_name = "N")]
    periods: Option<u64>,
    /// Address of an HTTP server with one page: what each guest has, and the last moves with their reasons. It needs no network and no
    /// JavaScript. tcp:HOST:PORT on loopback, or `unix:PATH[,mode=OCTAL][,owner=NAME][,group=NAME]` [default: `web` of the file]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "advise")]
    web: Option<String>,
    /// Print decisions as lines of JSON
    #[arg(long)]
    json: bool,
    /// The log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Balances until SIGTERM, SIGINT or SIGHUP.
pub fn run(args: &Args) -> Result<(), Failure> {
    let path = args.config.display();
    let text = read_text(&args.config).with_context(|| path.to_string())?;
    let config =
        Config::parse(&text).map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    if let Some(recorded) = &args.advise {
        return advise(&config, recorded, args.json);
    }
    if args.record.is_some() && config.evaluator != EvaluatorName::Mrc {
        let message =
            format!("{path}: --record keeps miss-ratio curves, and they need evaluator = \"mrc\"");
        return Err(Failure::usage(message));
    }
    let kept = kept_path(&args.config);
    let _alone = alone(args, &kept)?;
    let samples = args.record.as_deref().map(|path| {
        let samples = Samples::append(path);
        let samples = samples.with_context(|| format!("cannot write {}", path.display()));
        samples.map(|samples| (path, samples))
    });
    let samples = samples.transpose()?;
    let stopped = Arc::new(AtomicBool::new(false));
    // Before anything is told that must be taken back.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stopped))?;
    }
    let mut controller = Controller::new(&config, args.dry_run)
        .map_err(|error| Failure::usage(format!("{path}: {error}")))?
        .stopped_by(&stopped);
    if let Err(error) = controller.keep_in(&kept) {
        let kept = kept.display();
        warn!(
            "return_on_exit: {kept}: {error}; if futae is killed, the next one does not know what guests had"
        );
    }
    let moves = Arc::new(Moves::new(env!("CARGO_PKG_VERSION")));
    let page = page(args, &config, &moves)?;
    futae_systemd::ready("balancing");
    let told = keep(&mut controller, args, samples, &moves, &stopped);
    drop(page);
    futae_systemd::stopping();
    let problems = controller.end();
    told?;
    if problems.is_empty() {
        return Ok(());
    }
    let problems = problems.join("; ");
    Err(anyhow::anyhow!("not everything could be given back: {problems}").into())
}

/// The right to move the memory of the guests of a configuration: two balancers would undo each other's moves, and the first that
/// ends would remove what both keep. Nothing if no guest is told anything, or if there can be no lock.
fn alone(args: &Args, kept: &Path) -> Result<Option<FileLock>, Failure> {
    if args.dry_run {
        return Ok(None);
    }
    if let Some(directory) = kept.parent() {
        // Without it there is no lock, either.
        let _ = fs::create_dir_all(directory);
    }
    let path = args.config.display();
    let lock = FileLock::beside(kept);
    match FileLock::take(kept) {
        Ok(lock) => Ok(Some(lock)),
        Err(NotLocked::Held(holder)) => Err(anyhow::anyhow!(
            "{path}: another futae balance{} moves the memory of these guests (it has locked {}); stop it first, or watch beside it \
             with --dry-run",
            file_lock::shown(holder),
            lock.display()
        )
        .into()),
        Err(NotLocked::Impossible(errno)) => {
            warn!(
                "{} cannot be locked: {errno}; see that no other futae balance has {path}, or set XDG_RUNTIME_DIR to a directory of yours",
                lock.display()
            );
            Ok(None)
        }
    }
}

/// Where it is kept what guests had before: a file for each configuration, which lasts until the machine is started anew.
fn kept_path(config: &Path) -> PathBuf {
    let of_service = std::env::var_os("RUNTIME_DIRECTORY").map(first_directory);
    let of_user =
        || std::env::var_os("XDG_RUNTIME_DIR").map(|path| PathBuf::from(path).join("futae"));
    let directory = of_service.or_else(of_user);
    let directory = directory.unwrap_or_else(|| "/run/futae".into());
    let config = config.canonicalize().unwrap_or_else(|_| config.to_owned());
    directory.join(file_name(&config.to_string_lossy(), ".balance.json"))
}

/// The page, if one was asked for.
fn page(args: &Args, config: &Config, moves: &Arc<Moves>) -> Result<Option<Http>, Failure> {
    let file = config.web.as_ref().map(|text| ("web", text));
    let Some((option, text)) = args.web.as_ref().map(|text| ("--web", text)).or(file) else {
        return Ok(None);
    };
    let (listen, access) = address(option, text)?;
    let paint = moves.painter();
    let routes = move |path: &str| (path == "/").then(&paint);
    let http =
        Http::start(&listen, &access, false, Arc::new(routes)).map_err(anyhow::Error::from)?;
    info!("a page for a browser at {}", http.address());
    Ok(Some(http))
}

/// What the page shows of a period.
fn shown(report: &Report) -> Period {
    let time = Duration::try_from_secs_f64(report.time).unwrap_or_default();
    Period {
        time: utc(UNIX_EPOCH + time),
        decision: report.decision.clone(),
        host_free: report.host_free,
        host_pressure: report.host_pressure,
        dry_run: report.dry_run,
        problems: [&report.problems[..], &report.hints].concat(),
    }
}

fn keep(
    controller: &mut Controller,
    args: &Args,
    mut samples: Option<(&Path, Samples)>,
    moves: &Moves,
    stopped: &AtomicBool,
) -> Result<(), Failure> {
    let mut next = Instant::now();
    let mut number = 0;
    let mut hints = Vec::new();
    let mut watchdog = futae_systemd::Watchdog::from_environment();
    while args.periods.is_none_or(|periods| number < periods) {
        // A period that took too long does not make the next shorter.
        next = (next + controller.interval()).max(Instant::now());
        // Before every period, also where the one before took so long that there is nothing to wait for.
        loop {
            if stopped.load(Ordering::Relaxed) {
                return Ok(());
            }
            if let Some(watchdog) = &mut watchdog {
                watchdog.alive();
            }
            controller.heed_events();
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(LOOK_INTERVAL.min(left));
        }
        let report = controller.period();
        // Samples that cannot be recorded are no reason to end: it is said once.
        if let Some((path, file)) = &mut samples
            && let Err(error) = file.add(&controller.recorded(&report))
        {
            let path = path.display();
            error!("--record {path}: {error}; nothing more is recorded");
            samples = None;
        }
        moves.note(shown(&report));
        tell(&report, &hints, args.json)?;
        hints = report.hints;
        number += 1;
    }
    Ok(())
}

/// Prints a period; hints that were given in the period before are not given again.
fn tell(report: &Report, given: &[String], as_json: bool) -> Result<(), Failure> {
    let mut out = output();
    if as_json {
        writeln!(out, "{}", serde_json::to_string(report)?)?;
    } else {
        let dry = if report.dry_run {
            " (nothing was done)"
        } else {
            ""
        };
        writeln!(out, "{}{dry}", report.decision)?;
        for change in &report.changes {
            writeln!(out, "  {change}")?;
        }
        for problem in &report.problems {
            writeln!(out, "  {problem}")?;
        }
        for hint in report.hints.iter().filter(|hint| !given.contains(hint)) {
            writeln!(out, "  {hint}")?;
        }
    }
    Ok(out.flush()?)
}

/// Decides on recorded periods.
fn advise(config: &Config, path: &Path, as_json: bool) -> Result<(), Failure> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let wrong = |problem: String| Failure::usage(format!("{name}: {problem}"));
    let mut adviser: Option<Adviser> = None;
    let mut out = output();
    let mut periods = samples::read(BufReader::new(file));
    for period in periods.by_ref() {
        let period = period.map_err(wrong)?;
        let adviser = match &mut adviser {
            Some(adviser) => adviser,
            // Nothing ran yet.
            None if period.guests.is_empty() => continue,
            none => {
                let new = Adviser::new(config, &period);
                none.insert(new.map_err(|error| wrong(error.to_string()))?)
            }
        };
        let decision = adviser.period(&period);
        if !decision.moves() {
            continue;
        }
        if as_json {
            writeln!(out, "{}", serde_json::to_string(&decision)?)?;
        } else {
            writeln!(out, "{decision}")?;
        }
    }
    if let Some(number) = periods.left_out() {
        eprintln!("futae: warning: {name}: line {number} is cut off, and is left out");
    }
    let Some(adviser) = adviser else {
        return Err(wrong("there are no periods with guests in it".to_owned()));
    };
    let advice = adviser.advice();
    if as_json {
        writeln!(out, "{}", serde_json::to_string(&advice)?)?;
    } else {
        write!(out, "{}", told(&advice))?;
    }
    Ok(out.flush()?)
}

/// An advice for people.
fn told(advice: &Advice) -> String {
    let outcome = &advice.outcome;
    let mut table = Table::new([
        "guest",
        "had",
        "balanced",
        "fixed",
        "missed",
        "had, by curve",
        "balanced",
        "fixed",
    ]);
    let share = |ratio: f64| format!("{:.1} %", ratio * 100.0);
    for guest in &outcome.guests {
        table.row([
            guest.name.clone(),
            size(guest.had_bytes as u64),
            size(guest.balanced_bytes as u64),
            size(guest.fixed_bytes),
            share(guest.measured_miss_ratio),
            share(guest.had_miss_ratio),
            share(guest.balanced_miss_ratio),
            share(guest.fixed_miss_ratio),
        ]);
    }
    let mut text = format!("{}\n", table.render().trim_end());
    let lines = [
        format!(
            "{} periods over {:.1} hours, {} of them with moves. An access took {:.3} hits as measured.",
            outcome.periods,
            advice.seconds / 3600.0,
            outcome.moves,
            outcome.measured_time
        ),
        format!(
            "By the curves it took {:.3} hits; {:.3} balanced, which saves {}; {:.3} in the best division that never changes, which saves {}.",
            outcome.had_time,
            outcome.balanced_time,
            share(outcome.balanced_gain),
            outcome.fixed_time,
            share(outcome.fixed_gain)
        ),
    ];
    for line in lines.iter().chain(&advice.problems) {
        text.push_str(line);
        text.push('\n');
    }
    text
}
