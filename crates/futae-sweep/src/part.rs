//! A part of a sweep, as one of several processes takes it.

use std::ops::Range;
use std::str::FromStr;

/// Part `index` of `count`, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    index: usize,
    count: usize,
}

impl Part {
    /// The cells of this part: cells that follow each other, since those share a trace.
    #[must_use]
    pub fn of(self, cells: usize) -> Range<usize> {
        let at = |part: usize| {
            let product = cells as u128 * part as u128 / self.count as u128;
            product as usize
        };
        at(self.index - 1)..at(self.index)
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/');
        let parsed = numbers.and_then(|(index, count)| {
            Some(Self {
                index: index.parse().ok()?,
                count: count.parse().ok()?,
            })
        });
        parsed
            .filter(|part| part.index >= 1 && part.index <= part.count)
            .ok_or_else(|| format!("{text:?} is no part; the first of four is 1/4"))
    }
}

#[cfg(test)]
mod tests {
    use super::Part;

    #[test]
    fn the_parts_are_the_whole_each_cell_once() {
        for (cells, count) in [(10, 3), (2, 5), (0, 1), (8000, 7)] {
            let parts = (1..=count).map(|index| Part { index, count });
            let all: Vec<usize> = parts.flat_map(|part| part.of(cells)).collect();
            assert_eq!(all, (0..cells).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_part_is_between_one_and_their_number() {
        for bad in ["0/4", "5/4", "1", "1/0", "a/b", "-1/2"] {
            assert!(bad.parse::<Part>().is_err(), "{bad}");
        }
        assert_eq!("4/4".parse(), Ok(Part { index: 4, count: 4 }));
    }
}
