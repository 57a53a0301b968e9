//! Running counts.

use futae_policy::AccessKind;

/// Running counts: one for the cache, one per volume, one per class.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub requests: u64,
    pub hits: u64,
    pub demotions_in: u64,
    pub notices_in: u64,
    pub store_reads: u64,
    pub store_read_blocks: u64,
    pub store_writes: u64,
    pub notice_reads: u64,
    pub notices_dropped: u64,
    pub preload_reads: u64,
    pub loading_reads: u64,
    pub write_around_blocks: u64,
    pub shared_reads: u64,
    pub write_backs: u64,
    pub write_back_blocks: u64,
    pub write_back_errors: u64,
    pub throttled_writes: u64,
    pub demotions_refused: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub bytes_store_read: u64,
    pub bytes_store_written: u64,
    pub bytes_demoted_in: u64,
    pub bytes_demoted_out: u64,
    pub errors: u64,
}

impl Tally {
    /// Counts one block offered to the level.
    #[inline]
    pub fn count(&mut self, kind: AccessKind, hit: bool) {
        match kind {
            AccessKind::Read | AccessKind::Write => {
                self.requests += 1;
                self.hits += u64::from(hit);
            }
            AccessKind::Demotion => self.demotions_in += 1,
            AccessKind::Notice => self.notices_in += 1,
            AccessKind::Preload => {}
        }
    }
}
