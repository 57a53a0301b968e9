//! The futae command line: arguments in, tables or JSON out. All work is done by the libraries.

mod command;
mod defaults;
mod demo;
mod densities;
mod interruption;
mod laboratory;
mod load;
mod plot;
mod report;
mod save;

use clap::{CommandFactory, Parser, Subcommand};
use futae_log::{Format, LevelFilter};
use futae_terminal::failure::Failure;
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
    Demo(command::demo::Args),
    Sim(command::sim::Args),
    Sweep(command::sweep::Args),
    Plot(command::plot::Args),
    Truth(command::truth::Args),
    Mrc(command::mrc::Args),
    Locality(command::locality::Args),
    Trace(command::trace::Args),
    Paper(command::paper::Args),
    Serve(Box<command::serve::Args>),
    Check(command::check::Args),
    Export(command::export::Args),
    Mount(command::mount::Args),
    #[command(hide = true)]
    MountHelper(command::mount::helper::Args),
    Load(command::load::Args),
    Protect(command::protect::ProtectArgs),
    Unprotect(command::protect::UnprotectArgs),
    Balance(command::balance::Args),
    Top(command::top::Args),
    Record(command::record::Args),
    Advise(command::advise::Args),
    Verify(command::verify::Args),
    Agent(command::agent::Args),
    Policies(command::policies::Args),
    Policy(command::policy::Args),
    #[command(hide = true)]
    Reference(command::reference::Args),
}

impl Command {
    /// With what a configuration file adds, which may say how the log is written.
    fn with_file(self) -> Result<Self, Failure> {
        match self {
            Self::Serve(args) => Ok(Self::Serve(Box::new(args.with_file()?))),
            other => Ok(other),
        }
    }

    /// How the log is written, of a command that runs until it is told to end.
    fn log_format(&self) -> Option<Format> {
        let log = match self {
            Self::Serve(args) => &args.log,
            Self::Mount(args) => &args.log,
            Self::Balance(args) => &args.log,
            Self::Agent(args) => &args.log,
            _ => return None,
        };
        Some(log.log_format)
    }

    fn run(self) -> Result<(), Failure> {
        match self {
            Self::Demo(args) => command::demo::run(&args),
            Self::Sim(args) => command::sim::run(&args),
            Self::Sweep(args) => command::sweep::run(&args),
            Self::Plot(args) => command::plot::run(&args),
            Self::Truth(args) => command::truth::run(&args),
            Self::Mrc(args) => command::mrc::run(&args),
            Self::Locality(args) => command::locality::run(&args),
            Self::Paper(args) => command::paper::run(&args),
            Self::Trace(args) => command::trace::run(&args),
            Self::Serve(args) => command::serve::run(&args),
            Self::Check(args) => command::check::run(&args),
            Self::Export(args) => command::export::run(&args),
            Self::Mount(args) => command::mount::run(&args),
            Self::MountHelper(args) => command::mount::helper::run(&args),
            Self::Load(args) => command::load::run(&args),
            Self::Protect(args) => command::protect::protect(&args),
            Self::Unprotect(args) => command::protect::unprotect(&args),
            Self::Balance(args) => command::balance::run(&args),
            Self::Verify(args) => command::verify::run(&args),
            Self::Advise(args) => command::advise::run(&args),
            Self::Record(args) => command::record::run(&args),
            Self::Top(args) => command::top::run(&args),
            Self::Agent(args) => command::agent::run(&args),
            Self::Policies(args) => command::policies::run(&args),
            Self::Policy(args) => command::policy::run(&args),
            Self::Reference(args) => command::reference::run(&args, Cli::command()),
        }
    }
}

fn main() -> ExitCode {
    let command = match Cli::parse().command.with_file() {
        Ok(command) => command,
        Err(failure) => {
            eprintln!("futae: {failure}");
            return failure.exit_code();
        }
    };
    let wish = command.log_format();
    // Of a command that ends by itself, what goes wrong is enough.
    let usual = wish.map_or(LevelFilter::WARN, |_| LevelFilter::INFO);
    // Without the thread that writes it there is no log; what was asked for is done all the same.
    let log = futae_log::start(wish.unwrap_or_default(), usual).ok();
    match command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if log.is_some() && wish == Some(Format::Json) {
                tracing::error!(target: "futae", "{failure}");
            } else {
                // After what led to it.
                drop(log);
                eprintln!("futae: {failure}");
            }
            failure.exit_code()
        }
    }
}
