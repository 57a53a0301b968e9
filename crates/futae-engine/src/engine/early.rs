//! Store operations that are answered while they are submitted, on the thread that submits them.
//!
//! The answer of one operation can begin the next one, such as a write that waited for its blocks. If every answer were taken
//! where it comes, the calls of a store that answers at once would be nested as deeply as requests wait for each other, and a
//! thread would run out of stack. So the thread that submits collects them, and continues with them one after the other.

use super::ticket::Ticket;
use super::verify::Macs;
use crate::StoreResult;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A store operation that has ended.
pub struct Answered {
    pub ticket: Ticket,
    pub result: StoreResult,
    /// How long it took.
    pub took: Duration,
    /// The hashes of its data.
    pub macs: Macs,
}

/// The number of the next [`Awaiting`].
static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// What this thread submits operations for, by number, and the answers so far. There are several where a store is itself a cache.
    static COLLECTED: RefCell<Vec<(u64, Vec<Answered>)>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, this thread collects the answers to the operations that it submits with this value.
pub struct Awaiting(u64);

impl Awaiting {
    pub fn begin() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        COLLECTED.with_borrow_mut(|all| all.push((number, Vec::new())));
        Self(number)
    }

    /// For [`awaited`].
    pub fn number(&self) -> u64 {
        self.0
    }

    /// The collected answers, in the order in which they came.
    pub fn end(self) -> Vec<Answered> {
        let last = COLLECTED.with_borrow_mut(|all| all.last_mut().map(std::mem::take));
        last.unwrap_or_default().1
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        COLLECTED.with_borrow_mut(Vec::pop);
    }
}

/// Collects the answer to an operation of the [`Awaiting`] with this number, if this thread is submitting its operations;
/// returns it otherwise.
pub fn awaited(number: u64, answered: Answered) -> Option<Answered> {
    let mut answered = Some(answered);
    // A thread that ends submits nothing.
    let _ = COLLECTED.try_with(|all| {
        let mut all = all.borrow_mut();
        let collected = all.iter_mut().rfind(|(of, _)| *of == number);
        if let Some((_, collected)) = collected {
            collected.extend(answered.take());
        }
    });
    answered
}
