//! One queue's log: slots in a circular array of cells, and bits that mark its gaps.

/// The number of cells examined per step of closing gaps: those whose bits are in one word.
pub(super) const WORD: u32 = u64::BITS;

/// Slots in a circular array of cells.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub cells: Vec<u32>,
    /// One bit per cell: whether its slot is valid. Otherwise the cell is a gap.
    pub held: Vec<u64>,
    /// The first slot's cell, if there is one.
    pub head: u32,
    /// The number of cells from the head on, including gaps.
    pub used: u32,
    /// Slots in the queue.
    pub length: u32,
    /// The number of used cells at which a sweep for gaps begins.
    pub tidy_at: u32,
    pub sweep: Option<Sweep>,
}

/// A sweep under way: from the back to the front, slots move up to close gaps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    /// The number of cells from the head on that are still to be examined.
    pub left: u32,
    /// The highest cell to which a slot can move.
    pub to: u32,
}

impl Log {
    /// The cell `ahead` cells after `cell`.
    #[inline]
    pub fn after(&self, cell: u32, ahead: u32) -> u32 {
        let at = u64::from(cell) + u64::from(ahead);
        let cells = self.cells.len() as u64;
        (if at >= cells { at - cells } else { at }) as u32
    }

    /// How far behind the head `cell` is.
    #[inline]
    pub fn distance(&self, cell: u32) -> u32 {
        if cell >= self.head {
            cell - self.head
        } else {
            cell + (self.cells.len() as u32 - self.head)
        }
    }

    #[inline]
    pub fn hold(&mut self, cell: u32) {
        self.held[(cell / WORD) as usize] |= 1 << (cell % WORD);
    }

    /// Turns a slot's cell into a gap.
    #[inline]
    pub fn leave(&mut self, cell: u32) {
        self.held[(cell / WORD) as usize] &= !(1 << (cell % WORD));
        self.length -= 1;
        if cell == self.head {
            self.pass_gaps();
        }
    }

    #[inline]
    pub fn holds(&self, cell: u32) -> bool {
        self.held[(cell / WORD) as usize] >> (cell % WORD) & 1 == 1
    }

    /// The first cell after `cell`, wrapping around, that is not a gap; one must exist.
    #[inline]
    pub fn next_held(&self, cell: u32) -> u32 {
        let mut at = (cell / WORD) as usize;
        let mut word = self.held[at] & (!1 << (cell % WORD));
        while word == 0 {
            at = if at + 1 == self.held.len() { 0 } else { at + 1 };
            word = self.held[at];
        }
        at as u32 * WORD + word.trailing_zeros()
    }

    /// The cell before `cell`.
    #[inline]
    pub fn before(&self, cell: u32) -> u32 {
        (if cell == 0 {
            self.cells.len() as u32
        } else {
            cell
        }) - 1
    }

    /// Moves the head, whose cell has become a gap, to the next slot.
    #[inline]
    fn pass_gaps(&mut self) {
        if self.length == 0 {
            self.used = 0;
            self.end_sweep();
            return;
        }
        let next = self.next_held(self.head);
        let passed = self.distance(next);
        self.head = next;
        self.used -= passed;
        if let Some(sweep) = &mut self.sweep {
            sweep.left = sweep.left.saturating_sub(passed);
            if sweep.left == 0 {
                self.end_sweep();
            }
        }
    }

    pub fn end_sweep(&mut self) {
        self.sweep = None;
        self.tidy_at = (self.cells.len() as u64 * 7 / 8) as u32;
    }
}
