//! The extents in one BLOCK_STATUS reply, bounded by what the range can need.

use futae_engine::Extent;

/// Extents kept per reply. The rest of the range counts as data.
const EXTENTS_MAX: usize = 1 << 16;

/// Extents in ascending order, adjacent ones of the same kind merged, cut to the requested range.
#[derive(Debug)]
pub(super) struct Extents {
    found: Vec<Extent>,
    /// Bytes of the range that are not described yet.
    left: u64,
}

impl Extents {
    /// For a range of `length` bytes.
    pub(super) fn new(length: u64) -> Self {
        Self {
            found: Vec::new(),
            left: length,
        }
    }

    /// Adds the extents in one chunk of the reply.
    pub(super) fn extend(&mut self, extents: impl Iterator<Item = Extent>) {
        for extent in extents {
            let length = extent.length.min(self.left);
            if length == 0 {
                continue;
            }
            let known = self.found.len();
            match self.found.last_mut() {
                Some(last) if last.hole == extent.hole => last.length += length,
                _ if known == EXTENTS_MAX => return,
                _ => self.found.push(Extent { length, ..extent }),
            }
            self.left -= length;
        }
    }

    /// Whether there are no extents.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The extents.
    pub(super) fn into_list(self) -> Vec<Extent> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_descriptions_take_no_more_than_the_range_needs() {
        let mut extents = Extents::new(1000);
        let extent = |length, hole| Extent { length, hole };
        extents.extend((0..1_000_000).map(|at| extent(0, at % 2 == 0)));
        extents.extend([extent(10, true), extent(20, true), extent(u64::MAX, false)].into_iter());
        extents.extend((0..1_000_000).map(|at| extent(1, at % 2 == 0)));
        assert_eq!(extents.into_list(), [extent(30, true), extent(970, false)]);
        let mut extents = Extents::new(u64::MAX);
        extents.extend((0..1_000_000).map(|at| extent(1, at % 2 == 0)));
        assert_eq!(extents.into_list().len(), EXTENTS_MAX);
    }
}
