//! Phrases that make an engineer read a sentence twice, each with what to write in its place.

use super::{Finding, Source};

// Spelt in two parts, so that this file does not find itself.
const PHRASES: [(&str, &str); 5] = [
    (concat!("who", "ever"), "name the actor"),
    (concat!("what is", " no "), "use a noun: \"parts of pages\""),
    (concat!("for want", " of"), "\"because ... is missing\""),
    (
        concat!("is no", " use"),
        "\"is useless\" or \"does not count\"",
    ),
    (concat!("of so", " many"), "\"of this many\", or a number"),
];

/// Such phrases in sources and in documents. Logs of runs stay as they were written.
#[must_use]
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let checked = |source: &&Source| !source.path.starts_with("lab/results/");
    for source in sources.iter().filter(checked) {
        for (at, line) in source.text.lines().enumerate() {
            let line = line.to_lowercase();
            for (phrase, instead) in PHRASES {
                if is_phrase_of(&line, phrase) {
                    findings.push(source.finding(at, format!("{phrase:?}: write {instead}")));
                }
            }
        }
    }
    findings
}

/// Whether the words of `phrase` are words of `line`, and not parts of longer ones.
fn is_phrase_of(line: &str, phrase: &str) -> bool {
    let is_word = |next: Option<char>| next.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(phrase).any(|(column, _)| {
        let end = column + phrase.len();
        let goes_on = !phrase.ends_with(' ') && is_word(line[end..].chars().next());
        !is_word(line[..column].chars().next_back()) && !goes_on
    })
}
