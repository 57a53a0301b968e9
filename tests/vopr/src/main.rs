//! `make vopr` and `make crash-states`.

use futae_vopr::{Cover, Failure, Options, States, crash_states, run_seed};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const USAGE: &str = "\
usage: futae-vopr run|states [--seed N] [--seconds N] [--runs N] [--trace]

  run           simulate the cache over disks that fail, and check what it answers
  states        rebuild every image that a crash can leave of its disks, and judge each
  --seed N      the seed of the first run; the next has the next (the time, in seconds since 1970)
  --seconds N   begin runs for this time (60)
  --runs N      runs at most (no limit)
  --trace       print every event

Status 1 and the seed if something is wrong, 2 for wrong arguments.
";

struct Arguments {
    judges_states: bool,
    seed: u64,
    seconds: u64,
    runs: u64,
    options: Options,
}

fn arguments() -> Result<Arguments, String> {
    let mut given = std::env::args().skip(1);
    let judges_states = match given.next().as_deref() {
        Some("run") => false,
        Some("states") => true,
        _ => return Err("say run or states".to_owned()),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut arguments = Arguments {
        judges_states,
        seed: now.map_or(1, |now| now.as_secs()),
        seconds: 60,
        runs: u64::MAX,
        options: Options::default(),
    };
    while let Some(name) = given.next() {
        let mut number = || {
            let value = given.next().and_then(|value| value.parse().ok());
            value.ok_or_else(|| format!("{name} takes a whole number"))
        };
        match name.as_str() {
            "--seed" => arguments.seed = number()?,
            "--seconds" => arguments.seconds = number()?,
            "--runs" => arguments.runs = number()?,
            "--trace" => arguments.options.traces = true,
            _ => return Err(format!("{name} is no option")),
        }
    }
    // Without a run nothing is checked, and nothing is wrong.
    match arguments.runs {
        0 => Err("--runs takes at least 1".to_owned()),
        _ => Ok(arguments),
    }
}

/// The time that this process has computed for.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap_or(0),
        time.tv_nsec.try_into().unwrap_or(0),
    )
}

/// Runs until the time is over; the number of runs.
fn repeat(
    arguments: &Arguments,
    mut run: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let (began, limit) = (Instant::now(), Duration::from_secs(arguments.seconds));
    let mut runs = 0;
    while runs < arguments.runs && (runs == 0 || began.elapsed() < limit) {
        run(arguments.seed.wrapping_add(runs))?;
        runs += 1;
    }
    Ok(runs)
}

fn per_second(count: u64) -> u64 {
    (count as f64 / cpu_time().as_secs_f64().max(1e-3)) as u64
}

fn simulate(arguments: &Arguments) -> Result<String, Failure> {
    let mut cover = Cover::default();
    let seeds = repeat(arguments, |seed| {
        run_seed(seed, arguments.options, &mut cover)
    })?;
    println!(
        "vopr: {} clean restarts, {} resizes, {} failed store operations, {} blocks demoted, \
         {} reads from equal blocks, {} sectors checked",
        cover.restarts,
        cover.resizes,
        cover.failures,
        cover.demotions,
        cover.equal_reads,
        cover.sectors
    );
    println!(
        "vopr: {} reads of pages that the kernel held, {} pages put there, {} given up, {} demoted",
        cover.page_hits, cover.pages_put, cover.pages_given_up, cover.pages_demoted
    );
    println!("vopr: what was done has digest {:016x}", cover.digest);
    Ok(format!(
        "vopr: {} operations, {} crashes ({} with power loss), {seeds} seeds, {} states, {} operations \
         per CPU-second, 0 violations",
        cover.operations,
        cover.process_crashes + cover.power_losses,
        cover.power_losses,
        cover.states(),
        per_second(cover.operations)
    ))
}

fn judge(arguments: &Arguments) -> Result<String, Failure> {
    let mut states = States::default();
    let seeds = repeat(arguments, |seed| {
        crash_states(seed, arguments.options, &mut states)
    })?;
    Ok(format!(
        "crash-states: {} states at {} moments ({} of them exhaustively), {seeds} seeds, {} states per \
         CPU-second, 0 violations",
        states.images,
        states.moments,
        states.exhaustive,
        per_second(states.images)
    ))
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprint!("futae-vopr: {problem}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (name, result) = if arguments.judges_states {
        ("crash-states", judge(&arguments))
    } else {
        ("vopr", simulate(&arguments))
    };
    match result {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(Failure { seed, what }) => {
            eprintln!("{name}: {what}");
            eprintln!("{name}: seed {seed}; again: make {name} ARGS=\"--seed {seed} --runs 1\"");
            println!("{name}: 1 violation, seed {seed}");
            ExitCode::FAILURE
        }
    }
}
