//! `--config FILE`: options of `futae serve` as TOML. A file comes to the words of a command line, so that every option means
//! the same in both places and is checked once.

mod include;

use super::Args;
use clap::{Arg, ArgAction, Args as _, Command, FromArgMatches};
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
const EXPORT_FLAGS: [&str; 2] = ["protected", "read-only"];
/// Options that may stand in an `[[export]]`, and then are of that export.
const OF_EXPORT: [&str; 4] = ["listen", "feed", "samples-to", "tls-allow"];

/// A configuration file, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFile {
    path: PathBuf,
    /// What each key comes to, in words of a command line.
    options: BTreeMap<String, Setting>,
    /// Where each `[[export]]` is, by name.
    exports: BTreeMap<String, Table>,
    /// The lines and patterns of `include`, until these files have been read.
    includes: Vec<(usize, String)>,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct At {
    file: PathBuf,
    /// From 1.
    line: usize,
}

/// Where an `[[export]]` is, and each of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
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
struct Setting {
    at: At,
    /// Of an option without a value, no value, or none of it at all if the key is `false`. Each has its line, since
    /// several files can add to a list.
    words: Vec<(String, At)>,
}

impl ConfigFile {
    /// Reads a file, and the files that it includes.
    ///
    /// # Errors
    ///
    /// A file cannot be read; or is no TOML, has an unknown key or a value of the wrong kind: the key and its line.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        include::read(path)
    }

    /// The same with this text in place of that of the file.
    ///
    /// # Errors
    ///
    /// As of [`Self::read`].
    pub fn take(path: &Path, text: &str) -> Result<Self, Failure> {
        include::take(path, text)
    }

    /// Takes this file alone.
    fn take_alone(path: &Path, text: &str) -> Result<Self, Failure> {
        Self::parse(path, text).map_err(|(line, problem)| {
            Failure::usage(format!("{}:{line}: {problem}", path.display()))
        })
    }

    fn parse(path: &Path, text: &str) -> Result<Self, (usize, String)> {
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
        let command = options();
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

    /// The options of the file, with those of a command line, which come first in what they say and are added where an
    /// option can be given several times.
    ///
    /// # Errors
    ///
    /// What the command line would be told, with the line of the file.
    pub fn with(self, given: impl IntoIterator<Item = OsString>) -> Result<Args, Failure> {
        let given = without_config(given);
        let mut line: Vec<OsString> = Vec::new();
        for (key, setting) in &self.options {
            for (word, _) in &setting.words {
                // In one word, since a value may begin with a dash.
                let is_flag = word.is_empty();
                line.push(
                    if is_flag {
                        format!("--{key}")
                    } else {
                        format!("--{key}={word}")
                    }
                    .into(),
                );
            }
        }
        line.extend(given);
        let command = options().args_override_self(true).no_binary_name(true);
        let matches = command.try_get_matches_from(line);
        let parsed = matches.and_then(|matches| Args::from_arg_matches(&matches));
        let mut args = parsed.map_err(|error| {
            let text = error.to_string();
            let text = text.split("\n\n").next().unwrap_or_default();
            let text = text.strip_prefix("error: ").unwrap_or(text);
            if !self.options.contains_key("export") && text.contains("--export <NAME=SOURCE>") {
                let path = self.path.display();
                return Failure::usage(format!(
                    "{path}: there is no export, here or in an included file; a server has one at least"
                ));
            }
            Failure::usage(self.place(text))
        })?;
        args.config = Some(self.path.clone());
        args.file = Some(self);
        Ok(args)
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

/// The options that a file may have.
fn options() -> Command {
    Args::augment_args(Command::new("futae serve"))
}

/// The words of a command line but for `--config FILE`.
fn without_config(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut given = given.into_iter();
    let mut rest = Vec::new();
    while let Some(word) = given.next() {
        if word == "--config" {
            given.next();
        } else if !word.as_encoded_bytes().starts_with(b"--config=") {
            rest.push(word);
        }
    }
    rest
}

/// What a key comes to: a value for each time that the option is given, an empty one where it takes none.
fn words(option: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    match option.get_action() {
        ArgAction::SetTrue => match value.as_bool() {
            Some(true) => Ok(vec![String::new()]),
            Some(false) => Ok(Vec::new()),
            None => Err("write true or false".to_owned()),
        },
        ArgAction::Append => list(value),
        _ => plain(value).map(|word| vec![word]),
    }
}

/// One text, or several.
fn list(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let DeValue::Array(values) = value else {
        return plain(value).map(|word| vec![word]);
    };
    values.iter().map(|value| plain(value.get_ref())).collect()
}

/// A text or a number.
fn plain(value: &DeValue<'_>) -> Result<String, String> {
    let word = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        DeValue::Integer(number) => u128::from_str_radix(number.as_str(), number.radix())
            .map_err(|error| error.to_string())?
            .to_string(),
        DeValue::Float(number) => number.as_str().to_owned(),
        other => {
            return Err(format!(
                "write a text or a number in place of this {}",
                other.type_str()
            ));
        }
    };
    if word.is_empty() {
        return Err("the value is empty".to_owned());
    }
    Ok(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile, String> {
        let parsed = ConfigFile::parse(Path::new("f"), text);
        parsed.map_err(|(line, problem)| format!("{line}: {problem}"))
    }

    fn args(text: &str, given: &[&str]) -> Result<Args, String> {
        let given = given.iter().map(OsString::from);
        parse(text)?
            .with(given)
            .map_err(|failure| failure.to_string())
    }

    const FILE: &str = "# A server.\ncache = \"16MiB\"\nlisten = [\"unix:/s\", \"tcp:localhost:0\"]\njson = true\n\
                        share-equal = false\nseed = 7\n\n[[export]]\nname = \"a\"\nsource = \"/a,b.img\"\nshare = \"4MiB\"\n\
                        read-only = true\nfeed = \"unix:/f\"\n\n[[export]]\nname = \"b\"\nsource = \"/b.img\"\n";

    #[test]
    fn a_file_says_what_a_command_line_would() {
        let from_file = args(FILE, &[]).expect("valid");
        assert_eq!(from_file.cache, Some("16MiB".to_owned()));
        assert_eq!(
            from_file.exports,
            ["a=/a,b.img,read-only,share=4MiB", "b=/b.img"]
        );
        assert_eq!(from_file.listen, ["unix:/s", "tcp:localhost:0"]);
        assert_eq!(from_file.feeds, ["a=unix:/f"]);
        assert_eq!((from_file.json, from_file.seed), (true, 7));
        for seed in ["0x7", "0o7", "0b111", "0x0000_0007"] {
            let text = FILE.replace("seed = 7", &format!("seed = {seed}"));
            assert_eq!(args(&text, &[]).expect(seed).seed, 7);
        }
        let text = "cache = \"1MiB\"\nexport = \"a=/a\"\nlisten = \"unix:/s\"\n";
        assert_eq!(args(text, &[]).expect("valid").exports, ["a=/a"]);
    }

    #[test]
    fn the_command_line_goes_before_the_file_and_adds_to_its_lists() {
        let given = [
            "--config",
            "f",
            "--cache",
            "1MiB",
            "--config=f",
            "--listen=unix:/t",
        ];
        let both = args(FILE, &given).expect("valid");
        assert_eq!(both.cache, Some("1MiB".to_owned()));
        assert_eq!(both.listen, ["unix:/s", "tcp:localhost:0", "unix:/t"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, said) in [
            ("cache = ", "1: "),
            ("\nchache = \"1MiB\"", "2: chache: no option"),
            (
                "config = \"x\"",
                "1: config: a file names others by include",
            ),
            ("cache = true", "1: cache: write a text"),
            ("cache = \"\"", "1: cache: the value is empty"),
            ("json = \"yes\"", "1: json: write true or false"),
            (
                "listen = [\"unix:/s\", 1979-05-27]",
                "1: listen: write a text",
            ),
            ("[[export]]\nname = \"a\"", "1: export: source is missing"),
            (
                "[[export]]\nname = \"a\"\nsorce = \"x\"",
                "3: export: sorce: an export has no such key",
            ),
            (
                "[[export]]\nname = \"a=b\"\nsource = \"x\"",
                "1: export: name: \"a=b\"",
            ),
            (
                "export = [\"a=b\", { name = \"a\", source = \"x\" }]",
                "1: export: either",
            ),
            (
                "[[export]]\nread-only = 1",
                "2: export: read-only: write true",
            ),
        ] {
            let problem = parse(text).expect_err(text);
            assert!(problem.contains(said), "{text}: {problem}");
        }
        let bad = FILE.replace("seed = 7", "seed = \"x\"");
        let problem = args(&bad, &[]).err().expect("no number");
        assert!(
            problem.starts_with("f:6: ") && problem.contains("--seed"),
            "{problem}"
        );
        let problem = args("cache = \"1MiB\"", &[])
            .err()
            .expect("something is missing");
        assert!(
            problem.contains("no export, here or in an included file")
                && problem.starts_with("f: "),
            "{problem}"
        );
        let file = parse(FILE).expect("valid");
        assert_eq!(file.place("export b: no"), "f:15: export b: no");
        assert_eq!(file.place("--cache 1: no"), "f:2: --cache 1: no");
        assert_eq!(file.place("--caches: no"), "f: --caches: no");
    }

    #[test]
    fn what_changed_is_known_by_its_keys() {
        let (old, new) = (
            parse(FILE),
            parse(&FILE.replace("4MiB", "8MiB").replace("seed = 7", "")),
        );
        let (old, new) = (old.expect("valid"), new.expect("valid"));
        assert_eq!(old.changed(&new), ["export", "seed"]);
        assert!(old.changed(&old.clone()).is_empty());
    }
}
