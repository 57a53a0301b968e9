//! The futae command line: arguments in, tables or JSON out. All work is done by the libraries.

mod command;
mod failure;

use clap::{Parser, Subcommand};
use failure::Failure;
use std::process::ExitCode;

/// Makes the two page caches of a virtualised machine work as one.
#[derive(Parser)]
#[command(name = "futae", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Policies(command::policies::Args),
}

impl Command {
    fn run(self) -> Result<(), Failure> {
        match self {
            Self::Policies(args) => command::policies::run(&args),
        }
    }
}

fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("futae: {failure}");
            failure.exit_code()
        }
    }
}
