//! Text of a spec, cut up without losing where it stood.

use super::WorkloadErrorKind;
use std::ops::Range;

/// An error and the byte of the spec that it is about.
pub type Problem = (usize, WorkloadErrorKind);

/// A part of a spec that knows where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    pub text: &'a str,
    pub at: usize,
}

impl<'a> Piece<'a> {
    pub fn trim(self) -> Self {
        let start = self.text.trim_start();
        Self {
            text: start.trim_end(),
            at: self.at + self.text.len() - start.len(),
        }
    }

    pub fn cut(self, range: Range<usize>) -> Self {
        Self {
            text: &self.text[range.clone()],
            at: self.at + range.start,
        }
        .trim()
    }

    /// The parts before and after the first `separator` outside brackets.
    pub fn split_once(self, separator: char) -> Option<(Self, Self)> {
        let end = top_level(self.text, separator).next()?;
        let rest = end + separator.len_utf8()..self.text.len();
        Some((self.cut(0..end), self.cut(rest)))
    }

    /// The number that is written here, if `allowed` has it.
    pub fn number<T: std::str::FromStr>(
        self,
        expected: &'static str,
        allowed: impl Fn(&T) -> bool,
    ) -> Result<T, Problem> {
        self.text.parse().ok().filter(allowed).ok_or_else(|| {
            (
                self.at,
                WorkloadErrorKind::Value {
                    text: self.text.to_owned(),
                    expected,
                },
            )
        })
    }
}

/// Where `separator` stands in `text` outside brackets.
fn top_level(text: &str, separator: char) -> impl Iterator<Item = usize> {
    let mut depth = 0usize;
    text.char_indices().filter_map(move |(i, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        (c == separator && depth == 0).then_some(i)
    })
}

/// The position of the bracket that closes the one at the start of `text`.
pub fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    text.char_indices().find_map(|(i, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(i)
    })
}

/// The arguments between the commas of `inside`; none if it is blank.
pub fn arguments(inside: Piece<'_>) -> Vec<Piece<'_>> {
    if inside.text.is_empty() {
        return Vec::new();
    }
    let ends = top_level(inside.text, ',').chain([inside.text.len()]);
    let mut start = 0;
    ends.map(|end| {
        let argument = inside.cut(start..end);
        start = end + 1;
        argument
    })
    .collect()
}
