//! What a policy must know of the level that it is built for.

/// The parameters for building a policy.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Slots of the level.
    pub slots: u32,
    /// Seed for randomised policies.
    pub seed: u64,
}
