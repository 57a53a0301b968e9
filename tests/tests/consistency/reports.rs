//! Which connections have been told of lost writes: each that there was, once.

use std::collections::BTreeSet;

/// Who has asked.
#[derive(Clone, Copy)]
pub struct Caller {
    pub connection: u64,
    /// When the connection was made.
    pub connected: u64,
}

/// The FLUSHes that failed because the server's last end lost writes.
#[derive(Default)]
pub struct Reports {
    /// When the first of them was issued, and when it failed.
    first: (u64, u64),
    /// The connections on which one has failed.
    told: BTreeSet<u64>,
}

impl Reports {
    /// The first FLUSH has failed. With faults in the store, no connection has to be told.
    pub fn begin(issue: u64, now: u64, by: Caller, has_faults: bool) -> Self {
        Self {
            first: (if has_faults { 0 } else { issue }, now),
            told: [by.connection].into(),
        }
    }

    /// Whether a FLUSH of a connection must fail: the connection was there before the first of them.
    pub fn owe(&self, issue: u64, by: Caller) -> bool {
        let (first_issue, first_failed) = self.first;
        by.connected < first_issue && issue > first_failed && !self.told.contains(&by.connection)
    }

    /// Whether a FLUSH of a connection may fail.
    pub fn allow(&mut self, issue: u64, by: Caller) -> bool {
        let (_, first_failed) = self.first;
        let is_news = self.told.insert(by.connection) && by.connected < first_failed;
        is_news || issue <= first_failed
    }
}
