//! How the thread of a queue is woken and stopped.

use crate::claim;
use crate::mailbox::Mailbox;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

/// Asks the thread of a queue to stop.
pub(crate) struct Control {
    stop: AtomicBool,
    pub(crate) mailbox: Arc<Mailbox>,
}

impl Control {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            stop: AtomicBool::new(false),
            mailbox: Arc::new(Mailbox::new()?),
        }))
    }

    pub(crate) fn must_stop(&self) -> bool {
        self.stop.load(SeqCst)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, SeqCst);
        self.mailbox.ring();
        claim::wake();
    }
}
