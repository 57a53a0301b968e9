//! A thread that does one thing again and again beside the others.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The thread; it ends when this is dropped.
pub(crate) struct Aside {
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Aside {
    /// Does `work` after `first`, and then after each pause that it answers, until it answers none.
    pub(crate) fn start(
        name: &str,
        first: Duration,
        work: impl FnMut() -> Option<Duration> + Send + 'static,
    ) -> io::Result<Self> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&has_ended);
        let thread = thread::Builder::new().name(name.into());
        let thread = thread.spawn(move || work_until(&ends, first, work))?;
        Ok(Self {
            has_ended,
            thread: Some(thread),
        })
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.has_ended.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

fn work_until(has_ended: &AtomicBool, first: Duration, mut work: impl FnMut() -> Option<Duration>) {
    let mut next = Instant::now() + first;
    loop {
        thread::park_timeout(next.saturating_duration_since(Instant::now()));
        if has_ended.load(SeqCst) {
            return;
        }
        if Instant::now() < next {
            continue;
        }
        let Some(pause) = work() else { return };
        next = Instant::now() + pause;
    }
}
