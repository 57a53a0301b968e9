//! Manual pages of every command, and completions of shells, from the command line's own definition.

use anyhow::Context;
use clap::{Args as _, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use futae_terminal::failure::Failure;
use std::fs;
use std::path::Path;

/// Writes `man1/` with a page for each command, `man8/` with that of the program `futae-agent`, and `bash/`, `fish/` and `zsh/` with
/// completions.
///
/// # Errors
///
/// The directories or files cannot be made.
pub(super) fn write(directory: &Path, cli: Command) -> Result<(), Failure> {
    let at = |name: &str| -> Result<_, Failure> {
        let directory = directory.join(name);
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        Ok(directory)
    };
    let cli = shown(&cli);
    clap_mangen::generate_to(cli.clone(), at("man1")?)?;
    // In another section, since futae-agent.1 is the page of `futae agent`, and a machine may have both.
    let agent = futae_agent::Args::augment_args(Command::new("futae-agent"));
    let agent = agent.version(env!("CARGO_PKG_VERSION"));
    let page = Man::new(agent.clone()).section("8");
    page.generate_to(at("man8")?)?;
    for (shell, name) in [
        (Shell::Bash, "bash"),
        (Shell::Fish, "fish"),
        (Shell::Zsh, "zsh"),
    ] {
        for (command, program) in [(&cli, "futae"), (&agent, "futae-agent")] {
            clap_complete::generate_to(shell, &mut command.clone(), program, at(name)?)?;
        }
    }
    Ok(())
}

/// The command line as its help shows it. Completions would offer hidden commands.
fn shown(cli: &Command) -> Command {
    let commands = cli
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let shown = Command::new("futae")
        .version(env!("CARGO_PKG_VERSION"))
        .about(cli.get_about().cloned().unwrap_or_default());
    shown
        .disable_help_subcommand(true)
        .subcommands(commands.cloned())
}
