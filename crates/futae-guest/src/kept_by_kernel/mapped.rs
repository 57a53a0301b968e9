//! The thread that looks for pages that programs read through maps.

use super::KernelKeeper;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tracing::warn;

/// From one look to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// A pause is this many times as long as the look before it: a look goes over the maps of all processes.
const PAUSES: u32 = 100;

/// The thread; it ends when this is dropped.
pub(super) struct Looking {
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Looking {
    pub(super) fn start(keeper: Arc<KernelKeeper>) -> io::Result<Self> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&has_ended);
        let thread = thread::Builder::new().name("futae-mapped".into());
        let thread = thread.spawn(move || look_until(&ends, &keeper))?;
        Ok(Self {
            has_ended,
            thread: Some(thread),
        })
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.has_ended.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

fn look_until(has_ended: &AtomicBool, keeper: &KernelKeeper) {
    let mut next = Instant::now() + INTERVAL;
    loop {
        thread::park_timeout(next.saturating_duration_since(Instant::now()));
        if has_ended.load(SeqCst) {
            return;
        }
        let begun = Instant::now();
        if begun < next {
            continue;
        }
        if let Err(error) = keeper.watch.look_at_mapped() {
            warn!(
                "reads of pages that stay mapped are not seen, so such pages may be evicted while they are used: {error:#}"
            );
            return;
        }
        next = Instant::now() + INTERVAL.max(begun.elapsed() * PAUSES);
    }
}
