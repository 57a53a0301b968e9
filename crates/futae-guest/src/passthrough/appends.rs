//! Where the data of appends goes.
//!
//! An append goes to the end of the file as it is, also if another program has changed that end in the lower directory, which the
//! kernel has not learnt yet. But the kernel sends a long write as several requests, and those of direct I/O all at once, so they
//! come in any order. Each has the offset that it has by the end that the kernel knows. One that is beyond the end has come before
//! others of its write: it stays where it is, and so do those that come for what it has left out.

use crate::lock::locked;
use std::ops::Range;
use std::sync::Mutex;

/// The appends to one file.
#[derive(Default)]
pub(crate) struct Appends(Mutex<State>);

#[derive(Default)]
struct State {
    under_way: u32,
    /// The end of the file once those that are under way have ended.
    end: u64,
    /// What those that came before others of their write have left out.
    left_out: Vec<Range<u64>>,
    /// Another program has cut the file, and the kernel may believe in its former end.
    was_cut: bool,
}

impl Appends {
    /// An append begins to the file, which has this size now. Returns where its data goes; `None`: to the end.
    pub(super) fn begin(&self, offset: u64, length: u64, size: u64) -> Option<u64> {
        let mut state = locked(&self.0);
        let size = match state.under_way {
            0 => size,
            _ => size.max(state.end),
        };
        state.under_way += 1;
        let end = offset.saturating_add(length);
        if !state.fills(offset, end) {
            if offset < size || (offset > size && state.was_cut) {
                state.end = size;
                return None;
            }
            state.was_cut = false;
            if offset > size {
                state.left_out.push(size..offset);
            }
        }
        state.end = size.max(end);
        Some(offset)
    }

    /// An append has ended.
    pub(super) fn end(&self) {
        locked(&self.0).under_way -= 1;
    }

    /// The file was changed otherwise than by a write.
    pub(super) fn file_has_changed(&self) {
        locked(&self.0).left_out.clear();
    }

    /// Another program has cut the file.
    pub(super) fn was_cut(&self) {
        locked(&self.0).was_cut = true;
    }
}

impl State {
    /// Whether the range from `offset` to `end` begins where something was left out, which is not left out any more.
    fn fills(&mut self, offset: u64, end: u64) -> bool {
        let Some(at) = self.left_out.iter().position(|it| it.contains(&offset)) else {
            return false;
        };
        let whole = self.left_out.swap_remove(at);
        let rest = [whole.start..offset, end.min(whole.end)..whole.end];
        self.left_out
            .extend(rest.into_iter().filter(|it| !it.is_empty()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Appends;

    const PART: u64 = 1 << 20;

    /// Where the parts of one write go that come in this order, to a file of this size; each ends before the next one comes, or
    /// none of them does.
    fn placed(order: &[u64], size: u64, is_slow: bool) -> Vec<Option<u64>> {
        let appends = Appends::default();
        let mut now = size;
        let place = |&part: &u64| {
            let offset = size + part * PART;
            let to = appends.begin(offset, PART, now);
            if !is_slow {
                now = now.max(to.unwrap_or(now) + PART);
                appends.end();
            }
            to
        };
        order.iter().map(place).collect()
    }

    #[test]
    fn the_parts_of_a_write_stay_in_their_order_in_whatever_order_they_come() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
            for is_slow in [false, true] {
                let expected: Vec<_> = order.iter().map(|at| Some(77 + at * PART)).collect();
                assert_eq!(placed(&order, 77, is_slow), expected, "{order:?}");
            }
        }
    }

    #[test]
    fn what_the_kernel_has_not_learnt_of_the_end_does_not_lead_an_append_elsewhere() {
        let appends = Appends::default();
        // Another program has made the file longer.
        assert_eq!(appends.begin(100, 10, 200), None);
        appends.end();
        // It has cut it.
        appends.was_cut();
        assert_eq!(appends.begin(210, 10, 50), None);
        appends.end();
        // The kernel knows the end again.
        assert_eq!(appends.begin(60, 10, 60), Some(60));
        appends.end();
        assert_eq!(appends.begin(90, 10, 70), Some(90));
        appends.end();
        // What was left out does not come any more.
        appends.file_has_changed();
        assert_eq!(appends.begin(70, 10, 300), None);
    }
}
