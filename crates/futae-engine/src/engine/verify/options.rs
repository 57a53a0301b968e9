//! How what is handed down is verified.

/// What becomes of a block whose data is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRefusal {
    /// Nothing but a count.
    #[default]
    Drop,
    /// It counts as a notice: the policy may have the store read for it.
    Notice,
}

/// How what is handed down is verified; see [`crate::Engine::verify_hand_downs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Bytes of memory for hashes, 20 a block.
    pub memory_bytes: u64,
    /// What becomes of a block of which [`crate::Operation::HandDown`] brings data that is refused.
    pub on_refusal: OnRefusal,
    /// For tests: each block that enters the cache is held against what the store has, by a read of it.
    pub compare_with_store: bool,
}
