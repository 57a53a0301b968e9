//! Where each request is served.

use super::interface::{Machine, Served};
use crate::batch::Batch;

/// A machine that gets its requests one by one.
pub(crate) struct OneByOne<'a> {
    /// The machine.
    pub(crate) machine: &'a mut dyn Machine,
    one: Vec<Served>,
}

impl<'a> OneByOne<'a> {
    /// Feeds this machine.
    pub(crate) fn new(machine: &'a mut dyn Machine) -> Self {
        Self {
            machine,
            one: Vec::new(),
        }
    }

    /// Sends the only request of `batch`, and adds to `served` as [`Machine::feed`] does. Returns the element that counts it.
    pub(crate) fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served]) -> usize {
        self.one.clear();
        self.one.resize(served.len(), Served::default());
        self.machine.feed(batch, &mut self.one);
        for (all, one) in served.iter_mut().zip(&self.one) {
            all.add(one);
        }
        let is_here = |at: &Served| at.reads + at.writes > 0;
        self.one.iter().position(is_here).unwrap_or(0)
    }
}
