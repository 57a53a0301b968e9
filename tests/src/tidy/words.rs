//! Nothing unfinished, nothing skipped, nothing of one workplace.

use super::{Finding, Source, mask, words};

// Spelt in two parts, so that this file does not find itself.
const UNFINISHED: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const UNFINISHED_MACROS: [&str; 2] = ["todo", "unimplemented"];
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
