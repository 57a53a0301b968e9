//! An advice, written into a configuration of `futae serve`.

use crate::command::forecast::Choice;
use crate::failure::Failure;
use crate::save::Output;
use anyhow::Context;
use futae_sim::WriteMode;
use futae_units::Size;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
        if !is_usual || line_of(&text, "write-mode").is_some() {
            text = with_key(&text, "write-mode", choice.write_mode.name());
        }
        for (key, value) in [("policy", policy), ("cache", &cache)] {
            text = with_key(&text, key, value);
        }
        let read: Result<toml::Table, _> = text.parse();
        read.with_context(|| {
            format!(
                "--apply {}: cannot change this file; set cache, policy and write-mode by hand",
                self.path.display()
            )
        })?;
        self.output.write(text.as_bytes())
    }
}

/// The line of the top table that sets a key.
fn line_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let is_it = |line: &&str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let top = text
        .lines()
        .take_while(|line| !line.trim_start().starts_with('['));
    top.into_iter().find(is_it)
}

/// The text with a key of the top table set: in its line, or in a new first line.
fn with_key(text: &str, key: &str, value: &str) -> String {
    let line = format!("{key} = \"{value}\"");
    let Some(old) = line_of(text, key) else {
        return format!("{line}\n{text}");
    };
    // The first line of the text that is this one stands in the top table.
    text.replacen(old, &line, 1)
}

#[cfg(test)]
mod tests {
    use super::with_key;

    #[test]
    fn a_key_is_set_where_it_stands_or_first() {
        let text = "# ours\ncache = \"1GiB\" # small\ncached = 1\n[[export]]\npolicy = \"x\"\n";
        assert_eq!(
            with_key(text, "cache", "2GiB"),
            "# ours\ncache = \"2GiB\"\ncached = 1\n[[export]]\npolicy = \"x\"\n"
        );
        assert_eq!(
            with_key(text, "policy", "arc"),
            format!("policy = \"arc\"\n{text}")
        );
        assert_eq!(with_key("", "cache", "1GiB"), "cache = \"1GiB\"\n");
    }
}
