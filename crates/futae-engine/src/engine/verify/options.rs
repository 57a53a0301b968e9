//! Options of the verification of demotions.

/// What follows from a refused demotion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRefusal {
    /// It is counted only.
    #[default]
    Drop,
    /// It counts as a notice: the policy may read the block from the store.
    Notice,
}

/// Options of the verification of demotions; see [`crate::Engine::verify_demotions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Memory for hashes in bytes; 20 per block.
    pub memory_bytes: u64,
    /// What follows if the data of a block demoted by an agent ([`crate::Demotion::by_agent`]) is
    /// refused.
    pub on_refusal: OnRefusal,
    /// For tests: each accepted block is read from the store and compared.
    pub compare_with_store: bool,
}
