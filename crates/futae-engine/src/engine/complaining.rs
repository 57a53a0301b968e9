//! Store errors: recorded under the cache's lock, logged without it.

use super::complaints::{INTERVAL, Remark, matters, sentence};
use super::front::Engine;
use super::state::State;
use super::ticket::Ticket;
use crate::IoError;
use futae_policy::VolumeId;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Weak};

impl State {
    fn volume_of(&self, ticket: Ticket) -> Option<VolumeId> {
        match ticket {
            Ticket::Flight(key) => self.under_way.flights[key].span.map(|span| span.volume),
            Ticket::Write(key) => Some(self.under_way.writes[key].span.volume),
            Ticket::Flush(key) => Some(self.flushes[key].volume),
            Ticket::Run(key) => Some(self.under_way.runs[key].volume),
            Ticket::Mark(volume) => Some(volume),
        }
    }

    /// Records the failure of a store operation whose ticket is still valid. Returns the line to
    /// log, if any.
    pub fn complain(&mut self, ticket: Ticket, error: IoError) -> Option<Remark> {
        let volume = self.volume_of(ticket).filter(|_| matters(&error))?;
        let known = self.volumes.get(usize::from(volume.0))?;
        // The file of a growing volume answers with the number as it is; other front ends translate the kind.
        let passed = error.os_error.filter(|_| known.grows);
        let errno = passed.unwrap_or(error.kind.errno());
        let sentence = sentence(ticket, &error, errno);
        self.complaints.note(volume, &known.name, sentence, error)
    }
}

impl Engine {
    /// Logs a remark about a store, and starts to count the errors that follow.
    pub(super) fn remark(self: &Arc<Self>, remark: Remark) {
        remark.say();
        let mut state = self.lock();
        if state.complaints.counts.is_some() || !self.world.has_clock_threads() {
            return;
        }
        let (alive, is_gone) = channel();
        let engine = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("futae-count".into());
        if thread.spawn(move || count(&engine, &is_gone)).is_ok() {
            state.complaints.counts = Some(alive);
        }
    }

    /// At the end, logs the errors that were counted and not yet logged.
    fn say_the_rest(&self) {
        let remarks = self.lock().complaints.count();
        let is_news = |remark: &Remark| !matches!(remark, Remark::NoMore { .. });
        remarks.into_iter().filter(is_news).for_each(Remark::say);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.say_the_rest();
    }
}

/// Counts until no more errors occur or the engine is dropped.
fn count(engine: &Weak<Engine>, is_gone: &Receiver<()>) {
    while let Err(RecvTimeoutError::Timeout) = is_gone.recv_timeout(INTERVAL) {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let remarks = engine.lock().complaints.count();
        remarks.into_iter().for_each(Remark::say);
    }
}
