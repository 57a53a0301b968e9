//! A disk with a volatile cache: what it answered may be lost at power loss until a FLUSH that
//! began later has ended.

use crate::content::{Place, SECTOR, fill};
use futae_policy::Prng;
use std::collections::VecDeque;

/// Writes in the volatile cache at most; the disk then makes the oldest stable by itself.
const VOLATILE_MAX: usize = 64;

/// A disk.
#[derive(Clone)]
pub struct Disk {
    /// What reads see.
    bytes: Vec<u8>,
    /// What survives power loss.
    stable: Vec<u8>,
    /// By sector: the newest write that is stable, so that no older one comes after it.
    stable_number: Vec<u64>,
    /// Writes that are not stable, oldest first.
    volatile: VecDeque<Written>,
    number: u64,
}

/// A write that the disk has.
#[derive(Clone, Debug)]
struct Written {
    number: u64,
    is_answered: bool,
    /// First byte.
    offset: u64,
    /// The data.
    data: Vec<u8>,
}

/// How much of an operation that fails, or is under way at a crash, is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Nothing.
    None,
    /// All.
    All,
    /// Any sectors.
    Some,
}

impl Part {
    /// One of them.
    pub fn draw(prng: &mut Prng) -> Self {
        match prng.below(3) {
            0 => Self::None,
            1 => Self::All,
            _ => Self::Some,
        }
    }
}

impl Disk {
    /// A disk of volume number `volume`, whose sectors hold what write `version` wrote.
    pub fn new(bytes: u64, volume: usize, version: u64) -> Self {
        let mut content = vec![0; bytes as usize];
        fill(&mut content, Place { volume, sector: 0 }, version);
        Self {
            stable: content.clone(),
            bytes: content,
            stable_number: vec![0; (bytes / SECTOR) as usize],
            volatile: VecDeque::new(),
            number: 0,
        }
    }

    /// What reads see.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes what reads see away for a moment; [`put_bytes`](Self::put_bytes) brings it back.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Brings back what was taken.
    pub fn put_bytes(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }

    /// What survives power loss.
    pub fn stable(&self) -> &[u8] {
        &self.stable
    }

    /// Writes that are not stable, oldest first: their sectors, but for those that hold something newer on
    /// stable storage, with their content.
    pub fn unstable(&self) -> Vec<Vec<(usize, Vec<u8>)>> {
        let sectors = |written: &Written| {
            let first = (written.offset / SECTOR) as usize;
            let sectors = written.data.chunks(SECTOR as usize).enumerate();
            let sectors = sectors.map(|(at, data)| (first + at, data.to_vec()));
            let is_newest = |sector: usize| self.stable_number[sector] <= written.number;
            sectors.filter(|(sector, _)| is_newest(*sector)).collect()
        };
        self.volatile.iter().map(sectors).collect()
    }

    /// Writes that are not stable.
    pub fn volatile(&self) -> usize {
        self.volatile.len()
    }

    /// Writes, and makes it stable if asked to. Returns the number of the write.
    pub fn write(&mut self, offset: u64, data: &[u8], fua: bool) -> u64 {
        self.number += 1;
        let at = offset as usize;
        self.bytes[at..at + data.len()].copy_from_slice(data);
        if fua {
            self.stabilise((self.number, offset), data, |_| true);
            return self.number;
        }
        self.volatile.push_back(Written {
            number: self.number,
            is_answered: false,
            offset,
            data: data.to_vec(),
        });
        if self.volatile.len() > VOLATILE_MAX
            && let Some(oldest) = self.volatile.pop_front()
        {
            self.stabilise_written(&oldest, |_| true);
        }
        self.number
    }

    /// As much of a write as `part` says.
    pub fn write_part(&mut self, offset: u64, data: &[u8], part: Part, prng: &mut Prng) {
        match part {
            Part::None => {}
            Part::All => {
                let number = self.write(offset, data, false);
                self.answered(number);
            }
            Part::Some => {
                for (at, sector) in data.chunks(SECTOR as usize).enumerate() {
                    if prng.below(2) == 0 {
                        let number = self.write(offset + at as u64 * SECTOR, sector, false);
                        self.answered(number);
                    }
                }
            }
        }
    }

    /// The write of that number has been answered, so a FLUSH that comes now covers it.
    pub fn answered(&mut self, number: u64) {
        let mut volatile = self.volatile.iter_mut();
        if let Some(written) = volatile.find(|written| written.number == number) {
            written.is_answered = true;
        }
    }

    /// No answer is owed any more: a FLUSH that comes now covers everything.
    pub fn owes_nothing(&mut self) {
        for written in &mut self.volatile {
            written.is_answered = true;
        }
    }

    /// A FLUSH begins: the numbers of the writes that it covers.
    pub fn begin_flush(&self) -> Vec<u64> {
        let answered = self.volatile.iter().filter(|written| written.is_answered);
        answered.map(|written| written.number).collect()
    }

    /// It ends.
    pub fn end_flush(&mut self, covered: &[u64]) {
        for written in std::mem::take(&mut self.volatile) {
            if covered.contains(&written.number) {
                self.stabilise_written(&written, |_| true);
            } else {
                self.volatile.push_back(written);
            }
        }
    }

    /// Power is lost: of each write that is not stable all, nothing or any sectors survive.
    pub fn lose_power(&mut self, prng: &mut Prng) {
        for written in std::mem::take(&mut self.volatile) {
            match Part::draw(prng) {
                Part::None => {}
                Part::All => self.stabilise_written(&written, |_| true),
                Part::Some => self.stabilise_written(&written, |_| prng.below(2) == 0),
            }
        }
        self.bytes.copy_from_slice(&self.stable);
        self.stable_number.fill(0);
        self.number = 0;
    }

    fn stabilise_written(&mut self, written: &Written, keeps: impl FnMut(usize) -> bool) {
        self.stabilise((written.number, written.offset), &written.data, keeps);
    }

    fn stabilise(
        &mut self,
        (number, offset): (u64, u64),
        data: &[u8],
        mut keeps: impl FnMut(usize) -> bool,
    ) {
        let first = (offset / SECTOR) as usize;
        for (at, data) in data.chunks(SECTOR as usize).enumerate() {
            let sector = first + at;
            if self.stable_number[sector] > number || !keeps(sector) {
                continue;
            }
            self.stable_number[sector] = number;
            let from = sector * SECTOR as usize;
            self.stable[from..from + data.len()].copy_from_slice(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::version_of;

    const PLACE: Place = Place {
        volume: 0,
        sector: 0,
    };

    fn sector(version: u64) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR as usize];
        fill(&mut bytes, PLACE, version);
        bytes
    }

    fn after_power_loss(disk: &Disk) -> Vec<u64> {
        let mut prng = Prng::new(1);
        let mut found: Vec<u64> = (0..64)
            .map(|_| {
                let mut disk = disk.clone();
                disk.lose_power(&mut prng);
                version_of(&disk.bytes()[..SECTOR as usize], PLACE).expect("a sector")
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    #[test]
    fn power_loss_takes_what_no_flush_covered() {
        let mut disk = Disk::new(SECTOR, 0, 1);
        let second = disk.write(0, &sector(2), false);
        assert_eq!(after_power_loss(&disk), [1, 2]);
        let flush = disk.begin_flush();
        disk.end_flush(&flush);
        assert_eq!(after_power_loss(&disk), [1, 2], "it was not answered");
        disk.answered(second);
        let flush = disk.begin_flush();
        let third = disk.write(0, &sector(3), false);
        disk.answered(third);
        disk.end_flush(&flush);
        assert_eq!(after_power_loss(&disk), [2, 3]);
        disk.write(0, &sector(4), true);
        assert_eq!(after_power_loss(&disk), [4]);
        let mut prng = Prng::new(7);
        disk.write_part(0, &sector(5), Part::None, &mut prng);
        assert_eq!(disk.bytes(), sector(4));
    }
}
