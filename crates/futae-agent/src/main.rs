//! The agent as a program of its own, for guests that have nothing else of futae.

use clap::Parser;
use futae_log::LevelFilter;
use std::process::ExitCode;

/// Counts what the page cache of this machine does and tells a host what it gives up.
#[derive(Parser)]
#[command(name = "futae-agent", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    args: futae_agent::Args,
}

fn main() -> ExitCode {
    let args = Cli::parse().args;
    // Without the thread that writes it there is no log, but there are reports.
    let _log = futae_log::start(args.log.log_format, LevelFilter::INFO);
    let args = match args.check() {
        Ok(args) => args,
        Err(problem) => {
            eprintln!("futae-agent: {problem}");
            return ExitCode::from(2);
        }
    };
    match futae_agent::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("futae-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}
