//! Combines the results of the commands into which one operation was split.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use futae_engine::{IoBuf, IoError, StoreDone, StoreResult};

use super::order::{Body, Finish, Order};
use futae_nbd::request::Command;

/// The results of an operation's parts.
pub(super) struct Gather(Mutex<Gathered>);

struct Gathered {
    left: usize,
    whole: IoBuf,
    failed: Option<IoError>,
    done: Option<StoreDone>,
}

impl Gather {
    pub(super) fn new(left: usize, whole: IoBuf, done: StoreDone) -> Arc<Self> {
        let gathered = Gathered {
            left,
            whole,
            failed: None,
            done: Some(done),
        };
        Arc::new(Self(Mutex::new(gathered)))
    }

    /// A part has ended. The last part reports the result of the whole, or the first error.
    pub(super) fn part(&self, result: StoreResult, place: impl FnOnce(&mut IoBuf, &IoBuf)) {
        let mut gathered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(part) => place(&mut gathered.whole, &part),
            Err(error) => drop(gathered.failed.get_or_insert(error)),
        }
        gathered.left -= 1;
        if gathered.left > 0 {
            return;
        }
        let whole = std::mem::replace(&mut gathered.whole, IoBuf::new(0));
        let (failed, done) = (gathered.failed.take(), gathered.done.take());
        drop(gathered);
        if let Some(done) = done {
            done(failed.map_or(Ok(whole), Err));
        }
    }

    /// A completion for a part whose buffer is not needed.
    pub(super) fn done(self: &Arc<Self>) -> StoreDone {
        let gather = Arc::clone(self);
        Box::new(move |result| gather.part(result, |_, _| {}))
    }

    /// A part's command.
    pub(super) fn order(
        self: &Arc<Self>,
        command: Command,
        piece: Range<u64>,
        body: Body,
    ) -> Order {
        let length = (piece.end - piece.start) as u32;
        Order::new(
            command,
            piece.start,
            length,
            body,
            Finish::Part(self.done()),
        )
    }
}
