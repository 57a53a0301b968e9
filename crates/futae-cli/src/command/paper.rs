//! `futae paper`: the experiments of the source papers, which the laboratory runs.

use crate::laboratory;
use futae_terminal::failure::Failure;
use std::ffi::OsString;

/// Reproduce the experiments of the source papers; needs the laboratory, futae-lab
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// What futae-lab understands; see `futae paper --help`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<OsString>,
}

/// Becomes `futae-lab paper`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let words = args.arguments.iter().map(OsString::as_os_str);
    laboratory::become_it("paper", words)
}
