//! What became of data that was handed down.

use serde::{Deserialize, Serialize};

/// Of a volume's latest blocks this many are remembered, before those of long ago count half.
const REMEMBERED_BLOCKS: u32 = 4096;
/// A volume is judged after this many blocks.
const JUDGED_BLOCKS_MIN: u32 = 256;

/// Counts, of the whole cache and of each volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct HandDownTally {
    pub verified: u64,
    pub resident: u64,
    pub unknown: u64,
    pub different: u64,
    pub busy: u64,
    pub compared: u64,
    pub wrong: u64,
    /// Lately: blocks of which the hash was known, and those that were different.
    recent: u32,
    recent_different: u32,
}

impl HandDownTally {
    /// A block was verified, or, if not `is_same`, different.
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

    /// Whether most of what was handed down lately was different, so that sending it is useless.
    pub fn keeps_differing(&self) -> bool {
        self.recent >= JUDGED_BLOCKS_MIN && self.recent_different > self.recent / 2
    }

    /// The counts by the names of the status.
    pub fn status(&self) -> HandedDownStatus {
        HandedDownStatus {
            handed_down_verified: self.verified,
            handed_down_resident: self.resident,
            handed_down_unknown: self.unknown,
            handed_down_different: self.different,
            handed_down_busy: self.busy,
            handed_down_compared: self.compared,
            handed_down_wrong: self.wrong,
            ..HandedDownStatus::default()
        }
    }
}

/// What became of data that was handed down, in blocks; see [`crate::Engine::verify_hand_downs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandedDownStatus {
    /// Blocks whose data was what the cache last served or was given: they may enter.
    pub handed_down_verified: u64,
    /// Blocks that were resident: their data was not looked at.
    pub handed_down_resident: u64,
    /// Blocks that were refused since no hash was known.
    pub handed_down_unknown: u64,
    /// Blocks that were refused since they had another hash: forged, stale, torn.
    pub handed_down_different: u64,
    /// Blocks that were refused since they were just being written.
    pub handed_down_busy: u64,
    /// Blocks that entered and were held against the store, where a test asked for that.
    pub handed_down_compared: u64,
    /// Those of them that were not what the store has.
    pub handed_down_wrong: u64,
    /// Hashes that are known.
    pub hash_entries: u64,
    /// Hashes for which there is room.
    pub hash_entries_max: u64,
    /// Bytes of memory for them, and for finding equal blocks.
    pub hash_bytes: u64,
    /// Reads of blocks that were answered by an equal block, where equal blocks are held once.
    pub equal_reads: u64,
    /// Blocks that left the cache since an equal one was there.
    pub equal_dropped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_keeps_differing_is_told_from_one_that_did_once() {
        let mut tally = HandDownTally::default();
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
    }
}
