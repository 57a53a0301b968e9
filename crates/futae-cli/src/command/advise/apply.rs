//! An advice, written into a configuration of `futae serve`.

use crate::command::forecast::Choice;
use crate::command::serve::{self, Caches};
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

/// The byte order mark, which some editors begin a file with.
const MARK: char = '\u{feff}';

/// A configuration that is there, or is to be.
pub struct Target {
    path: PathBuf,
    block_bytes: u64,
    output: Output,
}

impl Target {
    /// Checks it before the work begins whose result it is to hold. That result is for blocks of this many bytes.
    pub fn new(path: &Path, block_bytes: u64) -> Result<Self, Failure> {
        let target = Self {
            path: path.to_owned(),
            block_bytes,
            output: Output::new(path)?,
        };
        let text = target.text()?;
        match serve::check_options(path, &text) {
            Ok(caches) => target.check(&caches)?,
            Err(_) => target.check_part(&text)?,
        }
        Ok(target)
    }

    /// What is in the file now.
    fn text(&self) -> Result<String, Failure> {
        let said = || format!("--apply {}", self.path.display());
        // A device such as /dev/full can be read without end.
        if self.path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(Failure::usage(format!("{}: it is no file", said())));
        }
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other.with_context(said)?,
        };
        let read: Result<toml::Table, _> = text.parse();
        read.with_context(said)?;
        Ok(text)
    }

    /// Whether a server with such a file would have the one cache that an advice is for.
    fn check(&self, caches: &Caches) -> Result<(), Failure> {
        let refuse = |why: String| {
            let path = self.path.display();
            Err(Failure::usage(format!("--apply {path}: {why}")))
        };
        if !caches.shares.is_empty() {
            let names = caches.shares.join(", ");
            return refuse(format!(
                "the advice is for one cache, and in this file cache is divided: {names} has a share; set cache, share and policy by \
                 hand"
            ));
        }
        if let Some(block_bytes) = caches.block_bytes.filter(|&it| it != self.block_bytes) {
            let (here, advised) = (Size::Bytes(block_bytes), Size::Bytes(self.block_bytes));
            return refuse(format!(
                "its blocks are of {here}, and the advice is for blocks of {advised}; give --block {here}"
            ));
        }
        Ok(())
    }

    /// The same of a text that is no whole configuration, as far as it is one.
    fn check_part(&self, text: &str) -> Result<(), Failure> {
        match serve::caches_in_part(&self.path, text) {
            Ok(caches) => self.check(&caches),
            // Whether it is one is for the next server to say.
            Err(_) => Ok(()),
        }
    }

    /// Writes the choice, and leaves what else is there, also what was written there meanwhile.
    pub fn write(&self, choice: &Choice) -> Result<(), Failure> {
        let Some(policy) = &choice.host_policy else {
            let message = format!(
                "{} is left as it is: the advice is to have no cache on the host, and to give the guests its memory",
                self.path.display()
            );
            return Err(Failure::Failed(anyhow::anyhow!(message)));
        };
        let before = self.text()?;
        // Also of an included file.
        let served = serve::check_options(&self.path, &before)
            .or_else(|_| serve::caches_in_part(&self.path, &before));
        let mode = served.map_or_else(|_| WriteMode::default(), |caches| caches.write_mode);
        let text = applied(&before, choice, policy, mode);
        match serve::check_options(&self.path, &text) {
            Ok(caches) => self.check(&caches)?,
            // A file that is no whole configuration before is none afterwards either.
            Err(_) if serve::check_options(&self.path, &before).is_err() => {
                self.check_part(&text)?;
            }
            Err(refused) => {
                return Err(Failure::usage(format!(
                    "--apply {}: cannot change this file, since futae serve would refuse it then ({refused}); set cache, policy and \
                     write-mode by hand",
                    self.path.display()
                )));
            }
        }
        self.output.write(text.as_bytes())
    }
}

/// The text with a choice, of which this is the policy. `mode` is the write mode of a server with the text as it is.
fn applied(text: &str, choice: &Choice, policy: &str, mode: WriteMode) -> String {
    let cache = Size::Bytes(choice.host_bytes).to_string();
    let mut text = text.to_owned();
    if choice.write_mode != mode || place_of(&text, "write-mode").is_some() {
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
    text
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
        None => {
            // A byte order mark is one only where it stands first.
            let (mark, rest) = text.split_at(text.len() - text.trim_start_matches(MARK).len());
            format!("{mark}{key} = \"{value}\"\n{rest}")
        }
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
    use futae_sim::forecast::Estimate;

    /// An advice of 2 GiB under arc, and to write through.
    fn choice() -> Choice {
        let estimate = Estimate::of(&[0.5, 0.5]).expect("windows");
        Choice {
            levels: Vec::new(),
            links: Vec::new(),
            write_mode: WriteMode::WriteThrough,
            guest_bytes: None,
            host_bytes: 2 << 30,
            host_policy: Some("arc".to_owned()),
            hit_ratio: estimate,
            host_hit_ratio: Some(estimate),
            host_requests: 1,
            host_write_share: 0.0,
            store_reads_per_request: estimate,
            store_writes_per_request: estimate,
            mean_access_seconds: estimate,
            window_seconds: Vec::new(),
        }
    }

    #[test]
    fn what_was_written_into_the_file_meanwhile_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("serve.toml");
        let whole =
            "cache = \"1GiB\"\nlisten = \"unix:s\"\n[[export]]\nname = \"a\"\nsource = \"a.img\"\n";
        fs::write(&path, whole).expect("room");
        let target = Target::new(&path, 4096).map_err(|e| e.to_string());
        let target = target.expect("a configuration");
        fs::write(&path, format!("{whole}read-only = true\n")).expect("room");
        let written = target.write(&choice()).map_err(|e| e.to_string());
        written.expect("it is accepted");
        let expected = whole.replace("1GiB", "2GiB");
        let found = fs::read_to_string(&path).expect("there");
        assert_eq!(
            found,
            format!("policy = \"arc\"\n{expected}read-only = true\n")
        );
        let divided = format!("{whole}share = \"1MiB\"\n");
        fs::write(&path, &divided).expect("room");
        let refused = target.write(&choice()).map_err(|e| e.to_string());
        assert!(refused.is_err_and(|why| why.contains("a has a share")));
        assert_eq!(fs::read_to_string(&path).expect("there"), divided);
    }

    /// The files that one includes come before it, and stay as they are.
    #[test]
    fn the_write_mode_of_an_included_file_is_not_that_of_the_server() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("serve.toml");
        let included = "write-mode = \"write-back\"\n";
        fs::write(directory.path().join("common.toml"), included).expect("room");
        let part =
            "\u{feff}include = \"common.toml\"\n[[export]]\nname = \"a\"\nsource = \"a.img\"\n";
        let whole = part.replace("include", "listen = \"unix:s\"\ncache = \"1GiB\"\ninclude");
        for text in [part, &whole] {
            fs::write(&path, text).expect("room");
            let written = Target::new(&path, 4096).and_then(|target| target.write(&choice()));
            written.map_err(|e| e.to_string()).expect("it is accepted");
            let found = fs::read_to_string(&path).expect("there");
            let caches = serve::caches_in_part(&path, &found).map_err(|e| e.to_string());
            let mode = caches.expect("it is still TOML").write_mode;
            assert_eq!(mode, WriteMode::WriteThrough, "{found}");
        }
    }

    #[test]
    fn a_part_of_a_configuration_is_checked_as_far_as_it_says() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("part.toml");
        let export = "cache = \"1GiB\"\n[[export]]\nname = \"a\"\nsource = \"a.img\"\n";
        for (text, words) in [
            (export.to_owned(), None),
            (format!("{export}share = \"1MiB\"\n"), Some("a has a share")),
            (
                format!("block = \"64KiB\"\n{export}"),
                Some("give --block 64KiB"),
            ),
            ("nothing = \"of futae\"\n".to_owned(), None),
        ] {
            fs::write(&path, &text).expect("room");
            let found = Target::new(&path, 4096).map(drop);
            let said = found.map_err(|failure| failure.to_string()).err();
            let is_refused = said.as_ref().is_some_and(|said| said.contains("part.toml"));
            assert_eq!(is_refused, words.is_some(), "{text}: {said:?}");
            assert!(said.unwrap_or_default().contains(words.unwrap_or_default()));
        }
    }

    #[test]
    fn a_device_is_no_configuration() {
        let refused = Target::new(Path::new("/dev/null"), 4096).map(drop);
        let said = refused.map_err(|failure| failure.to_string());
        assert_eq!(said, Err("--apply /dev/null: it is no file".to_owned()));
    }

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
        assert_eq!(
            with_key("\u{feff}a = 1\n", "cache", "1GiB"),
            "\u{feff}cache = \"1GiB\"\na = 1\n"
        );
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
