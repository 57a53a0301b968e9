//! `include` in a configuration file: files whose settings come before its own.

use super::file::ConfigFile;
use anyhow::Context;
use clap::{ArgAction, Command};
use futae_terminal::failure::Failure;
use futae_terminal::text_file::read_text;
use glob::{MatchOptions, Pattern};
use std::io;
use std::path::{Path, PathBuf};

/// Characters of a pattern. A name without them must be there.
const WILD: [char; 3] = ['*', '?', '['];

/// `*` is of one directory. The hidden files that editors leave are dropped afterwards: the library's own option for that
/// panics at names that are not UTF-8.
const MATCH: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

impl ConfigFile {
    /// Reads a file with the options of `command`, and the files that it includes.
    ///
    /// # Errors
    ///
    /// A file cannot be read; or is no TOML, has an unknown key or a value of the wrong kind: the key and its line.
    pub fn read(path: &Path, command: &Command) -> Result<Self, Failure> {
        read_below(path, command, &mut Vec::new())
    }

    /// The same with this text in place of that of the file.
    ///
    /// # Errors
    ///
    /// As of [`Self::read`].
    pub fn take(path: &Path, text: &str, command: &Command) -> Result<Self, Failure> {
        take_below(path, text, command, &mut Vec::new())
    }
}

/// Reads a file that `above` include, the outermost first.
fn read_below(
    path: &Path,
    command: &Command,
    above: &mut Vec<PathBuf>,
) -> Result<ConfigFile, Failure> {
    let text = read_text(path);
    let text = text.with_context(|| format!("--config {}", path.display()))?;
    take_below(path, &text, command, above)
}

fn take_below(
    path: &Path,
    text: &str,
    command: &Command,
    above: &mut Vec<PathBuf>,
) -> Result<ConfigFile, Failure> {
    // It need not be there yet.
    let itself = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if above.contains(&itself) {
        let chain: Vec<String> = above.iter().map(|it| it.display().to_string()).collect();
        return Err(Failure::usage(format!(
            "{}: include: the file includes itself, through {}",
            path.display(),
            chain.join(", ")
        )));
    }
    let file = ConfigFile::take_alone(path, text, command)?;
    above.push(itself);
    let mut whole = ConfigFile::default();
    for (line, pattern) in &file.includes {
        let wrong = |problem: String| {
            let path = path.display();
            Failure::usage(format!("{path}:{line}: include: {problem}"))
        };
        for one in matches(path, pattern).map_err(wrong)? {
            whole.lay(read_below(&one, command, above)?, command);
        }
    }
    above.pop();
    whole.lay(file, command);
    Ok(whole)
}

/// The files that a pattern names, in the order of their names. It is relative to the directory of the file that has it.
fn matches(of: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let directory = of.parent().unwrap_or(Path::new(""));
    if !pattern.contains(WILD) {
        let path = directory.join(pattern);
        return match path.metadata() {
            Ok(found) if found.is_dir() => Err(a_directory(of, &path, pattern)),
            _ if path.is_file() => Ok(vec![path]),
            _ => Err(format!("{}: there is no such file", path.display())),
        };
    }
    let directory = directory.to_str().ok_or("the directory is not UTF-8")?;
    let whole = Path::new(&Pattern::escape(directory)).join(pattern);
    let whole = whole.to_str().ok_or("the pattern is not UTF-8")?;
    let (within, name) = match pattern.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((within, name)) => (within, name),
        None => ("", pattern),
    };
    if within.contains(WILD) || !name.contains(WILD) {
        return Err(format!(
            "{pattern}: only the name of the file may have *, ? or [, not a directory"
        ));
    }
    can_be_searched(&of.parent().unwrap_or(Path::new("")).join(within))?;
    let found = glob::glob_with(whole, MATCH).map_err(|error| format!("{pattern}: {error}"))?;
    let mut files = Vec::new();
    for path in found {
        let path = path.map_err(|error| error.to_string())?;
        if is_hidden(&path, pattern) {
            continue;
        }
        let metadata = path.metadata();
        let metadata = metadata.map_err(|error| format!("{}: {error}", path.display()))?;
        if !metadata.is_file() {
            return Err(format!("{}: it is no file", path.display()));
        }
        files.push(path);
    }
    files.sort_unstable();
    Ok(files)
}

/// What is to be written in place of a directory: its files, unless the one that includes them is among these.
fn a_directory(of: &Path, path: &Path, pattern: &str) -> String {
    let real = |path: &Path| path.canonicalize().ok();
    let own = real(of).and_then(|of| Some(of.parent()?.to_owned()));
    let path_shown = path.display();
    if own.is_some() && own == real(path) {
        return format!(
            "{path_shown}: it is the directory of this file, which would include itself; put the others into one of \
             their own, and write its files, such as vm.d/*.toml"
        );
    }
    let pattern = pattern.trim_end_matches('/');
    format!("{path_shown}: it is a directory; write its files: {pattern}/*.toml")
}

/// A directory that cannot be searched would look as if it were empty, and its exports would be removed.
fn can_be_searched(directory: &Path) -> Result<(), String> {
    let directory = match directory.as_os_str().is_empty() {
        true => Path::new("."),
        false => directory,
    };
    match directory.join(".").metadata() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// Whether the name begins with a dot, and that of the pattern does not.
fn is_hidden(path: &Path, pattern: &str) -> bool {
    let has_dot = |path: &Path| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
    };
    has_dot(path) && !has_dot(Path::new(pattern))
}

impl ConfigFile {
    /// Lays the settings of `over` over these: lists are joined, of anything else the later value holds.
    fn lay(&mut self, over: Self, command: &Command) {
        let is_list = |key: &str| {
            let option = command
                .get_arguments()
                .find(|it| it.get_long() == Some(key));
            option.is_some_and(|it| matches!(it.get_action(), ArgAction::Append))
        };
        self.path = over.path;
        for (key, setting) in over.options {
            match self.options.get_mut(&key) {
                Some(here) if is_list(&key) => here.words.extend(setting.words),
                Some(here) => *here = setting,
                None => drop(self.options.insert(key, setting)),
            }
        }
        for (name, at) in over.exports {
            self.exports.entry(name).or_insert(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::serve::Args;
    use std::fs;

    /// Files in a directory, of which the first is read.
    fn read(files: &[(&str, &str)]) -> Result<ConfigFile, String> {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, text).expect("written");
        }
        let read = ConfigFile::read(&directory.path().join(files[0].0), &Args::options());
        let place = format!("{}/", directory.path().display());
        read.map_err(|failure| failure.to_string().replace(&place, ""))
    }

    const MAIN: &str =
        "include = [\"common\", \"vm.d/*.toml\"]\ncache = \"2MiB\"\nlisten = \"unix:/m\"\n";

    #[test]
    fn the_file_overrides_what_it_includes_and_lists_are_joined() {
        let export = |name: &str| format!("[[export]]\nname = \"{name}\"\nsource = \"/{name}\"\n");
        let file = read(&[
            ("main", MAIN),
            (
                "common",
                "cache = \"1MiB\"\nseed = 7\nlisten = \"unix:/c\"\n",
            ),
            ("vm.d/b.toml", &export("b")),
            ("vm.d/a.toml", &(String::from("seed = 8\n") + &export("a"))),
            ("vm.d/.a.toml", "chache = 1"),
            ("vm.d/a.toml~", "chache = 1"),
        ]);
        let args = Args::of(file.expect("valid"), []).map_err(|it| it.to_string());
        let args = args.expect("valid");
        assert_eq!(args.cache, Some("2MiB".to_owned()));
        assert_eq!(args.seed, 8, "files are read in the order of their names");
        assert_eq!(args.listen, ["unix:/c", "unix:/m"]);
        assert_eq!(args.exports, ["a=/a", "b=/b"]);
    }

    #[test]
    fn a_name_that_is_not_utf_8_does_no_harm() {
        use std::os::unix::ffi::OsStrExt;
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &[u8]| directory.path().join(std::ffi::OsStr::from_bytes(name));
        fs::write(path(b"main"), "include = \"*.toml\"").expect("written");
        fs::write(path(b"a.toml"), "seed = 8").expect("written");
        fs::write(path(b"caf\xe9"), "").expect("written");
        fs::write(path(b"caf\xe9.toml"), "chache = 1").expect("written");
        let read = ConfigFile::read(&path(b"main"), &Args::options())
            .map_err(|failure| failure.to_string());
        assert!(read.expect("valid").options.contains_key("seed"));
    }

    #[test]
    fn files_that_cannot_be_looked_at_are_an_error_and_not_absent() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("vm.d")).expect("made");
        fs::write(path("main"), "include = \"vm.d/*.toml\"").expect("written");
        std::os::unix::fs::symlink("gone", path("vm.d/a.toml")).expect("a link");
        let problem = |main: &str| {
            let read = ConfigFile::read(&path(main), &Args::options());
            read.expect_err("an error").to_string()
        };
        assert!(
            problem("main").contains("vm.d/a.toml: "),
            "{}",
            problem("main")
        );
        // A file in place of a directory.
        fs::write(path("other"), "include = \"main/*.toml\"").expect("written");
        assert!(problem("other").contains("main"), "{}", problem("other"));
    }

    #[test]
    fn what_is_wrong_is_named_with_the_file_that_has_it() {
        let files = |main: &'static str, other: &'static str| [("main", main), ("d/x", other)];
        for (files, said) in [
            (files("include = \"d/x\"", "\nchache = 1"), "d/x:2: chache"),
            (
                files("\ninclude = \"d/y\"", ""),
                "main:2: include: d/y: there is no such file",
            ),
            (
                files("include = \"d/x\"", "include = \"../main\""),
                "main: include: the file includes itself",
            ),
            (
                files("include = \"d/\"", ""),
                "main:1: include: d/: it is a directory; write its files: d/*.toml",
            ),
            (
                files("include = \".\"", ""),
                "it is the directory of this file, which would include itself",
            ),
            (files("include = \"d/[\"", ""), "main:1: include: d/["),
            (
                files("include = \"*/x\"", ""),
                "main:1: include: */x: only the name",
            ),
            (
                files("include = 1979-05-27", ""),
                "main:1: include: write a text",
            ),
        ] {
            let problem = read(&files).expect_err(said);
            assert!(problem.contains(said), "{problem}");
        }
        let file = read(&[
            (
                "main",
                "include = \"x*\"\nexport = \"a=/a\"\nlisten = \"unix:/m\"\n",
            ),
            ("x", "cache = \"1MiB\"\n\nseed = \"no\"\n"),
        ]);
        let problem = Args::of(file.expect("valid"), []).err().expect("no number");
        assert!(problem.to_string().contains("x:3: "), "{problem}");
    }
}
