//! An index of the work under way by its range, so that overlaps are found without a scan of all
//! work.

use super::flights::Span;
use futae_policy::VolumeId;
use std::collections::BTreeMap;

/// Ranges of volumes that do not overlap each other, each with a key.
#[derive(Debug, Default)]
pub struct Ranges {
    /// By volume, first byte and key: one past the last byte.
    ends: BTreeMap<(VolumeId, u64, usize), u64>,
}

impl Ranges {
    /// Adds a range that overlaps no other. An empty range overlaps nothing, and is ignored.
    pub fn insert(&mut self, span: &Span, key: usize) {
        if span.length > 0 {
            let of = (span.volume, span.offset, key);
            self.ends.insert(of, span.end());
        }
    }

    /// Removes a range.
    pub fn remove(&mut self, span: &Span, key: usize) {
        self.ends.remove(&(span.volume, span.offset, key));
    }

    /// The last range that overlaps `span`.
    pub fn over(&self, span: &Span) -> Option<usize> {
        if self.ends.is_empty() || span.length == 0 {
            return None;
        }
        let before = (span.volume, 0, 0)..(span.volume, span.end(), 0);
        let (&(_, _, key), &end) = self.ends.range(before).next_back()?;
        (end > span.offset).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_policy::Prng;

    #[test]
    fn equal_to_going_through_all_of_them() {
        let mut prng = Prng::new(5);
        let mut below = |limit| prng.below(limit);
        let (mut ranges, mut plain) = (Ranges::default(), Vec::<Option<Span>>::new());
        for _ in 0..20_000 {
            let span = Span {
                volume: VolumeId(below(2) as u16),
                offset: below(300),
                length: below(30),
            };
            let overlaps =
                |other: &Option<Span>| other.is_some_and(|other| other.overlap(&span).is_some());
            let found = ranges.over(&span);
            assert_eq!(found.is_some(), plain.iter().any(overlaps));
            match found {
                Some(key) => {
                    assert!(overlaps(&plain[key]));
                    let gone = plain[key].take().expect("there");
                    ranges.remove(&gone, key);
                }
                None => {
                    ranges.insert(&span, plain.len());
                    plain.push(Some(span));
                }
            }
        }
    }
}
