//! The bounded table of hashes, in sets. A full set drops its oldest entry.

use super::mac::{Keys, Mac, Place};
use crate::SetupError;
use bytemuck::Zeroable;
use bytemuck::allocation::try_zeroed_slice_box;

/// Entries per set.
const WAYS: usize = 16;

/// A set of entries. The tags are adjacent, so that a lookup reads one cache line of them.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, align(64))]
struct Set {
    /// The most recently used first; 0 means no entry.
    tags: [u32; WAYS],
    macs: [Mac; WAYS],
}

/// The result of a comparison with the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The data is the block's content.
    Same,
    /// The data differs from the block's content.
    Different,
    /// The block has no entry.
    Unknown,
}

/// Hashes by block.
pub struct Table {
    keys: Keys,
    /// All zero at first: memory is allocated as it is used.
    sets: Box<[Set]>,
    entries: u64,
}

impl Table {
    /// An empty table of at most `bytes` of memory; at least one set.
    pub fn new(keys: Keys, bytes: u64) -> Result<Self, SetupError> {
        let wanted = (bytes / size_of::<Set>() as u64).clamp(1, u64::from(u32::MAX));
        let problem = || SetupError::Size(format!("no memory for {bytes} bytes of hashes"));
        let wanted = usize::try_from(wanted).map_err(|_| problem())?;
        let sets = try_zeroed_slice_box(wanted).map_err(|()| problem())?;
        Ok(Self {
            keys,
            sets,
            entries: 0,
        })
    }

    /// The keys of its hashes.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Its memory in bytes.
    pub fn bytes(&self) -> u64 {
        (self.sets.len() * size_of::<Set>()) as u64
    }

    /// Its capacity in entries.
    pub fn room(&self) -> u64 {
        (self.sets.len() * WAYS) as u64
    }

    /// Its current number of entries.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The block at `place` holds data with this hash.
    pub fn set(&mut self, place: &Place, mac: Mac) {
        let set = self.set_of(place);
        let known = set.find(place.tag);
        let is_new = known.is_none() && set.tags[WAYS - 1] == 0;
        set.make_first(known.unwrap_or(WAYS - 1));
        set.tags[0] = place.tag;
        set.macs[0] = mac.at(place);
        self.entries += u64::from(is_new);
    }

    /// The content of the block at `place` is unknown.
    pub fn remove(&mut self, place: &Place) {
        let set = self.set_of(place);
        if let Some(way) = set.find(place.tag) {
            set.make_first(way);
            set.tags.rotate_left(1);
            set.macs.rotate_left(1);
            set.tags[WAYS - 1] = 0;
            self.entries -= 1;
        }
    }

    /// The hash of the block at `place`, if it is known.
    pub fn get(&mut self, place: &Place) -> Option<Mac> {
        let set = self.set_of(place);
        let way = set.find(place.tag)?;
        set.make_first(way);
        Some(set.macs[0].at(place))
    }

    /// Compares the hash of data with that of the block at `place`.
    pub fn check(&mut self, place: &Place, mac: Mac) -> Verdict {
        let set = self.set_of(place);
        let Some(way) = set.find(place.tag) else {
            return Verdict::Unknown;
        };
        if !set.macs[way].is(mac.at(place)) {
            return Verdict::Different;
        }
        set.make_first(way);
        Verdict::Same
    }

    fn set_of(&mut self, place: &Place) -> &mut Set {
        let at = (u64::from(place.set) * self.sets.len() as u64) >> 32;
        &mut self.sets[at as usize]
    }
}

impl Set {
    fn find(&self, tag: u32) -> Option<usize> {
        self.tags.iter().position(|&other| other == tag)
    }

    fn make_first(&mut self, way: usize) {
        self.tags[..=way].rotate_right(1);
        self.macs[..=way].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(bytes: u64) -> (Table, Keys) {
        let keys = Keys::draw().expect("keys");
        (Table::new(keys.clone(), bytes).expect("a table"), keys)
    }

    #[test]
    fn an_entry_is_twenty_bytes_and_memory_is_what_was_asked_for() {
        assert_eq!(size_of::<Set>(), 20 * WAYS);
        let (table, _) = table(1 << 20);
        assert!(table.bytes() <= 1 << 20 && table.bytes() > (1 << 20) - 20 * WAYS as u64);
        assert_eq!(table.room(), table.bytes() / 20);
        let (least, _) = self::table(0);
        assert_eq!(least.room(), WAYS as u64);
    }

    #[test]
    fn what_was_set_last_is_known_until_it_is_removed() {
        let (mut table, keys) = table(1 << 20);
        let (place, other) = (keys.place(0, 7, 0, 0), keys.place(0, 8, 0, 0));
        let (one, two) = (keys.mac(b"one"), keys.mac(b"two"));
        assert_eq!(table.check(&place, one), Verdict::Unknown);
        table.set(&place, one);
        assert_eq!(table.check(&place, one), Verdict::Same);
        assert_eq!(table.check(&place, two), Verdict::Different);
        assert_eq!(table.check(&other, one), Verdict::Unknown);
        table.set(&place, two);
        assert_eq!(
            table.check(&place, one),
            Verdict::Different,
            "an old content"
        );
        assert_eq!(table.check(&place, two), Verdict::Same);
        assert_eq!(table.entries(), 1);
        table.remove(&place);
        table.remove(&other);
        assert_eq!(table.check(&place, two), Verdict::Unknown);
        assert_eq!(table.entries(), 0);
    }

    #[test]
    fn a_known_hash_is_returned_and_counts_as_used() {
        let (mut table, keys) = table(0);
        let place = |index| keys.place(0, index, 0, 0);
        let mac = |index: u64| keys.mac(&index.to_le_bytes());
        (0..WAYS as u64).for_each(|index| table.set(&place(index), mac(index)));
        assert_eq!(table.get(&place(0)), Some(mac(0)));
        assert_eq!(table.get(&place(100)), None);
        table.set(&place(100), mac(100));
        assert_eq!(table.get(&place(0)), Some(mac(0)), "it was used");
        assert_eq!(table.get(&place(1)), None);
        for index in (2..WAYS as u64).chain([100]) {
            assert_eq!(table.get(&place(index)), Some(mac(index)));
        }
    }

    #[test]
    fn a_full_set_loses_the_entry_that_was_used_longest_ago() {
        let (mut table, keys) = table(0);
        let place = |index| keys.place(0, index, 0, 0);
        let mac = keys.mac(b"data");
        for index in 0..WAYS as u64 {
            table.set(&place(index), mac);
        }
        assert_eq!(table.entries(), table.room());
        assert_eq!(table.check(&place(0), mac), Verdict::Same, "and used again");
        table.set(&place(100), mac);
        assert_eq!(table.entries(), table.room());
        assert_eq!(table.check(&place(1), mac), Verdict::Unknown);
        for index in (2..WAYS as u64).chain([0, 100]) {
            assert_eq!(
                table.check(&place(index), mac),
                Verdict::Same,
                "block {index}"
            );
        }
        table.remove(&place(5));
        table.set(&place(101), mac);
        assert_eq!(table.check(&place(2), mac), Verdict::Same, "there was room");
    }

    #[test]
    fn a_tag_that_two_blocks_share_makes_nothing_of_the_one_pass_for_the_other() {
        let (mut table, keys) = table(0);
        let (mine, mut theirs) = (keys.place(0, 1, 0, 0), keys.place(0, 2, 0, 0));
        theirs.tag = mine.tag;
        let mac = keys.mac(b"data");
        table.set(&mine, mac);
        assert_eq!(table.check(&theirs, mac), Verdict::Different);
        table.set(&theirs, mac);
        assert_eq!(table.check(&mine, mac), Verdict::Different);
    }

    #[test]
    fn most_blocks_that_fit_are_known() {
        let (mut table, keys) = table(20 * 65_536);
        let mac = keys.mac(b"data");
        for index in 0..table.room() / 2 {
            table.set(&keys.place(3, index, 1, 0), mac);
        }
        let known = |index| table.check(&keys.place(3, index, 1, 0), mac) == Verdict::Same;
        let half = 65_536 / 2;
        let count = (0..half).map(known).filter(|&is| is).count() as u64;
        assert!(count * 100 >= half * 98, "{count} of {half}");
    }
}
