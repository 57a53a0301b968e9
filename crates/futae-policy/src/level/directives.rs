//! Directives between levels.

use super::Level;
use crate::{BlockId, Directive, Index, Policy};

impl<P: Policy, I: Index> Level<P, I> {
    /// What the level below is to do with `block`, if the policy directs it; see
    /// [`Policy::directive`].
    #[inline]
    pub fn directive(&self, block: BlockId) -> Option<Directive> {
        self.policy.directive(block)
    }

    /// Passes a directive of the level above to the policy. Not an access.
    #[inline]
    pub fn direct(&mut self, directive: &Directive) {
        self.policy.direct(directive);
    }
}
