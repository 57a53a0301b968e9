//! `futae check`: a configuration file, checked without serving.

use anyhow::Context;
use futae_balance::Config;
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_terminal::text_file::read_text;
use std::io::Write;
use std::path::PathBuf;

/// Check a configuration file without serving
///
/// The file is one for `futae serve --config`, or for `futae balance --config`, which has a `total`. Nothing is
/// opened for writing, locked or listened on, so a file can be checked beside the server that uses it. Exits with 2 and
/// names the key and its line if the file is wrong, and with 1 if something that it names is missing.
#[derive(clap::Args)]
pub struct Args {
    /// The file
    file: PathBuf,
}

/// Checks, and says in a line what the file comes to.
pub fn run(args: &Args) -> Result<(), Failure> {
    let path = args.file.display();
    let text = read_text(&args.file).with_context(|| path.to_string())?;
    let found = if is_of_balance(&text) {
        let config = Config::parse(&text);
        let config = config.map_err(|error| Failure::usage(format!("{path}: {error}")))?;
        match config.libvirt {
            Some(_) => format!(
                "{} guests, and those that libvirt runs",
                config.guests.len()
            ),
            None => format!("{} guests", config.guests.len()),
        }
    } else {
        super::serve::check(&args.file)?
    };
    writeln!(output(), "{path}: {found}")?;
    Ok(())
}

/// Whether there is a key that only `futae balance` knows. A file that is not TOML has the same error as either.
fn is_of_balance(text: &str) -> bool {
    let table: toml::Table = text.parse().unwrap_or_default();
    ["total", "guest", "libvirt"]
        .iter()
        .any(|key| table.contains_key(*key))
}
