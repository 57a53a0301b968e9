//! Files stay short enough to be read.

use super::{Finding, Source, without_tests};

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
fn lines_without_tests(text: &str) -> usize {
    without_tests(text).len()
}
