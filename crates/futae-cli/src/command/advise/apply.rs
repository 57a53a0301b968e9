//! An advice, written into a configuration of `futae serve`.

use crate::command::forecast::Choice;
use crate::command::serve;
use crate::command::write_args::OF_WRITE_BACK;
use crate::save::Output;
use anyhow::Context;
use futae_sim::WriteMode;
use futae_terminal::failure::Failure;
use futae_units::Size;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// A configuration that is there, or is to be.
pub struct Target {
    path: PathBuf,
    text: String,
    output: Output,
}

impl Target {
    /// Reads it, before the work begins whose result it is to hold.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other.with_context(|| format!("--apply {}", path.display()))?,
        };
        let read: Result<toml::Table, _> = text.parse();
        read.with_context(|| format!("--apply {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            text,
            output: Output::new(path)?,
        })
    }

    /// Writes the choice, and leaves what else is there.
    pub fn write(&self, choice: &Choice) -> Result<(), Failure> {
        let Some(policy) = &choice.host_policy else {
            let message = format!(
                "{} is left as it is: the advice is to have no cache on the host, and to give the guests its memory",
                self.path.display()
            );
            return Err(Failure::Failed(anyhow::anyhow!(message)));
        };
        let cache = Size::Bytes(choice.host_bytes).to_string();
        let mut text = self.text.clone();
        let is_usual = choice.write_mode == WriteMode::default();
        if !is_usual || place_of(&text, "write-mode").is_some() {
            text = with_key(&text, "write-mode", choice.write_mode.name());
        }
        if choice.write_mode != WriteMode::WriteBack {
            for key in OF_WRITE_BACK {
                text = without_key(&text, key);
            }
        }
        for (key, value) in [("policy", policy), ("cache", &cache)] {
            text = with_key(&text, key, value);
        }
        // A file that is no whole configuration before is none afterwards either.
        if serve::check_options(&self.path, &self.text).is_ok() {
            serve::check_options(&self.path, &text).map_err(|refused| {
                Failure::usage(format!(
                    "--apply {}: cannot change this file, since futae serve would refuse it then ({refused}); set cache, policy and \
                     write-mode by hand",
                    self.path.display()
                ))
            })?;
        }
        self.output.write(text.as_bytes())
    }
}

/// Where a key of the top table is, and its value.
fn place_of(text: &str, key: &str) -> Option<(Range<usize>, Range<usize>)> {
    let table = DeTable::parse(text).ok()?;
    let mut all = table.get_ref().iter();
    let (key, value) = all.find(|(known, _)| known.get_ref() == key)?;
    Some((key.span(), value.span()))
}

/// The text with a key of the top table set: in its place, or in a new first line.
fn with_key(text: &str, key: &str, value: &str) -> String {
    match place_of(text, key) {
        Some((_, place)) => format!("{}\"{value}\"{}", &text[..place.start], &text[place.end..]),
        None => format!("{key} = \"{value}\"\n{text}"),
    }
}

/// The text without the lines of a key of the top table.
fn without_key(text: &str, key: &str) -> String {
    let Some((key, value)) = place_of(text, key) else {
        return text.to_owned();
    };
    let begin = text[..key.start].rfind('\n').map_or(0, |at| at + 1);
    let rest = &text[value.end..];
    let rest = rest.find('\n').map_or("", |at| &rest[at + 1..]);
    format!("{}{rest}", &text[..begin])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_set_where_it_stands_or_first() {
        let text = "# ours\ncache = \"1GiB\" # small\ncached = 1\n[[export]]\npolicy = \"x\"\n";
        assert_eq!(
            with_key(text, "cache", "2GiB"),
            "# ours\ncache = \"2GiB\" # small\ncached = 1\n[[export]]\npolicy = \"x\"\n"
        );
        assert_eq!(
            with_key(text, "policy", "arc"),
            format!("policy = \"arc\"\n{text}")
        );
        assert_eq!(with_key("", "cache", "1GiB"), "cache = \"1GiB\"\n");
        let commented = "# cache = 1\n'cache' = 1\nname = \"\"\"\ncache = 1\n\"\"\"\n";
        assert_eq!(
            with_key(commented, "cache", "2GiB"),
            commented.replacen("'cache' = 1", "'cache' = \"2GiB\"", 1)
        );
    }

    #[test]
    fn a_key_goes_with_its_lines() {
        let text = "a = 1\n  b = [\n1,\n] # of b\nc = 1\n[t]\nb = 2\n";
        assert_eq!(without_key(text, "b"), "a = 1\nc = 1\n[t]\nb = 2\n");
        assert_eq!(without_key(text, "t.b"), text);
        assert_eq!(without_key("b = 1", "b"), "");
    }
}
