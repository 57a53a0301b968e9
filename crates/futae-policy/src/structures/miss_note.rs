//! A policy's finding about a missed block, kept until the block is placed.

use crate::BlockId;

/// The finding of [`Policy::miss`](crate::Policy::miss) about a block, kept for
/// [`Policy::insert`](crate::Policy::insert). The block may never be placed, or may be placed
/// without a miss before it (as a demotion inside another policy); there is then no finding.
#[derive(Clone, Copy, Debug, Default)]
pub struct MissNote<T> {
    of: Option<(BlockId, T)>,
}

impl<T> MissNote<T> {
    /// No finding.
    #[must_use]
    pub fn new() -> Self {
        Self { of: None }
    }

    /// Stores `finding` about `block`, and drops any other.
    #[inline]
    pub fn set(&mut self, block: BlockId, finding: T) {
        self.of = Some((block, finding));
    }

    /// The finding about `block`, if it is the last one. It stays stored.
    #[inline]
    #[must_use]
    pub fn get(&self, block: BlockId) -> Option<T>
    where
        T: Copy,
    {
        let (of, finding) = self.of?;
        (of == block).then_some(finding)
    }

    /// Takes the finding about `block`, if it is the last one. Any finding is then dropped.
    #[inline]
    pub fn take(&mut self, block: BlockId) -> Option<T> {
        let (of, finding) = self.of.take()?;
        (of == block).then_some(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::MissNote;
    use crate::BlockId;

    #[test]
    fn a_finding_is_given_once_and_for_its_own_block_only() {
        let (a, b) = (BlockId::on_first(1), BlockId::on_first(2));
        let mut noted = MissNote::new();
        noted.set(a, 7);
        assert_eq!((noted.get(a), noted.get(b)), (Some(7), None));
        assert_eq!((noted.take(a), noted.take(a)), (Some(7), None));
        noted.set(a, 8);
        assert_eq!((noted.take(b), noted.take(a)), (None, None));
    }
}
