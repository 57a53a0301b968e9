//! Vectors that one thread fills and another one takes.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// Vectors that wait to be taken, at most.
const WAITING: usize = 8;

/// The end that fills.
pub(crate) struct Filling<T> {
    full: SyncSender<Vec<T>>,
    emptied: Receiver<Vec<T>>,
}

/// The end that takes.
pub(crate) struct Taking<T> {
    full: Receiver<Vec<T>>,
    emptied: Sender<Vec<T>>,
}

/// Both ends.
pub(crate) fn conveyor<T>() -> (Filling<T>, Taking<T>) {
    let (to_taker, from_filler) = sync_channel(WAITING);
    let (to_filler, from_taker) = channel();
    let filling = Filling {
        full: to_taker,
        emptied: from_taker,
    };
    let taking = Taking {
        full: from_filler,
        emptied: to_filler,
    };
    (filling, taking)
}

impl<T> Filling<T> {
    /// Hands over what is in `part`, and leaves an empty vector there. Returns false if nobody
    /// takes any more.
    pub(crate) fn send(&self, part: &mut Vec<T>) -> bool {
        let empty = self.emptied.try_recv().unwrap_or_default();
        self.full.send(std::mem::replace(part, empty)).is_ok()
    }
}

impl<T> Taking<T> {
    /// Passes what was handed over, in order, until the end or until `take` returns false.
    pub(crate) fn each(self, mut take: impl FnMut(&[T]) -> bool) {
        for mut part in self.full {
            if !take(&part) {
                return;
            }
            part.clear();
            // At the end nobody needs it.
            let _ = self.emptied.send(part);
        }
    }
}
