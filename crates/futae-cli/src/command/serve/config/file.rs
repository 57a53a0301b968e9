//! A configuration file by itself: its keys, what each comes to, and where it stands.

use super::values::{list, plain, words};
use clap::Command;
use futae_terminal::failure::Failure;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What an `[[export]]` may have that stands in its `--export`, with a value.
const EXPORT_OPTIONS: [&str; 7] = [
    "share",
    "class",
    "connections",
    "requests",
    "iops",
    "bandwidth",
    "weight",
];
/// The same without a value.
const EXPORT_FLAGS: [&str; 3] = ["protected", "read-only", "incoming"];
/// Options that may stand in an `[[export]]`, and then are of that export.
const OF_EXPORT: [&str; 4] = ["listen", "feed", "samples-to", "tls-allow"];

/// A configuration file, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFile {
    pub(super) path: PathBuf,
    /// What each key comes to, in words of a command line.
    pub(super) options: BTreeMap<String, Setting>,
    /// Where each `[[export]]` is, by name.
    pub(super) exports: BTreeMap<String, Table>,
    /// The lines and patterns of `include`, until these files have been read.
    pub(super) includes: Vec<(usize, String)>,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct At {
    file: PathBuf,
    /// From 1.
    line: usize,
}

/// Where an `[[export]]` is, and each of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    at: At,
    keys: BTreeMap<String, At>,
}

impl Table {
    /// The line that a message is about: that of the key with which it begins, or else of the table.
    fn place(&self, message: &str) -> &At {
        let key = message.split(['=', ':', ' ']).next().unwrap_or_default();
        self.keys.get(key).unwrap_or(&self.at)
    }
}

impl fmt::Display for At {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.file.display(), self.line)
    }
}

/// What one key says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    at: At,
    /// Of an option without a value, no value, or none of it at all if the key is `false`. Each has its line, since
    /// several files can add to a list.
    pub(super) words: Vec<(String, At)>,
}

impl ConfigFile {
    /// Takes this file alone, with the options of `command`.
    pub(super) fn take_alone(path: &Path, text: &str, command: &Command) -> Result<Self, Failure> {
        Self::parse(path, text, command).map_err(|(line, problem)| {
            Failure::usage(format!("{}:{line}: {problem}", path.display()))
        })
    }

    fn parse(path: &Path, text: &str, command: &Command) -> Result<Self, (usize, String)> {
        let line = |at: usize| {
            text.as_bytes()[..at.min(text.len())]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count()
                + 1
        };
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            (line(at), error.message().to_owned())
        })?;
        let mut file = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        for (key, value) in table.get_ref() {
            let at = line(key.span().start);
            let name = key.get_ref().as_ref();
            let wrong = |problem: String| (at, format!("{name}: {problem}"));
            if let ("export", DeValue::Array(tables)) = (name, value.get_ref())
                && tables.iter().any(|table| table.get_ref().is_table())
            {
                for table in tables {
                    let at = line(table.span().start);
                    file.add_export(table, at, &line)?;
                }
                continue;
            }
            if name == "include" {
                let patterns = list(value.get_ref()).map_err(wrong)?;
                file.includes
                    .extend(patterns.into_iter().map(|it| (at, it)));
                continue;
            }
            let known = command
                .get_arguments()
                .find(|it| it.get_long() == Some(name) && !it.is_hide_set());
            if name == "config" {
                return Err(wrong(
                    "a file names others by include; write include = [\"FILE\"]".to_owned(),
                ));
            }
            let Some(option) = known else {
                return Err(wrong(
                    "no option of futae serve has this name; `futae serve --help` lists them"
                        .to_owned(),
                ));
            };
            file.add(name, at, words(option, value.get_ref()).map_err(wrong)?);
        }
        Ok(file)
    }

    fn at(&self, line: usize) -> At {
        let file = self.path.clone();
        At { file, line }
    }

    fn add(&mut self, option: &str, line: usize, words: Vec<String>) {
        let at = self.at(line);
        let setting = self
            .options
            .entry(option.to_owned())
            .or_insert_with(|| Setting {
                at: at.clone(),
                words: Vec::new(),
            });
        let words = words.into_iter().map(|word| (word, at.clone()));
        setting.words.extend(words);
    }

    /// One `[[export]]`.
    fn add_export(
        &mut self,
        table: &Spanned<DeValue<'_>>,
        at: usize,
        line: &dyn Fn(usize) -> usize,
    ) -> Result<(), (usize, String)> {
        let DeValue::Table(table) = table.get_ref() else {
            return Err((
                at,
                "export: either all exports are tables, or all are text".to_owned(),
            ));
        };
        let (mut name, mut source, mut options, mut others) =
            (None, None, String::new(), Vec::new());
        let mut keys = BTreeMap::new();
        for (key, value) in table {
            let at = line(key.span().start);
            let (key, value) = (key.get_ref().as_ref(), value.get_ref());
            keys.insert(key.to_owned(), self.at(at));
            let wrong = |problem: String| (at, format!("export: {key}: {problem}"));
            match key {
                "name" => name = Some(plain(value).map_err(wrong)?),
                "source" => source = Some(plain(value).map_err(wrong)?),
                _ if EXPORT_OPTIONS.contains(&key) => {
                    let value = plain(value).map_err(wrong)?;
                    options.push_str(&format!(",{key}={value}"));
                }
                _ if EXPORT_FLAGS.contains(&key) => {
                    let is_set = value.as_bool();
                    if is_set.ok_or_else(|| wrong("write true or false".to_owned()))? {
                        options.push_str(&format!(",{key}"));
                    }
                }
                _ if OF_EXPORT.contains(&key) => {
                    others.push((key.to_owned(), at, list(value).map_err(wrong)?));
                }
                _ => {
                    let known = [
                        &["name", "source"][..],
                        &EXPORT_OPTIONS,
                        &EXPORT_FLAGS,
                        &OF_EXPORT,
                    ]
                    .concat();
                    return Err(wrong(format!(
                        "an export has no such key; it may have {}",
                        known.join(", ")
                    )));
                }
            }
        }
        let missing = |what: &str| (at, format!("export: {what} is missing"));
        let name = name.ok_or_else(|| missing("name"))?;
        let source = source.ok_or_else(|| missing("source"))?;
        if name.contains('=') {
            return Err((at, format!("export: name: {name:?} contains =")));
        }
        let table = Table {
            at: self.at(at),
            keys,
        };
        self.exports.entry(name.clone()).or_insert(table);
        self.add("export", at, vec![format!("{name}={source}{options}")]);
        for (option, at, values) in others {
            let of_export = values.into_iter().map(|value| format!("{name}={value}"));
            self.add(&option, at, of_export.collect());
        }
        Ok(())
    }

    /// Its options as words of a command line, each in one word, since a value may begin with a dash.
    pub fn words(&self) -> Vec<OsString> {
        let settings = self.options.iter();
        let words = settings.flat_map(|(key, setting)| {
            setting
                .words
                .iter()
                .map(move |(word, _)| match word.is_empty() {
                    true => format!("--{key}"),
                    false => format!("--{key}={word}"),
                })
        });
        words.map(OsString::from).collect()
    }

    /// Whether it has a key.
    pub fn has(&self, key: &str) -> bool {
        self.options.contains_key(key)
    }

    /// The values of a key, in the order in which they are read.
    pub fn values(&self, key: &str) -> impl Iterator<Item = &str> {
        let words = self.options.get(key).into_iter();
        words.flat_map(|setting| setting.words.iter().map(|(word, _)| word.as_str()))
    }

    /// A message about an option, behind the place where the file has it.
    pub fn place(&self, message: &str) -> String {
        let named = |key: &str| {
            let (before, rest) = message.split_once(&format!("--{key}"))?;
            let is_whole = !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-');
            is_whole.then_some(before.len())
        };
        // The message is about the option that it names first.
        let of_option = self.options.iter();
        let of_option = of_option.filter_map(|(key, setting)| Some((named(key)?, setting)));
        let of_option = of_option.min_by_key(|(at, _)| *at);
        let of_export = self.exports.iter().filter_map(|(name, table)| {
            let problem = message.strip_prefix(&format!("export {name}:"))?;
            Some(table.place(problem.trim_start()))
        });
        let places = of_export.chain(of_option.map(|(_, setting)| setting.place(message)));
        match places.into_iter().next() {
            Some(at) => format!("{at}: {message}"),
            None => format!("{}: {message}", self.path.display()),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The keys that say something else in another file than in this one.
    pub fn changed<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        let all = self.options.keys().chain(other.options.keys());
        let words = |file: &Self, key: &str| file.options.get(key).map(|setting| setting.texts());
        let mut keys: Vec<&str> = all
            .map(String::as_str)
            .filter(|key| words(self, key) != words(other, key))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

impl Setting {
    /// The line that a message is about: that of the value which it quotes, or else of the key.
    fn place(&self, message: &str) -> &At {
        let quoted = self
            .words
            .iter()
            .filter(|(word, _)| !word.is_empty() && message.contains(word.as_str()))
            .max_by_key(|(word, _)| word.len());
        quoted.map_or(&self.at, |(_, at)| at)
    }

    fn texts(&self) -> Vec<String> {
        self.words.iter().map(|(word, _)| word.clone()).collect()
    }
}
