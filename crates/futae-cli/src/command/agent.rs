//! `futae agent`: what the page cache of this machine does, for a person or for a host.

pub use futae_agent::Args;
use futae_terminal::failure::Failure;

/// Counts and reports until it is killed; with --once, for a while.
pub fn run(args: &Args) -> Result<(), Failure> {
    let checked = args.check().map_err(Failure::usage)?;
    Ok(futae_agent::run(&checked)?)
}
