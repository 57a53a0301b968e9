//! Corrects a store's extents: holes for which the cache has data become data.

use crate::Extent;

/// The extents of a range from `offset` on, in which the ranges in `data` become data. A range is
/// its first byte and one past its last; the ranges are ascending and disjoint.
pub fn with_data(extents: &[Extent], offset: u64, data: &[(u64, u64)]) -> Vec<Extent> {
    if data.is_empty() {
        return extents.to_vec();
    }
    let mut out: Vec<Extent> = Vec::new();
    let mut push = |length: u64, hole: bool| match out.last_mut() {
        _ if length == 0 => {}
        Some(last) if last.hole == hole => last.length += length,
        _ => out.push(Extent { length, hole }),
    };
    let mut at = offset;
    let mut next = 0;
    for extent in extents {
        let end = at + extent.length;
        while at < end {
            while data.get(next).is_some_and(|range| range.1 <= at) {
                next += 1;
            }
            let (first, last) = data.get(next).copied().unwrap_or((u64::MAX, u64::MAX));
            let is_data = first <= at;
            let until = end.min(if is_data { last } else { first });
            push(until - at, extent.hole && !is_data);
            at = until;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(u64, bool)]) -> Vec<Extent> {
        let extent = |&(length, hole)| Extent { length, hole };
        pairs.iter().map(extent).collect()
    }

    #[test]
    fn data_covers_holes_and_nothing_else_changes() {
        let plain = of(&[(10, true), (10, false), (80, true)]);
        assert_eq!(with_data(&plain, 100, &[]), plain);
        let covered = with_data(&plain, 100, &[(0, 104), (115, 125), (190, 400)]);
        let expected = of(&[(4, false), (6, true), (15, false), (65, true), (10, false)]);
        assert_eq!(covered, expected);
        let lengths = covered.iter().map(|extent| extent.length);
        assert_eq!(lengths.sum::<u64>(), 100);
    }
}
