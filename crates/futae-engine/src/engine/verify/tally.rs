//! Counts of demotion results.

use serde::{Deserialize, Serialize};

/// After this many blocks of a volume, the older ones count half.
const REMEMBERED_BLOCKS: u32 = 4096;
/// A volume is judged after this many blocks.
const JUDGED_BLOCKS_MIN: u32 = 256;

/// Counts for the whole cache or for one volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct DemotionTally {
    pub verified: u64,
    pub resident: u64,
    pub unknown: u64,
    pub different: u64,
    pub busy: u64,
    pub compared: u64,
    pub wrong: u64,
    /// Recent blocks whose hash was known, and the part of them that differed.
    recent: u32,
    recent_different: u32,
}

impl DemotionTally {
    /// A block was verified (`is_same`) or differed.
    pub fn judge(&mut self, is_same: bool) {
        self.verified += u64::from(is_same);
        self.different += u64::from(!is_same);
        self.recent += 1;
        self.recent_different += u32::from(!is_same);
        if self.recent >= REMEMBERED_BLOCKS {
            self.recent /= 2;
            self.recent_different /= 2;
        }
    }

    /// Whether most recent demotions differed, so that sending more is useless.
    pub fn keeps_differing(&self) -> bool {
        self.recent >= JUDGED_BLOCKS_MIN && self.recent_different > self.recent / 2
    }

    /// The counts by the names of the status.
    pub fn status(&self) -> DemotionStatus {
        DemotionStatus {
            demotions_verified: self.verified,
            demotions_resident: self.resident,
            demotions_unknown: self.unknown,
            demotions_different: self.different,
            demotions_busy: self.busy,
            demotions_compared: self.compared,
            demotions_wrong: self.wrong,
            ..DemotionStatus::default()
        }
    }
}

/// Results of demotions, in blocks; see [`crate::Engine::verify_demotions`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DemotionStatus {
    /// Blocks whose data matched what the cache last served or received: they may enter.
    pub demotions_verified: u64,
    /// Blocks that were resident: their demoted data was not checked.
    pub demotions_resident: u64,
    /// Blocks refused because no hash was known.
    pub demotions_unknown: u64,
    /// Blocks refused because their hash differed: forged, stale or torn.
    pub demotions_different: u64,
    /// Blocks refused because a write to them was under way.
    pub demotions_busy: u64,
    /// Accepted blocks that were compared with the store, if a test asked for that.
    pub demotions_compared: u64,
    /// Compared blocks that differed from the store.
    pub demotions_wrong: u64,
    /// Hashes in the table.
    pub hash_entries: u64,
    /// Hashes that the table has room for.
    pub hash_entries_max: u64,
    /// Memory for hashes, and for finding equal blocks, in bytes.
    pub hash_bytes: u64,
    /// Reads answered from an equal block, if equal blocks are held once.
    pub equal_reads: u64,
    /// Blocks dropped because an equal one was resident.
    pub equal_dropped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_keeps_differing_is_told_from_one_that_did_once() {
        let mut tally = DemotionTally::default();
        (1..JUDGED_BLOCKS_MIN).for_each(|_| tally.judge(false));
        assert!(!tally.keeps_differing(), "too few");
        tally.judge(false);
        assert!(tally.keeps_differing());
        (0..JUDGED_BLOCKS_MIN).for_each(|_| tally.judge(true));
        assert!(!tally.keeps_differing(), "it has got better");
        (0..1_000_000).for_each(|_| tally.judge(true));
        (0..REMEMBERED_BLOCKS).for_each(|_| tally.judge(false));
        assert!(tally.keeps_differing(), "what was long ago does not count");
        let verified = tally.verified;
        (0..2 * REMEMBERED_BLOCKS).for_each(|_| tally.judge(true));
        assert!(!tally.keeps_differing(), "nor for ever");
        assert_eq!(verified, u64::from(JUDGED_BLOCKS_MIN) + 1_000_000);
        let different = u64::from(JUDGED_BLOCKS_MIN + REMEMBERED_BLOCKS);
        assert_eq!(tally.different, different);
    }

    #[test]
    fn every_count_has_its_name() {
        let tally = DemotionTally {
            verified: 1,
            resident: 2,
            unknown: 3,
            different: 4,
            busy: 5,
            compared: 6,
            wrong: 7,
            ..DemotionTally::default()
        };
        let expected = DemotionStatus {
            demotions_verified: 1,
            demotions_resident: 2,
            demotions_unknown: 3,
            demotions_different: 4,
            demotions_busy: 5,
            demotions_compared: 6,
            demotions_wrong: 7,
            ..DemotionStatus::default()
        };
        assert_eq!(tally.status(), expected);
    }
}
