//! No leftovers of the work: nothing unfinished, nothing skipped, nothing of one workplace.

use super::{Finding, Source, mask, test_modules, without_tests, words};
use std::collections::BTreeMap;

// Spelt in two parts, so that this file does not find itself.
const UNFINISHED: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const ABSENT: [&str; 8] = [
    concat!("SP", "EC"),
    concat!("DES", "IGN"),
    concat!("PE", "ERS"),
    concat!("FI", "ELD"),
    concat!("LI", "VE"),
    concat!("GU", "EST"),
    concat!("HO", "USE"),
    concat!("FO", "UND"),
];
const UNFINISHED_MACROS: [&str; 2] = ["todo", "unimplemented"];
const PRINTING_MACROS: [&str; 4] = ["println", "print", "eprintln", "eprint"];
const WORKPLACES: [&str; 4] = [
    concat!("/wo", "rk/"),
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
];

/// Marks of unfinished work, in any text.
#[must_use]
pub fn check_unfinished(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for (at, line) in source.text.lines().enumerate() {
            let mark = words(line).find(|(_, word)| UNFINISHED.contains(word));
            if let Some((_, mark)) = mark {
                findings.push(source.finding(at, format!("unfinished: {mark}")));
            }
        }
        if !source.is_rust() {
            continue;
        }
        for (at, line) in mask(&source.text).lines().enumerate() {
            for (column, word) in words(line) {
                let is_macro = line[column + word.len()..].starts_with('!');
                if is_macro && UNFINISHED_MACROS.contains(&word) {
                    findings.push(source.finding(at, format!("unfinished: {word}!")));
                }
            }
        }
    }
    findings
}

/// Libraries that print: they say things by `tracing`, and a program decides where that goes. Programs and tests may.
#[must_use]
pub fn check_printing(sources: &[Source]) -> Vec<Finding> {
    let (mut findings, mut for_tests) = (Vec::new(), BTreeMap::new());
    for source in sources.iter().filter(|source| source.is_rust()) {
        let within = source.path.strip_prefix("crates/");
        let Some((name, file)) = within.and_then(|path| path.split_once("/src/")) else {
            continue;
        };
        if name == "futae-cli" || file == "main.rs" {
            continue;
        }
        let modules = for_tests
            .entry(name)
            .or_insert_with(|| test_modules_of(sources, name));
        if is_one_of(modules, file) {
            continue;
        }
        for (at, line) in without_tests(&source.text) {
            for (column, word) in words(&line) {
                let is_macro = line[column + word.len()..].starts_with('!');
                if is_macro && PRINTING_MACROS.contains(&word) {
                    let problem = format!("a library prints: {word}!; use the macros of tracing");
                    findings.push(source.finding(at, problem));
                }
            }
        }
    }
    findings
}

/// The modules of a crate that are compiled for tests only.
fn test_modules_of(sources: &[Source], name: &str) -> Vec<String> {
    let place = format!("crates/{name}/src/");
    let own = sources
        .iter()
        .filter(|other| other.path.starts_with(&place));
    own.flat_map(|other| test_modules(&other.text)).collect()
}

/// Whether a file of a crate is one of these modules, or within one.
fn is_one_of(modules: &[String], file: &str) -> bool {
    let stem = file.trim_end_matches(".rs").rsplit('/').next();
    modules
        .iter()
        .any(|module| stem == Some(module) || file.contains(&format!("{module}/")))
}

/// Tests that are switched off. One that cannot run says `skipped` and why when it runs.
#[must_use]
pub fn check_ignored(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        for (at, line) in mask(&source.text).lines().enumerate() {
            let attribute = line.trim_start().strip_prefix("#[");
            let named = attribute.and_then(|text| words(text).next());
            if named.is_some_and(|(column, word)| column == 0 && word == "ignore") {
                findings.push(source.finding(at, "an ignored test is never run"));
            }
        }
    }
    findings
}

/// Absolute paths that only one machine has.
#[must_use]
pub fn check_workplaces(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for (at, line) in source.text.lines().enumerate() {
            for place in WORKPLACES {
                let begins = |column: usize| {
                    let before = line[..column].chars().next_back();
                    before.is_none_or(|c| !c.is_alphanumeric() && !"._-~$}>".contains(c))
                };
                if line.match_indices(place).any(|(column, _)| begins(column)) {
                    findings.push(source.finding(at, format!("a path of one machine: {place}")));
                }
            }
        }
    }
    findings
}

/// References to documents that are not in the repository: a name of the list with `.md`, or in
/// prose before the number of a section. A constant of such a name is none.
#[must_use]
pub fn check_absent(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        let lines: Vec<_> = source.text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let next = lines.get(at + 1).map_or("", |next| comment(next));
            let named = words(line).find(|(column, word)| {
                let rest = &line[column + word.len()..];
                let after = if rest.trim().is_empty() { next } else { rest };
                ABSENT.contains(word) && (rest.starts_with(".md") || is_section(after))
            });
            if let Some((_, name)) = named {
                let problem = format!("{name} is not in the repository: name the paper or say why");
                findings.push(source.finding(at, problem));
            }
        }
    }
    findings
}

/// A line without the marks of a comment.
fn comment(line: &str) -> &str {
    line.trim_start().trim_start_matches(['/', '!', '#', '*'])
}

/// Whether a text begins with the number of a section or of an experiment: ` 1.2c`, `'s 4`, ` E2`.
fn is_section(text: &str) -> bool {
    let text = text.trim_start_matches("'s").trim_start_matches(['§', ' ']);
    let number = text.strip_prefix('E').unwrap_or(text);
    number.starts_with(|c: char| c.is_ascii_digit())
}
