//! Which connections have been told of lost writes: each that there was, once.

use std::collections::BTreeMap;

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
    /// The connections on which some have failed.
    told: BTreeMap<u64, Told>,
    /// When the connections were made that went away with a FLUSH under way: those that were made later may be told in their place.
    gone: Vec<u64>,
}

/// What a connection has been told.
struct Told {
    /// When a FLUSH last failed that was no other's company.
    last: u64,
    times: usize,
}

impl Reports {
    /// The first FLUSH has failed. With faults in the store, no connection has to be told.
    pub fn begin(&mut self, issue: u64, now: u64, by: Caller, has_faults: bool) {
        self.first = (if has_faults { 0 } else { issue }, now);
        self.told = [(
            by.connection,
            Told {
                last: now,
                times: 1,
            },
        )]
        .into();
    }

    /// A connection that was made at a time is gone, and had a FLUSH under way, which may have failed.
    pub fn go(&mut self, connected: u64) {
        self.gone.push(connected);
    }

    /// Whether a FLUSH of a connection must fail: the connection was there before the first of them.
    pub fn owe(&self, issue: u64, by: Caller) -> bool {
        let (first_issue, first_failed) = self.first;
        by.connected < first_issue
            && issue > first_failed
            && !self.told.contains_key(&by.connection)
    }

    /// Whether a FLUSH of a connection may fail, as it did now.
    pub fn allow(&mut self, issue: u64, now: u64, by: Caller) -> bool {
        let (_, first_failed) = self.first;
        let told = self
            .told
            .entry(by.connection)
            .or_insert(Told { last: 0, times: 0 });
        // It was under way when another one failed.
        if issue <= told.last {
            return true;
        }
        let in_place_of = self.gone.iter().filter(|&&gone| gone <= by.connected);
        let times = usize::from(by.connected < first_failed) + in_place_of.count();
        told.last = now;
        told.times += 1;
        told.times <= times || issue <= first_failed
    }
}
