//! Linux: the file pages of the kernel, in active and inactive lists with refault distances.
//!
//! # Source
//! Linux mainline, the lists that are used unless multi-generational LRU is on: `mm/swap.c`
//! (`folio_mark_accessed`), `mm/vmscan.c` (`inactive_is_low`, `prepare_scan_control`, `get_scan_count`,
//! `shrink_active_list`), `mm/workingset.c` (its opening comment), as of 6.1; read as a description, not
//! copied. `futae-lab kernels` compares it with running kernels (docs/explanation/guest-kernels.md).
//! # Picture
//! new → [ inactive, FIFO ] → evicted, with a shadow entry;
//! second use → [ active, FIFO ] → to inactive when that is low;
//! refault soon enough by its shadow entry → active at once
//! # Transitions
//! hit: marked; if already marked, from inactive to the recent end of active, mark cleared | miss: to the
//! recent end of inactive, marked (its first use); to active if, since its eviction, no more blocks were
//! evicted or activated than active has | victim: the oldest of inactive. Reclaim works in rounds of at
//! least 32 victims: it scans 1/4096 of each list, then 1/2048 and so on, until it has them. Scanned blocks
//! of active, from its oldest end, move to the recent end of inactive, but only if inactive is low, or if a
//! refault entered active since the round before
//! # Parameters
//! ratio 0: limit on the length of active as a multiple of inactive; 0 takes it from the size as the kernel
//! does, √(10 × GiB) for a GiB and more, else 1
//! block_kib 4: KiB per block, from which the size in GiB follows
//! late 0: accesses between two updates of what reclaim knows of the lists; with 0 it always knows all, as
//! in 6.1. In 6.12 it knows the lengths of a memory cgroup's lists, and the number of refaults into active,
//! from statistics that are updated every two seconds (`mem_cgroup_flush_stats_ratelimited`), or when a
//! program reads memory.stat
//! readahead 0: limit on the blocks that the kernel reads ahead, 32 with its default `read_ahead_kb` of
//! 128; 0 is no readahead. A block read ahead is not marked until its first use
//! folios single: `large` where the file system has large folios, such as XFS. Then a window of readahead
//! consists of folios of 2, 4 and more blocks, each of which is marked, activated and evicted as one
//! # Deviations
//! the victims of a round are evicted as their slots are needed, where the kernel frees them at once. No
//! daemon reclaims in advance, and there are no mapped pages and no anonymous memory. Dirty pages are
//! evicted like clean ones. Readahead takes each volume for one file that is open once, and each request
//! for one of a single block. Written data is in single folios
//! # Cost
//! O(1) per access, amortised, and the length of its folio; 18 bytes per slot, 35 with readahead, 44 with
//! large folios; about 32 per shadow entry, at most as many entries as slots

use crate::policy::order_by_evicting;
use crate::structures::{Arrival, Ghosts, Queues, ReadAhead, Table};
use crate::{
    Access, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot, SpecError,
};

const INACTIVE: usize = 0;
const ACTIVE: usize = 1;
/// The kernel's `SWAP_CLUSTER_MAX`: the smallest yield of a round of reclaim.
const ROUND: u32 = 32;
/// The kernel's `DEF_PRIORITY`: the fraction of the lists that is scanned first, as a power of two.
const SHARE_FIRST: u32 = 12;

/// Two lists, and shadows of evicted blocks.
#[derive(Clone, Debug)]
pub struct Linux {
    ratio_given: u32,
    block_kib: u64,
    ratio: u32,
    lists: Queues,
    referenced: Table<bool>,
    names: Table<BlockId>,
    /// Departures and activations so far: the kernel's `nonresident_age`.
    age: u64,
    /// Departed blocks with the age at which they left.
    shadows: Ghosts<u64>,
    /// Victims that are left of this round of reclaim.
    round: u32,
    /// Departed blocks that came back to active so far.
    refaults: u64,
    /// Those of them that a round of reclaim has seen.
    refaults_seen: u64,
    late: u64,
    /// What reclaim takes for true, if that is late, and the accesses since it was.
    known: Statistics,
    known_for: u64,
    ahead: ReadAhead,
}

/// What the kernel counts of a memory cgroup.
#[derive(Clone, Copy, Debug, Default)]
struct Statistics {
    inactive: u32,
    active: u32,
    refaults: u64,
}

/// Builds the policy; its parameters are `ratio`, `block_kib`, `late`, `readahead` and `folios`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Linux, SpecError> {
    let ratio = arguments.take("ratio", "0 to 10000", |ratio: &u32| *ratio <= 10_000)?;
    let block_kib = arguments.take("block_kib", "1 to 1048576", |kib: &u64| {
        (1..=1 << 20).contains(kib)
    })?;
    let late = arguments.take("late", "0 to 1000000000", |late: &u64| {
        *late <= 1_000_000_000
    })?;
    let ahead = ReadAhead::take(arguments)?;
    let mut policy = Linux {
        ratio_given: ratio.unwrap_or(0),
        block_kib: block_kib.unwrap_or(4),
        ratio: 1,
        lists: Queues::new(2, shape.slots),
        referenced: Table::new(shape.slots),
        names: Table::new(shape.slots),
        age: 0,
        shadows: Ghosts::new(0),
        round: 0,
        refaults: 0,
        refaults_seen: 0,
        late: late.unwrap_or(0),
        known: Statistics::default(),
        known_for: 0,
        ahead,
    };
    policy.resize(shape.slots);
    Ok(policy)
}

impl Linux {
    /// What reclaim takes for true.
    fn statistics(&self) -> Statistics {
        match self.late {
            0 => self.counted(),
            _ => self.known,
        }
    }

    fn counted(&self) -> Statistics {
        Statistics {
            inactive: self.lists.len(INACTIVE),
            active: self.lists.len(ACTIVE),
            refaults: self.refaults,
        }
    }

    /// Counts an access towards the next update of the statistics.
    #[inline]
    fn pass(&mut self) {
        if self.late > 0 {
            self.known_for += 1;
            if self.known_for >= self.late {
                self.known_for = 0;
                self.known = self.counted();
            }
        }
    }

    fn inactive_is_low(&self) -> bool {
        let known = self.statistics();
        u64::from(known.inactive) * u64::from(self.ratio) < u64::from(known.active)
    }

    /// Begins a round of reclaim: determines its yield, and deactivates blocks of the active list.
    fn begin_round(&mut self) {
        let refaults = self.statistics().refaults;
        let thrashes = std::mem::replace(&mut self.refaults_seen, refaults) != refaults;
        for share in (0..=SHARE_FIRST).rev() {
            let scanned = self.lists.len(ACTIVE) >> share;
            self.round += self.lists.len(INACTIVE) >> share;
            if thrashes || self.inactive_is_low() {
                self.deactivate(scanned);
            }
            if self.round >= ROUND {
                break;
            }
        }
        // No more than are available.
        self.round = self.round.min(self.lists.len(INACTIVE));
    }

    fn deactivate(&mut self, count: u32) {
        let mut left = count;
        while left > 0
            && let Some(oldest) = self.lists.front(ACTIVE)
        {
            for slot in self.ahead.folio(oldest) {
                self.lists.remove(slot);
                self.lists.push_back(INACTIVE, slot);
                left = left.saturating_sub(1);
            }
        }
    }
}

impl Policy for Linux {
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.pass();
        let arrival = self.ahead.insert(slot, access);
        let own = self.shadows.take(access.block);
        let left = arrival.remembered(access.block, own, |block| self.shadows.get(block));
        let distance = left.map(|left| self.age - left);
        let active = u64::from(self.statistics().active);
        let mut list = match distance.is_some_and(|it| it <= active) {
            true => ACTIVE,
            false => INACTIVE,
        };
        let mut is_referenced = !self.ahead.reads(access);
        if let Arrival::Joins(mate) = arrival {
            list = self.lists.queue_of(mate);
            is_referenced = self.referenced.get(mate);
        }
        if list == ACTIVE {
            self.age += 1;
            self.refaults += 1;
        }
        self.lists.push_back(list, slot);
        self.referenced.set(slot, is_referenced);
        self.names.set(slot, access.block);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.pass();
        if !self.ahead.hit(slot, access) {
            return;
        }
        let is_activated = self.referenced.get(slot) && self.lists.queue_of(slot) == INACTIVE;
        for slot in self.ahead.folio(slot) {
            self.referenced.set(slot, !is_activated);
            if is_activated {
                self.lists.remove(slot);
                self.lists.push_back(ACTIVE, slot);
                self.age += 1;
            }
        }
    }

    #[inline]
    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        if self.round == 0 || self.lists.is_empty(INACTIVE) {
            self.round = 0;
            self.begin_round();
        }
        if self.lists.is_empty(INACTIVE) {
            self.deactivate(1);
        }
        self.lists.front(INACTIVE)
    }

    #[inline]
    fn remove(&mut self, slot: Slot, why: Departure) {
        if why == Departure::Evicted {
            self.shadows.push(self.names.get(slot), self.age);
            self.age += 1;
            self.round = self.round.saturating_sub(1);
        }
        self.lists.remove(slot);
        self.ahead.remove(slot, self.names.get(slot));
    }

    fn note_volumes(&mut self, firsts: &[u64]) {
        self.ahead.note_volumes(firsts);
    }

    #[inline]
    fn review(&mut self) -> Option<BlockId> {
        self.ahead.next_wanted()
    }

    fn resize(&mut self, slots: u32) {
        let gib = (u64::from(slots) * self.block_kib) >> 20;
        self.ratio = match (self.ratio_given, gib) {
            (0, 0) => 1,
            (0, gib) => (10 * gib).isqrt() as u32,
            (given, _) => given,
        };
        // A block that left longer ago has a distance beyond the longest active list.
        self.shadows.set_limit(slots);
    }

    fn order(&self) -> Vec<Slot> {
        order_by_evicting(self)
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.lists.total(), resident);
        for slot in self.lists.iter(INACTIVE).chain(self.lists.iter(ACTIVE)) {
            assert!(
                self.shadows.get(self.names.get(slot)).is_none(),
                "resident and departed"
            );
            let state = |slot| (self.lists.queue_of(slot), self.referenced.get(slot));
            assert!(
                self.ahead
                    .folio(slot)
                    .all(|mate| state(mate) == state(slot)),
                "a folio is in two states"
            );
        }
    }
}

impl SimulatorHints for Linux {
    fn number_blocks(&mut self, first: u64) {
        self.shadows.number_blocks(first);
        self.ahead.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.shadows.glance(block)
    }
}

/// Two lists of (block, referenced), oldest first, and every departure ever.
#[cfg(test)]
mod reference {
    use std::collections::BTreeMap;

    /// Lengths of inactive and active, and refaults.
    type Statistics = (usize, usize, usize);

    #[derive(Default)]
    pub struct Linux {
        pub slots: usize,
        pub late: usize,
        pub inactive: Vec<(u64, bool)>,
        pub active: Vec<(u64, bool)>,
        pub age: usize,
        pub shadows: BTreeMap<u64, usize>,
        pub left_of_round: usize,
        pub refaults: usize,
        pub refaults_seen: usize,
        pub accesses: usize,
        pub known: Statistics,
    }

    impl Linux {
        fn counted(&self) -> Statistics {
            (self.inactive.len(), self.active.len(), self.refaults)
        }

        fn statistics(&self) -> Statistics {
            if self.late == 0 {
                self.counted()
            } else {
                self.known
            }
        }

        fn make_room(&mut self) {
            if self.left_of_round == 0 || self.inactive.is_empty() {
                let mut due = 0;
                let mut divisor = 4096;
                let thrashes = self.statistics().2 > self.refaults_seen;
                while due < 32 && divisor > 0 {
                    due += self.inactive.len() / divisor;
                    if thrashes || self.statistics().0 < self.statistics().1 {
                        let scanned = self.active.len() / divisor;
                        self.inactive.extend(self.active.drain(..scanned));
                    }
                    divisor /= 2;
                }
                self.left_of_round = due.min(self.inactive.len());
                self.refaults_seen = self.statistics().2;
            }
            if self.inactive.is_empty() {
                self.inactive.push(self.active.remove(0));
            }
            let victim = self.inactive.remove(0).0;
            self.left_of_round = self.left_of_round.saturating_sub(1);
            self.shadows.insert(victim, self.age);
            self.age += 1;
        }

        fn use_block(&mut self, block: u64) -> bool {
            if let Some(held) = self.active.iter_mut().find(|held| held.0 == block) {
                held.1 = true;
                return true;
            }
            if let Some(at) = self.inactive.iter().position(|held| held.0 == block) {
                if self.inactive[at].1 {
                    self.inactive.remove(at);
                    self.active.push((block, false));
                    self.age += 1;
                } else {
                    self.inactive[at].1 = true;
                }
                return true;
            }
            let left = self.shadows.remove(&block);
            if left.is_some_and(|left| self.age - left <= self.statistics().1) {
                self.active.push((block, true));
                self.age += 1;
                self.refaults += 1;
            } else {
                self.inactive.push((block, true));
            }
            false
        }
    }

    impl crate::contract::Reference for Linux {
        fn access(&mut self, block: u64) -> bool {
            let is_here = self.resident().contains(&block);
            if !is_here && self.inactive.len() + self.active.len() == self.slots {
                self.make_room();
            }
            self.accesses += 1;
            if self.late > 0 && self.accesses.is_multiple_of(self.late) {
                self.known = self.counted();
            }
            self.use_block(block)
        }

        fn resident(&self) -> Vec<u64> {
            let all = self.active.iter().chain(&self.inactive);
            all.map(|held| held.0).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Linux, reference};
    use crate::contract::{equals_reference, order_after};
    use crate::{Arguments, BlockId, PolicySpec, Shape};

    #[test]
    fn worked_example() {
        // The second use activates 1 and 2; 3 and 4 are inactive.
        assert_eq!(order_after("linux", 4, &[1, 2, 1, 2, 3, 4]), [2, 1, 4, 3]);
        // 5 takes the place of 3. 3 is back after one departure beside its own, and active has
        // two blocks: activated at once, in the place of 4.
        assert_eq!(
            order_after("linux", 4, &[1, 2, 1, 2, 3, 4, 5, 3]),
            [3, 2, 1, 5]
        );
    }

    /// Blocks 0 to 11 are three folios of 4. The second use of one of them is one of its folio, which is activated; the others leave
    /// as they came.
    #[test]
    fn a_folio_is_used_and_leaves_as_one() {
        let mut cache = crate::contract::level_of("linux(readahead=32,folios=large)", 12, 1);
        let mut read = |index: u64| {
            cache.access(&crate::Access::read(BlockId::on_first(index)));
            while let Some(block) = cache.review() {
                cache.access(&crate::Access::of(block, crate::AccessKind::Preload));
            }
            cache
                .order()
                .into_iter()
                .map(BlockId::index)
                .collect::<Vec<_>>()
        };
        assert_eq!(read(0), (0..12).rev().collect::<Vec<_>>());
        // 9 is the first use of its folio, 1 the second of the first one.
        read(9);
        assert_eq!(read(1)[..4], [0, 3, 2, 1]);
        // Four others take the places of 4 to 7.
        for other in [100, 200, 300, 400] {
            read(other);
        }
        assert_eq!(read(100)[..8], [100, 0, 3, 2, 1, 400, 300, 200]);
        assert_eq!(read(500)[8..], [200, 11, 10, 9]);
    }

    #[test]
    fn the_ratio_is_that_of_the_kernel() {
        let ratio = |text: &str, slots: u32| {
            let spec: PolicySpec = text.parse().expect("valid");
            let shape = Shape { slots, seed: 1 };
            let policy: Result<Linux, _> = super::build(&mut Arguments::new(&spec), &shape);
            policy.expect("valid").ratio
        };
        // The table in the kernel's comment: 100 MiB, 1 GiB, 10 GiB, 100 GiB.
        let blocks = [25_600, 262_144, 2_621_440, 26_214_400];
        assert_eq!(blocks.map(|slots| ratio("linux", slots)), [1, 3, 10, 31]);
        assert_eq!(ratio("linux(block_kib=1024)", 10_240), 10);
        assert_eq!(ratio("linux(ratio=2)", 2_621_440), 2);
    }

    #[test]
    fn equals_its_reference_model() {
        for late in [0, 1, 37] {
            equals_reference(&format!("linux(late={late})"), |slots, _| {
                reference::Linux {
                    slots,
                    late,
                    ..Default::default()
                }
            });
        }
    }
}
