//! What each sector of a disk may hold: a register with every write to it.

use crate::disk::SECTOR;

/// Sectors written with these values are equal wherever they are in their block.
pub const EQUAL_MAX: u64 = 6;

/// One write to a sector.
#[derive(Clone, Debug)]
struct Version {
    value: u64,
    begun: u64,
    ended: Option<u64>,
    is_good: bool,
    /// The store has it, or something later, come what may.
    is_safe: bool,
}

/// All that a disk may hold.
pub struct Model {
    disk: u64,
    sectors_of_block: u64,
    sectors: Vec<Vec<Version>>,
}

impl Model {
    pub fn new(disk: u64, block_bytes: u64) -> Self {
        Self {
            disk,
            sectors_of_block: block_bytes / SECTOR,
            sectors: Vec::new(),
        }
    }

    pub fn sectors(&self) -> u64 {
        self.sectors.len() as u64
    }

    /// What a write with `value` leaves in a sector.
    fn word(&self, value: u64, sector: u64) -> u64 {
        match value {
            0 => 0,
            1..=EQUAL_MAX => value << 8 | (sector % self.sectors_of_block),
            _ => value << 24 | self.disk << 16 | sector,
        }
    }

    /// The data of a write with `value`.
    pub fn data(&self, value: u64, first: u64, sectors: u64) -> Vec<u8> {
        let one = |sector| self.word(value, sector).to_le_bytes();
        let all = (first..first + sectors).map(|sector| one(sector).repeat(SECTOR as usize / 8));
        all.flatten().collect()
    }

    pub fn begin(&mut self, value: u64, (first, sectors): (u64, u64), now: u64) {
        for sector in &mut self.sectors[first as usize..][..sectors as usize] {
            sector.push(Version {
                value,
                begun: now,
                ended: None,
                is_good: false,
                is_safe: false,
            });
        }
    }

    /// The write that began at `begun` has ended.
    pub fn end(
        &mut self,
        (first, sectors): (u64, u64),
        begun: u64,
        now: u64,
        (is_good, is_safe): (bool, bool),
    ) {
        for sector in &mut self.sectors[first as usize..][..sectors as usize] {
            let mut versions = sector.iter_mut();
            let version = versions.find(|it| it.begun == begun).expect("it has begun");
            version.ended = Some(now);
            version.is_good = is_good;
            version.is_safe = is_good && is_safe;
        }
    }

    /// A flush that began at `begun` went well.
    pub fn flushed(&mut self, begun: u64) {
        for version in self.sectors.iter_mut().flatten() {
            let is_covered = version.ended.is_some_and(|ended| ended < begun);
            version.is_safe |= version.is_good && is_covered;
        }
    }

    /// What nobody may see any more is forgotten, if no request from before `oldest` is under way.
    pub fn forget(&mut self, oldest: u64) {
        for sector in &mut self.sectors {
            let safe = sector.iter().filter(|it| it.is_safe);
            let safe = safe.filter(|it| it.ended.is_some_and(|ended| ended < oldest));
            let Some(last) = safe.map(|it| it.begun).max() else {
                continue;
            };
            sector.retain(|it| it.ended.is_none_or(|ended| ended >= last));
        }
    }

    /// Checks what was found in sectors from `first` on by somebody who began to look at `begun`; without
    /// that moment, that it is all that a crash may leave.
    pub fn check(&self, first: u64, bytes: &[u8], begun: Option<u64>, who: &str) {
        for (sector, bytes) in (first..).zip(bytes.chunks(SECTOR as usize)) {
            let number = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
            let found = number(&bytes[..8]);
            let is_whole = bytes.chunks(8).all(|chunk| number(chunk) == found);
            let versions = &self.sectors[sector as usize];
            let counts = |it: &&Version| match begun {
                Some(begun) => it.is_good && it.ended.is_some_and(|ended| ended < begun),
                None => it.is_safe,
            };
            let last = versions.iter().filter(counts).map(|it| it.begun).max();
            let may_be = |it: &&Version| match (last, it.ended) {
                (Some(last), Some(ended)) => ended >= last,
                _ => true,
            };
            let mut those = versions.iter().filter(may_be);
            let is_right = is_whole && those.any(|it| self.word(it.value, sector) == found);
            assert!(
                is_right,
                "{who}: disk {} sector {sector} has {found:#x} ({}), looked at since {begun:?}; it may be one of {:?}",
                self.disk,
                found >> 24,
                versions.iter().filter(may_be).collect::<Vec<_>>()
            );
        }
    }

    /// The disk is all that counts, and holds these bytes.
    pub fn settle(&mut self, bytes: &[u8]) {
        self.sectors.clear();
        self.lengthen(bytes);
    }

    /// The disk is longer now.
    pub fn lengthen(&mut self, bytes: &[u8]) {
        for sector in self.sectors()..bytes.len() as u64 / SECTOR {
            let at = (sector * SECTOR) as usize;
            let word = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            let value = match word {
                0 => 0,
                word if word >> 24 == 0 => word >> 8,
                word => word >> 24,
            };
            self.sectors.push(vec![Version {
                value,
                begun: 0,
                ended: Some(0),
                is_good: true,
                is_safe: true,
            }]);
        }
    }
}
