//! The state of each slot's frame, and the last use of its block.

use futae_policy::Slot;

/// Whether a frame holds its block's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// It does.
    Ready,
    /// It will when this flight arrives.
    Awaits(u32),
    /// It will when the write that placed the block has ended.
    AwaitsWrite,
    /// It will when the block has been loaded in the background.
    Loading,
    /// It did before this process started; the content has not been verified since.
    Kept,
}

impl Frame {
    /// The state of a frame that flight `key` fills.
    pub fn awaits(key: usize) -> Self {
        Self::Awaits(key as u32)
    }

    /// The flight that fills the frame, if any.
    pub fn flight(self) -> Option<usize> {
        match self {
            Self::Awaits(key) => Some(key as usize),
            Self::Ready | Self::AwaitsWrite | Self::Loading | Self::Kept => None,
        }
    }
}

/// The top bit of [`Entry::used`]: the upper level got the block and has not reported its eviction.
const HELD_ABOVE: u64 = 1 << 63;

/// Both fields of a slot are adjacent in memory, since a hit needs both.
#[derive(Clone, Copy, Debug)]
struct Entry {
    frame: Frame,
    used: u64,
}

/// The frames of all slots.
#[derive(Debug, Default)]
pub struct Frames {
    entries: Vec<Entry>,
    /// Number of uses so far.
    uses: u64,
    /// Number of frames that are [`Frame::Loading`].
    loading: u64,
    /// Number of frames that are [`Frame::Kept`].
    kept: u64,
}

impl Frames {
    /// The state of a slot's frame.
    #[inline]
    pub fn get(&self, slot: Slot) -> Frame {
        self.entries[slot.i()].frame
    }

    /// Sets the state of a slot's frame; returns the previous state.
    #[inline]
    pub fn set(&mut self, slot: Slot, frame: Frame) -> Frame {
        let before = std::mem::replace(&mut self.entries[slot.i()].frame, frame);
        self.loading += u64::from(frame == Frame::Loading);
        self.loading -= u64::from(before == Frame::Loading);
        self.kept += u64::from(frame == Frame::Kept);
        self.kept -= u64::from(before == Frame::Kept);
        before
    }

    /// A block got this slot. The state of the frame does not change yet.
    pub fn place(&mut self, slot: Slot) {
        if self.entries.len() <= slot.i() {
            let unused = Entry {
                frame: Frame::Ready,
                used: 0,
            };
            self.entries.resize(slot.i() + 1, unused);
        }
        self.entries[slot.i()].used = 0;
        self.touch(slot);
    }

    /// The block in this slot is used.
    #[inline]
    pub fn touch(&mut self, slot: Slot) {
        self.uses += 1;
        let used = &mut self.entries[slot.i()].used;
        *used = self.uses | (*used & HELD_ABOVE);
    }

    /// Whether the upper level also holds the block in this slot.
    pub fn is_held_above(&self, slot: Slot) -> bool {
        self.entries[slot.i()].used & HELD_ABOVE != 0
    }

    /// Records whether the upper level also holds the block in this slot; returns the previous
    /// value.
    #[inline]
    pub fn set_held_above(&mut self, slot: Slot, is_held: bool) -> bool {
        let used = &mut self.entries[slot.i()].used;
        let before = *used & HELD_ABOVE != 0;
        *used = (*used & !HELD_ABOVE) | if is_held { HELD_ABOVE } else { 0 };
        before
    }

    /// The last use of the block in this slot: higher is later.
    pub fn last_use(&self, slot: Slot) -> u64 {
        self.entries[slot.i()].used & !HELD_ABOVE
    }

    /// Number of frames that are [`Frame::Kept`].
    #[inline]
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Number of frames that are [`Frame::Loading`].
    pub fn loading(&self) -> u64 {
        self.loading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_ordered_and_loading_frames_counted() {
        let mut frames = Frames::default();
        frames.place(Slot(2));
        frames.place(Slot(0));
        frames.touch(Slot(2));
        assert!(frames.last_use(Slot(2)) > frames.last_use(Slot(0)));
        assert_eq!(frames.set(Slot(0), Frame::Loading), Frame::Ready);
        assert_eq!(frames.set(Slot(0), Frame::Loading), Frame::Loading);
        assert_eq!(frames.loading(), 1);
        assert_eq!(frames.set(Slot(0), Frame::awaits(7)), Frame::Loading);
        assert_eq!(
            (frames.loading(), frames.get(Slot(0)).flight()),
            (0, Some(7))
        );
        assert_eq!(frames.get(Slot(2)).flight(), None);
        assert!(!frames.set_held_above(Slot(2), true));
        frames.touch(Slot(2));
        assert!(frames.last_use(Slot(2)) < 10, "no part of the time");
        assert!(frames.set_held_above(Slot(2), true));
        frames.place(Slot(2));
        assert!(!frames.set_held_above(Slot(2), false), "another block");
    }

    #[test]
    fn an_entry_takes_sixteen_bytes() {
        assert_eq!(size_of::<Entry>(), 16);
    }
}
