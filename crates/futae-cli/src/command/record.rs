//! `futae record`: what is asked of a running cache, as a trace.

mod file;
mod source;
mod traffic;

use crate::interruption::Interruption;
use anyhow::anyhow;
pub use file::Facts;
use file::RecordingFile;
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_terminal::progress::Progress;
use futae_terminal::table::count;
use futae_units::{Size, parse_duration};
use serde_json::json;
pub use source::Source;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
pub use traffic::{Asked, Traffic};

/// Between two looks at what was recorded. The cache has room for 65,536 requests, so up to 650,000 a second are kept.
const PAUSE: Duration = Duration::from_millis(100);

/// Record the requests of a running cache as a trace
///
/// The server or mount must have been started with --control. The trace is CSV, which every command
/// that reads traces takes, with FILE.json beside it: what was recorded, of which cache, and how
/// much was lost. The recording ends after --time, at --max-size, or at SIGINT or SIGTERM; the file
/// is whole at any time. Requests are recorded in the order in which the cache decides on them;
/// requests that a guest's own cache serves do not reach it. Exits with 1 if the server ends before,
/// or if another recording of the cache begins; FILE then has the requests until that time.
#[derive(clap::Args)]
pub struct Args {
    /// Its control socket: unix:PATH or PATH
    control: String,
    /// The trace to write, e.g. day.csv
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    /// The export whose cache is recorded, if exports have separate caches. If several exports
    /// share the cache, all of them are recorded
    #[arg(long)]
    export: Option<String>,
    /// Duration, e.g. 10min [default: until interrupted]
    #[arg(long, value_name = "DURATION")]
    time: Option<String>,
    /// Share of the blocks whose requests are recorded, e.g. 1%. Every recording chooses the same
    /// blocks
    #[arg(long, value_name = "PERCENT", default_value = "100%")]
    sample: String,
    /// End when the trace has this size. It has the requests until then: up to 131,072 more than fit, which are a few MiB
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    max_size: Size,
    /// Continue a recording of the same cache and sample that ended or was killed
    #[arg(long)]
    append: bool,
    /// Print JSON, one line at the start and one at the end
    #[arg(long)]
    json: bool,
}

/// Records until the end, and says what was recorded.
pub fn run(args: &Args) -> Result<(), Failure> {
    let sample = sample(&args.sample)?;
    let time = args.time.as_deref().map(parse_duration).transpose();
    let time = time.map_err(Failure::usage)?;
    let max_bytes = args.max_size.bytes(1).map_err(Failure::usage)?;
    let interruption = Interruption::listen()?;
    let source = Source::new(&args.control, args.export.clone());
    let facts = source.facts(sample)?;
    let mut file = RecordingFile::open(&args.out, facts, args.append)?;
    // The trace may have had to be waited for.
    let begun = source.facts(sample).and_then(|now| {
        file.count_from(now);
        Ok((source.begin(sample)?, source.sees_misses_only()?))
    });
    let (number, sees_misses_only) = begun.inspect_err(|_| file.give_up())?;
    if sees_misses_only {
        eprintln!(
            "futae: warning: hits in the kernel's page cache will be missing, and forecasts from the trace will be too low: \
             record a mount without --residency kernel"
        );
    }
    announce(args)?;
    let progress = Progress::new("recording", args.json || time.is_none());
    let begun = Instant::now();
    let outcome = loop {
        let left = time.map_or(PAUSE, |time| time.saturating_sub(begun.elapsed()));
        let is_full = file.bytes() >= max_bytes;
        let is_interrupted = !is_full && interruption.within(PAUSE.min(left));
        if let Some(time) = time {
            progress.set(begun.elapsed().as_secs_f64() / time.as_secs_f64());
        }
        let is_over = is_full || is_interrupted || time.is_some_and(|time| begun.elapsed() >= time);
        match if is_over {
            source.end(number)
        } else {
            source.take(number)
        } {
            Ok(part) => file.add(&part, begun.elapsed())?,
            Err(problem) => break Err(problem),
        }
        if is_over || file.is_due() {
            match source.facts(sample) {
                Ok(now) => file.count(&now)?,
                Err(problem) => break Err(problem),
            }
        }
        if is_over {
            break Ok(is_full);
        }
    };
    drop(progress);
    match outcome {
        Ok(is_full) => {
            file.finish()?;
            if is_full {
                let limit = args.max_size;
                eprintln!(
                    "futae: the recording ends here: the trace has reached {limit} (--max-size)"
                );
            }
            say(args, file.facts())
        }
        // Of a server that has ended what came so far is kept.
        Err(problem) => {
            file.finish()?;
            say(args, file.facts())?;
            let path = args.out.display();
            Err(anyhow!("{problem}; {path} has what was recorded until then").into())
        }
    }
}

fn announce(args: &Args) -> Result<(), Failure> {
    let (mut out, path) = (output(), args.out.display());
    if args.json {
        writeln!(out, "{}", json!({ "recording": path.to_string() }))?;
    } else {
        let end = match &args.time {
            Some(time) => format!("for {time}, or until SIGINT (Ctrl-C)"),
            None => "until SIGINT (Ctrl-C)".to_owned(),
        };
        writeln!(out, "recording to {path} {end}")?;
    }
    Ok(())
}

fn say(args: &Args, facts: &Facts) -> Result<(), Failure> {
    let mut out = output();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(facts)?)?;
        return Ok(());
    }
    let path = args.out.display();
    let (requests, seconds) = (count(facts.requests), facts.seconds);
    writeln!(
        out,
        "{path}: {requests} requests in {seconds:.1} s, {} lost",
        count(facts.lost)
    )?;
    if facts.lost > 0 {
        writeln!(
            out,
            "Requests came faster than they could be written: record a --sample of the blocks"
        )?;
    }
    Ok(())
}

/// The part of all blocks that a percentage is.
fn sample(text: &str) -> Result<f64, Failure> {
    let percent = text
        .strip_suffix('%')
        .and_then(|number| number.parse::<f64>().ok());
    match percent {
        Some(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        _ => {
            let said = json!(text);
            Err(Failure::usage(format!(
                "--sample {said} is no percentage above 0% and at most 100%, such as 1%"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_control::EngineReport;
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    #[test]
    fn a_recording_that_does_not_begin_leaves_nothing() {
        let place = tempfile::tempdir().expect("a directory");
        let (control, out) = (place.path().join("control"), place.path().join("a.csv"));
        let listener = UnixListener::bind(&control).expect("a socket");
        let server = thread::spawn(move || {
            let engines = [EngineReport::default()];
            let status = json!({ "version": "", "uptime_seconds": 1.0, "engines": engines });
            for answer in [status.clone(), status, json!({ "error": "not now" })] {
                let (mut client, _) = listener.accept().expect("a client");
                let mut order = String::new();
                let read = BufReader::new(&client).read_line(&mut order);
                read.expect("an order");
                writeln!(client, "{answer}").expect("it listens");
            }
        });
        let args = Args {
            control: control.display().to_string(),
            out,
            export: None,
            time: None,
            sample: "100%".to_owned(),
            max_size: Size::Bytes(1 << 30),
            append: false,
            json: false,
        };
        let refused = run(&args).map_err(|error| error.to_string());
        server.join().expect("no panic");
        assert_eq!(refused, Err("not now".to_owned()));
        let left = fs::read_dir(place.path()).expect("a directory");
        let left: Vec<_> = left
            .filter_map(|entry| Some(entry.ok()?.file_name()))
            .collect();
        assert_eq!(left, ["control"]);
    }
}
