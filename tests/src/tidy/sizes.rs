//! Files stay short enough to be read.

use super::{Finding, Source, mask};

/// Lines of a source file at most, without its unit tests.
pub const LINES_MAX: usize = 500;

/// Rust files that are too long.
#[must_use]
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let too_long =
        |source: &&Source| source.is_rust() && lines_without_tests(&source.text) > LINES_MAX;
    let report = |source: &Source| {
        let lines = lines_without_tests(&source.text);
        source.finding(
            0,
            format!("{lines} lines without its tests, at most {LINES_MAX}: split it"),
        )
    };
    sources.iter().filter(too_long).map(report).collect()
}

/// Lines of a file that are in no item marked `#[cfg(test)]`.
#[must_use]
pub fn lines_without_tests(text: &str) -> usize {
    let code = mask(text);
    let lines: Vec<&str> = code.lines().collect();
    let (mut counted, mut at) = (0, 0);
    while at < lines.len() {
        if lines[at].trim_start().starts_with("#[cfg(test)]") {
            at = end_of_item(&lines, at);
        } else {
            counted += 1;
            at += 1;
        }
    }
    counted
}

/// The line after the item that begins at `first`: it ends with its braces, or at a semicolon
/// before any.
fn end_of_item(lines: &[&str], first: usize) -> usize {
    let (mut depth, mut opened) = (0usize, false);
    for (at, line) in lines.iter().enumerate().skip(first) {
        for c in line.chars() {
            match c {
                '{' => (depth, opened) = (depth + 1, true),
                '}' => depth = depth.saturating_sub(1),
                ';' if !opened => return at + 1,
                _ => {}
            }
        }
        if opened && depth == 0 {
            return at + 1;
        }
    }
    lines.len()
}
