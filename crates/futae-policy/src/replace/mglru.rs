//! Multi-generational LRU: the file pages of a kernel that has it enabled.
//!
//! # Source
//! Linux 6.12, `CONFIG_LRU_GEN`: `mm/vmscan.c` (`get_nr_to_scan`, `should_run_aging`, `scan_folios`,
//! `sort_folio`, `get_tier_idx`, `read_ctrl_pos`, `reset_ctrl_pos`), `mm/workingset.c` (`lru_gen_eviction`,
//! `lru_gen_refault`), `include/linux/mm_inline.h` (`lru_gen_add_folio`); read as a description, not
//! copied. `futae-lab kernels` compares it with running kernels (docs/explanation/guest-kernels.md).
//! # Picture
//! new → [ oldest or second oldest generation ] → its tier has enough refaults: next generation
//! | else evicted, with a shadow entry that has its generation and reads;
//! [ up to 4 generations, oldest first ]
//! # Transitions
//! hit: its reads are counted, it does not move | miss: to the recent end of the oldest generation, of the
//! second oldest if there are more than 3; a block that was evicted from the present oldest generation
//! counts as a refault of its tier, and keeps its reads if they were 4 or more | victim: in batches of 64,
//! the first blocks of the oldest generation whose tier has no more refaults in proportion than blocks that
//! were read once; those passed over move to the next generation, and their reads are counted from 0. With
//! 2 generations a new one begins. With 3, a new one begins before the next batch if the youngest has more
//! than a half of the blocks or the oldest less than a quarter. In caches of 256 slots or more, an oldest
//! generation of at most 64 blocks ends where a batch begins, and its remaining blocks are evicted first
//! # Parameters
//! reclaim daemon: `daemon` if the kernel's daemon makes room, for a machine that runs out of memory;
//! `group` if the readers in a memory cgroup at its limit do. Readers begin with 1/4096 of the cache, and
//! at that no generation begins while there are 3; so in a group of 4096 pages or more one begins only if
//! there are 2
//! readahead 0: limit on the blocks that the kernel reads ahead, 32 with its default `read_ahead_kb` of
//! 128; 0 is no readahead. A block read ahead has no reads yet
//! folios single: `large` where the file system has large folios, such as XFS. Then a window of readahead
//! consists of folios of 2, 4 and more blocks, each of which is counted, protected and evicted as one
//! # Deviations
//! the victims of a batch are evicted as their slots are needed, where the kernel frees them at once. All
//! pages are file pages that are read and written by descriptor: there are no page tables and no walks of
//! them, no anonymous memory, no memory cgroup generations and no minimum time to live. Dirty pages are
//! evicted like clean ones. There are at most 4 shadow entries per slot, where the kernel keeps 8 or more.
//! Readahead takes each volume for one file that is open once, and each request for one of a single block.
//! Written data is in single folios
//! # Cost
//! O(1) per access, amortised, and the length of its folio; 18 bytes per slot, 35 with readahead, 44 with
//! large folios; about 40 per shadow entry, at most 4 entries per slot

use crate::policy::order_by_evicting;
use crate::structures::{Arrival, Ghosts, Queues, ReadAhead, Table};
use crate::{
    Access, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot, SpecError,
};

/// The kernel's `MIN_NR_GENS`.
const GENERATIONS_MIN: u64 = 2;
/// The kernel's `MAX_NR_GENS`.
const GENERATIONS_MAX: u64 = 4;
/// The kernel's `MAX_NR_TIERS`.
const TIERS: usize = 4;
/// The largest number of counted reads of a page: `PG_referenced`, `PG_workingset` and two bits.
const USES_MAX: u8 = 5;
/// The kernel's `MIN_LRU_BATCH`: pages evicted at a time. Fewer refaults of a tier are not
/// significant.
const BATCH: u64 = 64;
/// Pages of a group that is scanned at the kernel's `DEF_PRIORITY`, at which no generation begins
/// for balance.
const GROUP_LARGE: u32 = 1 << 12;
const SHADOWS_A_SLOT: u32 = 4;

/// Counts of a tier while a generation is the oldest, and the decayed past.
#[derive(Clone, Copy, Debug, Default)]
struct Tier {
    refaulted: u64,
    evicted: u64,
    protected: u64,
    past_refaulted: u64,
    past_total: u64,
}

impl Tier {
    fn refaults(&self) -> u64 {
        self.past_refaulted + self.refaulted
    }

    fn total(&self) -> u64 {
        self.past_total + self.evicted + self.protected
    }
}

/// The position of a block when it was evicted.
#[derive(Clone, Copy, Debug, Default)]
struct Shadow {
    oldest: u64,
    uses: u8,
}

/// Generations of blocks, and refault statistics of their tiers.
#[derive(Clone, Debug)]
pub struct Mglru {
    /// A queue a generation, by its number modulo the greatest count; the next victim in front.
    generations: Queues,
    oldest: u64,
    youngest: u64,
    /// Reads of the resident blocks since they arrived or were last skipped.
    uses: Table<u8>,
    names: Table<BlockId>,
    tiers: [Tier; TIERS],
    shadows: Ghosts<Shadow>,
    /// Whether readers at the limit of their group trigger reclaim.
    is_group: bool,
    /// Victims that are left of this batch, and the highest tier that it does not protect.
    batch: u64,
    limit: usize,
    ahead: ReadAhead,
}

/// Builds the policy; its parameters are `reclaim`, `readahead` and `folios`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<Mglru, SpecError> {
    let reclaim = arguments.take("reclaim", "daemon or group", |who: &String| {
        ["daemon", "group"].contains(&who.as_str())
    })?;
    let ahead = ReadAhead::take(arguments)?;
    Ok(Mglru {
        is_group: reclaim.as_deref() == Some("group"),
        batch: 0,
        limit: TIERS - 1,
        generations: Queues::new(GENERATIONS_MAX as usize, shape.slots),
        oldest: 0,
        youngest: GENERATIONS_MIN + 1,
        uses: Table::new(shape.slots),
        names: Table::new(shape.slots),
        tiers: [Tier::default(); TIERS],
        shadows: Ghosts::new(shape.slots.saturating_mul(SHADOWS_A_SLOT)),
        ahead,
    })
}

/// Reads beyond the first, at most 4: what the kernel calls `refs`.
fn references(uses: u8) -> u8 {
    uses.saturating_sub(1)
}

fn tier_of(uses: u8) -> usize {
    match references(uses) {
        0 => 0,
        1 => 1,
        2 | 3 => 2,
        _ => 3,
    }
}

fn queue(generation: u64) -> usize {
    (generation % GENERATIONS_MAX) as usize
}

impl Mglru {
    /// Whether a youngest generation must begin so that blocks can be evicted.
    fn is_starved(&self) -> bool {
        self.oldest + GENERATIONS_MIN > self.youngest
    }

    /// Whether a youngest generation is due, so that generations stay roughly equal in size.
    fn is_uneven(&self) -> bool {
        if self.oldest + GENERATIONS_MIN != self.youngest {
            return false;
        }
        let total = u64::from(self.generations.total());
        let young = u64::from(self.generations.len(queue(self.youngest)));
        let old = u64::from(self.generations.len(queue(self.oldest)));
        young * GENERATIONS_MIN > total || old * (GENERATIONS_MIN + 2) < total
    }

    /// Ends the oldest generations that are empty, while enough others remain.
    fn end_empty(&mut self) {
        let first = self.oldest;
        while !self.is_starved() && self.generations.is_empty(queue(self.oldest)) {
            self.oldest += 1;
        }
        if self.oldest > first {
            for tier in &mut self.tiers {
                *tier = Tier {
                    past_refaulted: tier.refaults() / 2,
                    past_total: tier.total() / 2,
                    ..Tier::default()
                };
            }
        }
    }

    /// Ends an oldest generation that has no more than a batch. The kernel takes all of it at once, so what is read next comes behind the
    /// next generation; here the rest goes in front of that one, so that it leaves first, too.
    fn end_short(&mut self) {
        let oldest = queue(self.oldest);
        let is_short = u64::from(self.generations.len(oldest)) <= BATCH;
        // Of a cache of a few batches, a batch would be most.
        let is_small = u64::from(self.generations.total()) < 4 * BATCH;
        if !is_short || is_small || self.is_starved() {
            return;
        }
        while let Some(slot) = self.generations.back(oldest) {
            self.generations.remove(slot);
            self.generations.push_front(queue(self.oldest + 1), slot);
        }
        self.end_empty();
    }

    /// Ensures that the oldest generation has pages that may be evicted.
    fn begin_batch(&mut self) {
        self.end_empty();
        self.end_short();
        let was_starved = self.is_starved();
        while self.is_starved() {
            self.youngest += 1;
            self.end_empty();
        }
        let is_lazy = self.is_group && self.generations.total() >= GROUP_LARGE;
        if (was_starved || !is_lazy) && self.is_uneven() {
            self.youngest += 1;
        }
        self.limit = self.tier_limit();
        self.batch = BATCH;
    }

    /// The highest tier that is not protected.
    fn tier_limit(&self) -> usize {
        let base = &self.tiers[0];
        // Twice as many refaults as the base are three times too many: the kernel's gains 2 and 3.
        let is_protected = |tier: &Tier| {
            tier.refaults() >= BATCH
                && tier.refaults() * (base.total() + BATCH) * 2
                    > (base.refaults() + 1) * tier.total() * 3
        };
        let first = self.tiers[1..].iter().position(is_protected);
        first.unwrap_or(TIERS - 1)
    }
}

impl Policy for Mglru {
    fn insert(&mut self, slot: Slot, access: &Access) {
        let mut uses = u8::from(!self.ahead.reads(access));
        let arrival = self.ahead.insert(slot, access);
        let own = self.shadows.take(access.block);
        let left = arrival.remembered(access.block, own, |block| self.shadows.get(block));
        if let Some(shadow) = left.filter(|shadow| shadow.oldest == self.oldest) {
            let blocks = match arrival {
                Arrival::Begins(blocks) => blocks,
                _ => 1,
            };
            self.tiers[tier_of(shadow.uses)].refaulted += blocks;
            if references(shadow.uses) >= 3 {
                uses = USES_MAX;
            }
        }
        let is_short = self.oldest + GENERATIONS_MIN >= self.youngest;
        let mut generation = queue(self.oldest + u64::from(!is_short));
        if let Arrival::Joins(mate) = arrival {
            generation = self.generations.queue_of(mate);
            uses = self.uses.get(mate);
        }
        self.generations.push_back(generation, slot);
        self.uses.set(slot, uses);
        self.names.set(slot, access.block);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        if self.ahead.hit(slot, access) {
            let uses = (self.uses.get(slot) + 1).min(USES_MAX);
            for slot in self.ahead.folio(slot) {
                self.uses.set(slot, uses);
            }
        }
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        if self.generations.total() == 0 {
            return None;
        }
        loop {
            if self.batch == 0 || self.generations.is_empty(queue(self.oldest)) {
                self.begin_batch();
            }
            let slot = self.generations.front(queue(self.oldest))?;
            let uses = self.uses.get(slot);
            if tier_of(uses) <= self.limit && uses < USES_MAX {
                return Some(slot);
            }
            self.tiers[tier_of(uses)].protected += 1;
            self.uses.set(slot, 0);
            self.generations.remove(slot);
            self.generations.push_front(queue(self.oldest + 1), slot);
        }
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        self.generations.remove(slot);
        if why == Departure::Evicted {
            self.batch = self.batch.saturating_sub(1);
            let (oldest, uses) = (self.oldest, self.uses.get(slot));
            self.tiers[tier_of(uses)].evicted += 1;
            self.shadows
                .push(self.names.get(slot), Shadow { oldest, uses });
        }
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
        self.shadows.set_limit(slots.saturating_mul(SHADOWS_A_SLOT));
    }

    fn order(&self) -> Vec<Slot> {
        order_by_evicting(self)
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.generations.total(), resident);
        assert!(self.oldest < self.youngest && self.youngest < self.oldest + GENERATIONS_MAX);
        for generation in self.oldest..=self.youngest {
            for slot in self.generations.iter(queue(generation)) {
                let is_departed = self.shadows.get(self.names.get(slot)).is_some();
                assert!(!is_departed, "resident and departed");
            }
        }
    }
}

impl SimulatorHints for Mglru {
    fn number_blocks(&mut self, first: u64) {
        self.shadows.number_blocks(first);
        self.ahead.number_blocks(first);
    }

    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.shadows.glance(block)
    }
}

/// A list a generation, of (block, reads), the next victim first, and shadows oldest first.
#[cfg(test)]
mod reference {
    #[derive(Default)]
    pub struct Mglru {
        pub slots: usize,
        /// Oldest first; at the beginning four empty ones.
        pub generations: Vec<Vec<(u64, usize)>>,
        pub ended: usize,
        /// Of each tier: refaulted, past refaulted, evicted and protected, their past.
        pub tiers: [[u64; 4]; 4],
        /// Block, generations ended when it left, reads.
        pub shadows: Vec<(u64, usize, usize)>,
        /// The remainder of the batch, and the highest tier that it evicts.
        pub batch: (usize, usize),
    }

    const TIER: [usize; 6] = [0, 0, 1, 2, 2, 3];

    impl Mglru {
        /// Ends empty generations down to two. Returns whether blocks may be evicted.
        fn sweep(&mut self) -> bool {
            let before = self.ended;
            while self.generations.len() > 2 && self.generations[0].is_empty() {
                self.generations.remove(0);
                self.ended += 1;
            }
            if self.ended > before {
                for tier in &mut self.tiers {
                    *tier = [0, (tier[0] + tier[1]) / 2, 0, (tier[2] + tier[3]) / 2];
                }
            }
            self.generations.len() > 2
        }

        fn begin_batch(&mut self) {
            while !self.sweep() {
                self.generations.push(Vec::new());
            }
            let total: usize = self.generations.iter().map(Vec::len).sum();
            let count = self.generations.len();
            let is_uneven = self.generations[count - 1].len() * 2 > total
                || self.generations[0].len() * 4 < total;
            if count == 3 && is_uneven {
                self.generations.push(Vec::new());
            }
            let sums = self
                .tiers
                .map(|tier| (tier[0] + tier[1], tier[2] + tier[3]));
            let (least, base) = sums[0];
            let mut limit = 0;
            while limit < 3 {
                let (refaults, total) = sums[limit + 1];
                if refaults >= 64 && refaults * (base + 64) * 2 > (least + 1) * total * 3 {
                    break;
                }
                limit += 1;
            }
            self.batch = (64, limit);
        }

        fn make_room(&mut self) {
            loop {
                if self.batch.0 == 0 || self.generations[0].is_empty() {
                    self.begin_batch();
                }
                let (block, uses) = self.generations[0].remove(0);
                self.tiers[TIER[uses]][2] += 1;
                if TIER[uses] > self.batch.1 || uses == 5 {
                    self.generations[1].insert(0, (block, 0));
                    continue;
                }
                self.batch.0 -= 1;
                self.shadows.push((block, self.ended, uses));
                if self.shadows.len() > 4 * self.slots {
                    self.shadows.remove(0);
                }
                return;
            }
        }
    }

    impl crate::contract::Reference for Mglru {
        fn access(&mut self, block: u64) -> bool {
            let mut all = self.generations.iter_mut().flatten();
            if let Some(held) = all.find(|held| held.0 == block) {
                held.1 = (held.1 + 1).min(5);
                return true;
            }
            if self.resident().len() == self.slots {
                self.make_room();
            }
            let mut uses = 1;
            if let Some(at) = self.shadows.iter().position(|left| left.0 == block) {
                let (_, ended, reads) = self.shadows.remove(at);
                if ended == self.ended {
                    self.tiers[TIER[reads]][0] += 1;
                    if reads >= 4 {
                        uses = 5;
                    }
                }
            }
            let at = usize::from(self.generations.len() > 3);
            self.generations[at].push((block, uses));
            false
        }

        fn resident(&self) -> Vec<u64> {
            let all = self.generations.iter().flatten();
            all.map(|held| held.0).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, level_of, order_after};
    use crate::prng::Prng;
    use crate::{Access, AccessKind, BlockId, Outcome};

    #[test]
    fn worked_example() {
        // All came to the oldest generation; reads do not move them.
        assert_eq!(order_after("mglru", 3, &[1, 2, 3, 1]), [3, 2, 1]);
        // Five reads protect 1, which goes to the next generation; 2 is the victim.
        assert_eq!(
            order_after("mglru", 3, &[1, 2, 3, 1, 1, 1, 1, 4]),
            [1, 4, 3]
        );
    }

    /// A scan whose folios are used more than once, since other reads come in between, fills the second oldest generation, and the oldest
    /// has next to nothing. What is read ahead comes there, and must not be the next victim.
    #[test]
    fn what_is_read_ahead_stays_until_it_is_read() {
        const SLOTS: u32 = 6000;
        let text = "mglru(reclaim=group,readahead=32,folios=large)";
        let mut cache = level_of(text, SLOTS, 1);
        let mut random = Prng::new(1);
        let (mut scanned, mut reads, mut from_store) = (0, 0, 0);
        while reads < 60_000 {
            let index = if random.below(10) < 6 {
                // The half of all is for a fifth.
                let hot = random.below(2) == 0;
                random.below(if hot { 1200 } else { 6000 })
            } else {
                scanned = (scanned + 1) % 18_000;
                6000 + scanned
            };
            let read = cache.access(&Access::read(BlockId::on_first(index)));
            reads += 1;
            from_store += u64::from(!matches!(read, Outcome::Hit(_)));
            while let Some(block) = cache.review() {
                cache.access(&Access::of(block, AccessKind::Preload));
                from_store += 1;
            }
        }
        // Else each block of the scan would come more than once.
        assert!(from_store < reads, "{from_store} of {reads}");
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("mglru", |slots, _| reference::Mglru {
            slots,
            generations: vec![Vec::new(); 4],
            ..Default::default()
        });
    }
}
