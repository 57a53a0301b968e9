//! What is asked of this source tree beyond what the compiler and clippy check.
//!
//! Every rule is a function from sources to findings, so that each can be shown to fire.

pub mod cards;
pub mod circles;
pub mod dependencies;
pub mod documents;
pub mod english;
pub mod leftovers;
pub mod links;
mod mask;
pub mod policy_names;
pub mod sizes;
pub mod skips;
pub mod unsafety;
pub mod waiting;

pub use mask::{mask, strings, test_modules, without_tests};

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// One text file of the project.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where it is, from the root of the project, with `/` between the parts.
    pub path: String,
    /// What it holds.
    pub text: String,
}

impl Source {
    /// A file that is not on the disk.
    #[must_use]
    pub fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// Whether it is a Rust file.
    #[must_use]
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The crate that it belongs to, for files below `crates/` and `lab/`.
    #[must_use]
    pub fn crate_name(&self) -> Option<&str> {
        let room = |room| self.path.strip_prefix(room)?.split_once('/');
        match (room("crates/"), room("lab/")) {
            (Some((name, _)), _) => Some(name),
            (_, Some(("papers", _))) => Some("futae-papers"),
            (_, Some(("vm", _))) => Some("futae-machine"),
            (_, Some(("benches", _))) | (None, None) => None,
            (_, Some((name, _))) => Some(name),
        }
    }

    /// A finding at a line, counted from 0.
    #[must_use]
    pub fn finding(&self, line: usize, problem: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line: line + 1,
            problem: problem.into(),
        }
    }
}

/// Where a rule is broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.problem)
    }
}

/// The root of the project.
#[must_use]
pub fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests
        .parent()
        .expect("the tests are a member of a workspace")
        .to_owned()
}

/// Places that hold nothing written by hand.
const PASSED_OVER: [&str; 5] = [
    ".git",
    "target",
    "fuzz/target",
    "fuzz/corpus",
    "fuzz/artifacts",
];

/// Every text file of the project, in the order of their paths.
#[must_use]
pub fn sources() -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    walk(&root, &root, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(
        found.len() > 100,
        "only {} files below {}: the walk lost its way",
        found.len(),
        root.display()
    );
    found
}

fn walk(root: &Path, directory: &Path, found: &mut Vec<Source>) {
    let entries = fs::read_dir(directory).expect("the project's directories can be listed");
    for entry in entries {
        let path = entry.expect("a directory entry").path();
        let name = path.strip_prefix(root).expect("below the root");
        let name = name.to_string_lossy().into_owned();
        if PASSED_OVER.contains(&name.as_str()) || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            // Whatever cargo builds into is marked so.
            if !path.join("CACHEDIR.TAG").exists() {
                walk(root, &path, found);
            }
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.push(Source { path: name, text });
        }
    }
}

/// The words of a line of code with the column at which each begins.
pub(crate) fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = 0;
    std::iter::from_fn(move || {
        let begin = rest + line[rest..].find(is_part)?;
        let end = line[begin..]
            .find(|c| !is_part(c))
            .map_or(line.len(), |at| begin + at);
        rest = end;
        Some((begin, &line[begin..end]))
    })
}
