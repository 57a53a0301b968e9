//! A level with a candidate's policy.

use super::whereabouts::Whereabouts;
use crate::{Level, PolicySpec, RegisteredPolicy, Shape, SpecError};

/// A level with a built policy: of all slots, or of those of a sample.
pub type Shadow = Level<Box<dyn RegisteredPolicy>, Whereabouts>;

/// An empty level of this shape under a policy.
pub fn level(spec: &PolicySpec, shape: &Shape) -> Result<Shadow, SpecError> {
    let policy = crate::build(spec, shape)?;
    Ok(Level::new(policy, Whereabouts::default(), shape.slots))
}

/// Announces to an empty level that blocks are numbered densely from `first` on.
pub fn number(level: &mut Shadow, first: u64) {
    level.number_blocks(first);
    *level.index_mut() = Whereabouts::numbered();
}
