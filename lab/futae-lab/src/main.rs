//! futae's laboratory: what is run to hold futae against the papers and against other systems. The product
//! knows nothing of it; `futae paper` and `futae demo --guests` execute this program.

mod demo;
mod live;
mod paper;
mod product;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The laboratory of futae
///
/// `futae paper` and `futae demo --guests` execute this program, which is found beside futae or in PATH.
/// Experiments with real caches start futae, which is found likewise, or named by FUTAE_BIN.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Paper(paper::Args),
    Demo(demo::Args),
}

fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Paper(args) => paper::run(&args),
        Command::Demo(args) => demo::run(&args),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The commands are known by their names as futae's.
            eprintln!("futae: {failure}");
            failure.exit_code()
        }
    }
}
