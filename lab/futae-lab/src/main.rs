//! futae's laboratory: what is run to hold futae against the papers and against other systems. The product
//! knows nothing of it; `futae paper` and `futae demo --guests` execute this program.

mod auto_table;
mod demo;
mod drawn;
mod inference;
mod interrupt;
mod kernels;
mod live;
mod paper;
mod product;

use clap::{CommandFactory, Parser, Subcommand};
use futae_terminal::failure::Failure;
use futae_terminal::manual::{self, GENERATED};
use futae_terminal::output::output;
use std::io::Write as _;
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
    Pages(demo::pages::Args),
    AutoTable(auto_table::Args),
    Kernels(kernels::Args),
    Inference(inference::Args),
    Drawn(drawn::Args),
    /// Print the page of the book on these commands as Markdown
    #[command(hide = true)]
    Reference,
}

/// The page of the book.
fn reference() -> Result<(), Failure> {
    let page = format!(
        "# Commands of the laboratory\n\n{GENERATED}\n`futae paper` executes `futae-lab paper`, and \
         `futae demo --guests` executes `futae-lab demo`, with the same arguments.\n\n{}",
        manual::commands(Cli::command())
    );
    output().write_all(page.as_bytes())?;
    Ok(())
}

fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Paper(args) => paper::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Pages(args) => demo::pages::run(&args),
        Command::AutoTable(args) => auto_table::run(&args),
        Command::Kernels(args) => kernels::run(&args),
        Command::Inference(args) => inference::run(&args),
        Command::Drawn(args) => drawn::run(&args),
        Command::Reference => reference(),
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
