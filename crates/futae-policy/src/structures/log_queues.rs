//! Several queues over one space of slots, kept as logs.

use super::prefetch;
use crate::Slot;
use log::{Log, Sweep, WORD};
use std::hint::black_box;

mod log;

const NIL: u32 = u32::MAX;
/// While gaps are being closed, the number of appends per step.
const PACE: u32 = 8;

/// As [`Queues`](super::Queues), but at most 16, and slots enter at the back only. 14 bytes per
/// slot with one queue.
///
/// Each queue is a log of slots; a slot that leaves or moves leaves a gap. The next slot in the
/// queue is thus the next in memory, unlike in a linked list: an append writes one place beside the
/// log, where a list would read and write the links of three slots. Bits mark the gaps; a few cache
/// lines of them cover the whole log. Gaps at the front are skipped at once. Others are closed
/// gradually, a few cells with each append, so that no single operation takes long.
#[derive(Clone, Debug)]
pub struct LogQueues<const QUEUES: usize = 1> {
    logs: [Log; QUEUES],
    /// For each slot its cell, and in the bits above that its queue; `NIL` if it is in none.
    places: Vec<u32>,
    /// The number of slots for which the queues were made.
    slots: u32,
    /// The longest log: as many cells as a place can name.
    cells_max: usize,
}

impl<const QUEUES: usize> LogQueues<QUEUES> {
    /// Bits of a place that name the cell.
    const CELL_BITS: u32 = u32::BITS - QUEUES.next_power_of_two().ilog2();

    /// The cell in a place.
    const CELLS: u32 = u32::MAX >> (u32::BITS - Self::CELL_BITS);

    /// The most slots that there can be. A log that holds all of them has a cell left for a slot that moves.
    pub const SLOTS_MAX: u32 = Self::CELLS - 1;

    /// Empty queues, with room for `slots` slots together; more are added as they come.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        const { assert!(QUEUES >= 1 && QUEUES <= 16, "between 1 and 16 queues") };
        Self {
            logs: std::array::from_fn(|_| Log::default()),
            places: Vec::with_capacity(slots as usize),
            slots,
            // The last place is `NIL`.
            cells_max: Self::CELLS as usize,
        }
    }

    #[inline]
    fn place(q: usize, cell: u32) -> u32 {
        // With one queue there are no bits to shift.
        if QUEUES == 1 {
            cell
        } else {
            (q as u32) << Self::CELL_BITS | cell
        }
    }

    /// Slots in queue `q`.
    #[inline]
    #[must_use]
    pub fn len(&self, q: usize) -> u32 {
        self.logs[q].length
    }

    /// Whether queue `q` is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self, q: usize) -> bool {
        self.logs[q].length == 0
    }

    /// Slots in all queues together.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.logs.iter().map(|log| log.length).sum()
    }

    /// The first slot of queue `q`.
    #[inline]
    #[must_use]
    pub fn front(&self, q: usize) -> Option<Slot> {
        let log = &self.logs[q];
        (log.length > 0).then(|| Slot(log.cells[log.head as usize]))
    }

    /// Roughly the slot `ahead` places behind the first of queue `q`: gaps count as places, and a
    /// gap yields any slot. For look-ahead; this reads what passing over the slot will need.
    #[inline]
    #[must_use]
    pub fn about(&self, q: usize, ahead: u32) -> Option<Slot> {
        let log = &self.logs[q];
        if ahead >= log.used {
            return None;
        }
        let slot = log.cells[log.after(log.head, ahead) as usize];
        black_box(self.places[slot as usize]);
        Some(Slot(slot))
    }

    /// Stores the first slots of queue `q` in `slots`, in order, and returns their number. For look-ahead: their places are
    /// prefetched.
    #[inline]
    pub fn first(&self, q: usize, slots: &mut [Slot]) -> usize {
        let log = &self.logs[q];
        let wanted = slots.len().min(log.length as usize);
        let mut at = (log.head / WORD) as usize;
        let mut left = !0 << (log.head % WORD);
        let mut found = 0;
        while found < wanted {
            let mut bits = log.held[at] & left;
            while bits != 0 && found < wanted {
                let cell = at * WORD as usize + bits.trailing_zeros() as usize;
                let slot = log.cells[cell];
                prefetch(&self.places, slot as usize);
                slots[found] = Slot(slot);
                found += 1;
                bits &= bits - 1;
            }
            at = if at + 1 == log.held.len() { 0 } else { at + 1 };
            left = !0;
        }
        found
    }

    /// Prefetches the place of `slot`, which may be any number.
    #[inline]
    pub fn approach(&self, slot: Slot) {
        prefetch(&self.places, slot.i());
    }

    /// The last slot of queue `q`.
    #[must_use]
    pub fn back(&self, q: usize) -> Option<Slot> {
        self.iter_back(q).next()
    }

    /// As [`about`](Self::about), from `slot` on, which must be in a queue.
    #[inline]
    #[must_use]
    pub fn about_after(&self, slot: Slot, ahead: u32) -> Option<Slot> {
        let q = self.queue_of(slot);
        let ahead = self.logs[q]
            .distance(self.cell_of(slot))
            .saturating_add(ahead);
        self.about(q, ahead)
    }

    #[inline]
    fn cell_of(&self, slot: Slot) -> u32 {
        self.places[slot.i()] & Self::CELLS
    }

    /// The slot after `slot` in its queue. Constant time except for the gaps between.
    #[inline]
    #[must_use]
    pub fn after(&self, slot: Slot) -> Option<Slot> {
        let log = &self.logs[self.queue_of(slot)];
        let cell = self.cell_of(slot);
        let next = log.next_held(cell);
        // The cells wrap around from the last to the first.
        (log.distance(next) > log.distance(cell)).then(|| Slot(log.cells[next as usize]))
    }

    /// The queue that `slot`, which must be in one, is in.
    #[inline]
    #[must_use]
    pub fn queue_of(&self, slot: Slot) -> usize {
        debug_assert_ne!(self.places[slot.i()], NIL, "slot is in no queue");
        if QUEUES == 1 {
            0
        } else {
            (self.places[slot.i()] >> Self::CELL_BITS) as usize
        }
    }

    /// Appends `slot`, which must be in no queue, to queue `q`.
    #[inline]
    pub fn push_back(&mut self, q: usize, slot: Slot) {
        if self.places.len() <= slot.i() {
            self.places.resize(slot.i() + 1, NIL);
        }
        debug_assert_eq!(self.places[slot.i()], NIL, "slot is in a queue");
        self.make_room(q);
        self.append(q, slot);
    }

    #[inline]
    fn make_room(&mut self, q: usize) {
        if self.logs[q].used >= self.logs[q].tidy_at {
            self.tidy(q);
        }
    }

    #[inline]
    fn append(&mut self, q: usize, slot: Slot) {
        let log = &mut self.logs[q];
        let cell = log.after(log.head, log.used);
        log.cells[cell as usize] = slot.0;
        log.hold(cell);
        log.used += 1;
        log.length += 1;
        self.places[slot.i()] = Self::place(q, cell);
    }

    /// Removes `slot`, which must be in a queue.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        let q = self.queue_of(slot);
        let cell = self.cell_of(slot);
        self.places[slot.i()] = NIL;
        self.logs[q].leave(cell);
    }

    /// Moves `slot` from its queue to the back of queue `q`.
    #[inline]
    pub fn move_back(&mut self, q: usize, slot: Slot) {
        // First, since it may move the slot.
        self.make_room(q);
        let (from, cell) = (self.queue_of(slot), self.cell_of(slot));
        self.append(q, slot);
        self.logs[from].leave(cell);
    }

    /// Closes some gaps, or makes room. A sweep can end without closing a gap if the head has
    /// passed those that it began with; a full log then has gaps elsewhere.
    #[cold]
    #[inline(never)]
    fn tidy(&mut self, q: usize) {
        self.tidy_once(q);
        while self.logs[q].used as usize == self.logs[q].cells.len() {
            self.tidy_once(q);
        }
    }

    fn tidy_once(&mut self, q: usize) {
        let roomy = self.roomy();
        let log = &mut self.logs[q];
        if log.sweep.is_none() {
            let (length, cells) = (log.length as usize, log.cells.len());
            let is_tight = length * 4 > cells * 3 || (length * 2 > cells && cells < roomy);
            if cells == 0 || is_tight && cells < self.cells_max {
                self.grow(q);
                return;
            }
            assert!(length < cells, "more slots than can be queued");
            log.sweep = Some(Sweep {
                left: log.used,
                to: log.after(log.head, log.used - 1),
            });
        }
        let full = log.used as usize == log.cells.len();
        log.tidy_at = log.used.saturating_add(PACE).min(log.cells.len() as u32);
        while self.sweep_word(q) && full {}
    }

    /// Examines the cells of one word. Returns whether more cells are left.
    fn sweep_word(&mut self, q: usize) -> bool {
        let log = &mut self.logs[q];
        let Some(Sweep { left, mut to }) = log.sweep else {
            return false;
        };
        let last = log.after(log.head, left - 1);
        let cells = left.min(last % WORD + 1);
        let word = &mut log.held[(last / WORD) as usize];
        // These cells' bits, the last one's as the highest.
        let mut bits = *word << (WORD - 1 - last % WORD) >> (WORD - cells) << (WORD - cells);
        *word ^= bits >> (WORD - 1 - last % WORD);
        while bits != 0 {
            let behind = bits.leading_zeros();
            bits ^= 1 << (WORD - 1 - behind);
            let slot = log.cells[(last - behind) as usize];
            log.cells[to as usize] = slot;
            log.hold(to);
            self.places[slot as usize] = Self::place(q, to);
            to = log.before(to);
        }
        let left = left - cells;
        log.sweep = Some(Sweep { left, to });
        if left == 0 {
            // All slots are now behind `to`, with no gaps except new ones.
            let head = log.after(to, 1);
            log.used -= log.distance(head);
            log.head = head;
            log.end_sweep();
        }
        left > 0
    }

    /// The number of cells with which gaps need closing less than once per as many appends as there
    /// are slots.
    fn roomy(&self) -> usize {
        (self.slots as usize * 5 / 2).min(self.cells_max)
    }

    /// The number of cells that queue `q` gets next.
    fn larger(&self, q: usize) -> usize {
        let wanted = match self.logs[q].cells.len() {
            0 if QUEUES == 1 => self.roomy(),
            cells if cells < self.roomy() => (cells * 2).min(self.roomy()),
            cells => cells * 2,
        };
        wanted.max(64).min(self.cells_max)
    }

    /// Enlarges queue `q`.
    fn grow(&mut self, q: usize) {
        let wanted = self.larger(q);
        let held: Vec<Slot> = self.iter(q).collect();
        let log = &mut self.logs[q];
        log.cells = vec![0; wanted];
        log.held = vec![0; wanted.div_ceil(WORD as usize)];
        log.head = 0;
        log.used = held.len() as u32;
        log.end_sweep();
        for (cell, slot) in held.into_iter().enumerate() {
            self.logs[q].cells[cell] = slot.0;
            self.logs[q].hold(cell as u32);
            self.places[slot.i()] = Self::place(q, cell as u32);
        }
    }

    /// The slots of queue `q`, front to back.
    pub fn iter(&self, q: usize) -> impl Iterator<Item = Slot> + '_ {
        self.cells(q, 0..self.logs[q].used)
    }

    /// The slots of queue `q`, back to front.
    pub fn iter_back(&self, q: usize) -> impl Iterator<Item = Slot> + '_ {
        self.cells(q, (0..self.logs[q].used).rev())
    }

    fn cells(&self, q: usize, steps: impl Iterator<Item = u32>) -> impl Iterator<Item = Slot> {
        let log = &self.logs[q];
        steps
            .map(move |ahead| log.after(log.head, ahead))
            .filter(move |&cell| log.holds(cell))
            .map(move |cell| Slot(log.cells[cell as usize]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// Equal to plain deques under these operations; all is compared after every `every`th.
    fn equals_plain<const QUEUES: usize>(slots: u32, steps: &[(u8, usize, u32)], every: usize) {
        equals(LogQueues::<QUEUES>::new(slots), steps, every);
    }

    fn equals<const QUEUES: usize>(
        mut lines: LogQueues<QUEUES>,
        steps: &[(u8, usize, u32)],
        every: usize,
    ) {
        let mut model: Vec<VecDeque<u32>> = vec![VecDeque::new(); QUEUES];
        for (at, &(what, q, s)) in steps.iter().enumerate() {
            let q = q % QUEUES;
            let home = (0..QUEUES).find(|&q| model[q].contains(&s));
            match (what, home) {
                (0, None) | (1, None) => {
                    lines.push_back(q, Slot(s));
                    model[q].push_back(s);
                }
                (0, Some(at)) => {
                    lines.remove(Slot(s));
                    model[at].retain(|&x| x != s);
                }
                (1..=5, Some(at)) => {
                    assert_eq!(lines.queue_of(Slot(s)), at);
                    lines.move_back(q, Slot(s));
                    model[at].retain(|&x| x != s);
                    model[q].push_back(s);
                }
                _ => {
                    if let Some(first) = lines.front(q) {
                        lines.remove(first);
                        assert_eq!(model[q].pop_front(), Some(first.0));
                    }
                }
            }
            if at % every != 0 {
                continue;
            }
            for (q, plain) in model.iter().enumerate() {
                let front: Vec<u32> = lines.iter(q).map(|s| s.0).collect();
                let mut back: Vec<u32> = lines.iter_back(q).map(|s| s.0).collect();
                back.reverse();
                assert_eq!(front, Vec::from(plain.clone()));
                assert_eq!(back, front);
                let mut first = [Slot(0); 9];
                let found = lines.first(q, &mut first);
                assert_eq!(found, front.len().min(9));
                assert!(first[..found].iter().zip(&front).all(|(s, &f)| s.0 == f));
                for pair in front.windows(2) {
                    assert_eq!(lines.after(Slot(pair[0])), Some(Slot(pair[1])));
                }
                if let Some(&last) = front.last() {
                    assert_eq!(lines.after(Slot(last)), None);
                }
                assert_eq!(lines.len(q) as usize, plain.len());
                assert_eq!(lines.is_empty(q), plain.is_empty());
                assert_eq!(lines.front(q).map(|s| s.0), plain.front().copied());
                assert_eq!(lines.back(q).map(|s| s.0), plain.back().copied());
            }
            assert_eq!(
                lines.total() as usize,
                model.iter().map(VecDeque::len).sum::<usize>()
            );
        }
    }

    proptest! {
        #[test]
        fn equal_to_plain_deques(
            steps in prop::collection::vec((0u8..8, 0usize..3, 0u32..60), 0..600)
        ) {
            equals_plain::<1>(60, &steps, 1);
            equals_plain::<3>(60, &steps, 1);
        }
    }

    /// Moves of a full house, and few that come and go: the log is swept again and again.
    #[test]
    fn gaps_are_closed_many_times_over() {
        for slots in [20, 500] {
            let mut random = crate::Prng::new(7);
            let mut pick = |below| random.below(below);
            let mut steps: Vec<_> = (0..slots).map(|s| (1, s as usize, s as u32)).collect();
            for step in 0..30_000 {
                let slot = pick(slots) as u32;
                let queue = pick(3) as usize;
                steps.push((1, queue, slot));
                if step % 40 == 0 {
                    // Leaves, and is back at once.
                    steps.extend([(0, queue, slot), (1, queue, slot)]);
                }
            }
            equals_plain::<1>(slots as u32, &steps, 97);
            equals_plain::<3>(slots as u32, &steps, 97);
        }
    }

    /// Gaps at the front are passed while a sweep is under way, so that what it has still to look at
    /// may have none, and the log is full all the same.
    #[test]
    fn a_sweep_that_finds_no_gap_leaves_room() {
        for seed in 0..60 {
            let mut random = crate::Prng::new(seed);
            let mut pick = |below: u32| random.below(below.into()) as u32;
            let slots = [4, 24, 60][seed as usize % 3];
            let mut order: VecDeque<u32> = (0..slots).collect();
            let mut steps: Vec<_> = order.iter().map(|&s| (1, 0, s)).collect();
            for _ in 0..200 {
                // A range of those in the queue, which leave and are back at once, or move.
                let (what, few, at) = (pick(3), 1 + pick(slots), pick(slots));
                for _ in 0..pick(64) {
                    let at = (at + pick(few)) % slots;
                    let at = if what == 0 { 0 } else { at as usize };
                    let slot = order.remove(at).expect("as many as slots");
                    order.push_back(slot);
                    if what < 2 {
                        steps.push((0, 0, slot));
                    }
                    steps.push((1, 0, slot));
                }
            }
            equals_plain::<1>(slots, &steps, 1);
            equals_plain::<3>(slots, &steps, 1);
        }
    }

    /// A log may have one gap only, as that of more than 3 billion slots has hardly more.
    #[test]
    fn a_log_of_the_greatest_length_holds_all_slots_but_one() {
        for slots in [3, 63, 64, 127, 200] {
            let most = |cells_max| slots as usize + cells_max;
            for cells_max in [1, 2, slots as usize / 8 + 1].map(most) {
                let mut random = crate::Prng::new(slots);
                let mut steps: Vec<_> = (0..slots as u32).map(|s| (1, 0, s)).collect();
                for _ in 0..5000 {
                    let what = random.below(2) as u8;
                    let queue = random.below(20) as usize / 19;
                    steps.push((what, queue, random.below(slots) as u32));
                }
                let one = LogQueues::<1>::new(slots as u32);
                equals(LogQueues { cells_max, ..one }, &steps, 7);
                let two = LogQueues::<2>::new(slots as u32);
                equals(LogQueues { cells_max, ..two }, &steps, 7);
            }
        }
    }

    /// Without the memory for so many.
    #[test]
    fn no_log_has_more_cells_than_a_place_can_name() {
        fn largest<const QUEUES: usize>() -> u64 {
            let slots = LogQueues::<QUEUES>::SLOTS_MAX;
            let queues = LogQueues::<QUEUES> {
                slots,
                ..LogQueues::new(0)
            };
            let cells = queues.roomy() as u64;
            assert!(cells > u64::from(slots), "room for a slot that moves");
            assert!(queues.larger(0) as u64 <= cells);
            cells
        }
        assert_eq!(largest::<1>(), u64::from(u32::MAX));
        assert_eq!(largest::<2>(), (1 << 31) - 1);
        assert_eq!(largest::<3>(), (1 << 30) - 1);
        assert_eq!(largest::<4>(), (1 << 30) - 1);
        // 9 TiB in blocks of 4 KiB.
        let queues = LogQueues::<1> {
            slots: 9 << 28,
            ..LogQueues::new(0)
        };
        assert_eq!(queues.larger(0) as u64, u64::from(u32::MAX));
    }

    #[test]
    fn the_log_stays_short() {
        let mut lines = LogQueues::<1>::new(1000);
        (0..1000).for_each(|s| lines.push_back(0, Slot(s)));
        let mut random = crate::Prng::new(1);
        for _ in 0..100_000 {
            lines.move_back(0, Slot(random.below(999) as u32));
        }
        assert_eq!(lines.logs[0].cells.len(), 2500);
    }

    /// The head passes the gaps for which a sweep began, and the log fills up: the sweep ends without having closed any.
    #[test]
    fn a_sweep_that_closes_no_gap_leaves_room_all_the_same() {
        let mut lines: LogQueues = LogQueues::new(24);
        let mut next = 0;
        let mut push = |lines: &mut LogQueues| {
            lines.push_back(0, Slot(next));
            next += 1;
        };
        // The head goes to the middle, so that a sweep takes two words.
        push(&mut lines);
        for slot in 0..39 {
            push(&mut lines);
            lines.remove(Slot(slot));
        }
        for _ in 0..55 {
            push(&mut lines);
        }
        for slot in 40..48 {
            lines.remove(Slot(slot));
        }
        push(&mut lines);
        lines.remove(Slot(39));
        for _ in 0..40 {
            push(&mut lines);
            let expected: Vec<Slot> = (48..next_of(&lines)).map(Slot).collect();
            let found: Vec<Slot> = lines.iter(0).collect();
            assert_eq!(found, expected);
        }
    }

    fn next_of(lines: &LogQueues) -> u32 {
        lines.places.len() as u32
    }
}
