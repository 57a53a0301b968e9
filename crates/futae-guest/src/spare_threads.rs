//! Spare threads for a session of the FUSE library, whose own threads are fixed in number. A
//! request may wait for the lower file system for as long as that stalls. If every thread of the
//! session waited so, nobody would take the requests that the cache can answer. The last free
//! thread therefore passes such a request to a spare thread, and takes the next request.

use crate::lock::locked;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The largest number of spare threads of a session.
const SPARE_MAX: usize = 64;
/// How long a spare thread without work stays.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

type Work = Box<dyn FnOnce() + Send>;

/// The spare threads of a session.
pub(crate) struct SpareThreads {
    /// Number of the session's own threads.
    own: usize,
    /// Number of own threads that serve a request which may wait.
    held: AtomicUsize,
    spare: Mutex<Spare>,
    /// There is work, or the session has ended.
    news: Condvar,
    /// The last spare thread has ended.
    empty: Condvar,
}

#[derive(Default)]
struct Spare {
    /// Requests that no thread has taken yet.
    passed: VecDeque<Work>,
    threads: usize,
    /// Number of these threads that wait for work.
    idle: usize,
    is_over: bool,
}

/// An own thread serves a request that may wait.
pub(crate) struct Held<'a>(&'a AtomicUsize);

impl SpareThreads {
    /// For a session with this number of threads; none is started yet.
    pub(crate) fn new(own: usize) -> Arc<Self> {
        Arc::new(Self {
            own,
            held: AtomicUsize::new(0),
            spare: Mutex::default(),
            news: Condvar::new(),
            empty: Condvar::new(),
        })
    }

    /// Lets the calling thread of the session serve a request that may wait; `None` if it is the
    /// last one that takes requests.
    pub(crate) fn hold(&self) -> Option<Held<'_>> {
        let before = self.held.fetch_add(1, Ordering::AcqRel);
        let held = Held(&self.held);
        (before + 1 < self.own).then_some(held)
    }

    /// Has a spare thread do the work. If there can be no further thread, the caller does it.
    pub(crate) fn pass(self: &Arc<Self>, work: Work) {
        let mut spare = locked(&self.spare);
        if spare.passed.len() < spare.idle {
            spare.passed.push_back(work);
            self.news.notify_one();
            return;
        }
        if spare.threads >= SPARE_MAX {
            drop(spare);
            return work();
        }
        spare.passed.push_back(work);
        spare.threads += 1;
        drop(spare);
        let all = Arc::clone(self);
        let thread = std::thread::Builder::new().name("futae-spare".into());
        if thread.spawn(move || all.work()).is_err() {
            let mut spare = locked(&self.spare);
            spare.threads -= 1;
            // Another thread may have taken it.
            let work = spare.passed.pop_back();
            drop(spare);
            if let Some(work) = work {
                work();
            }
        }
    }

    fn work(&self) {
        let mut spare = locked(&self.spare);
        loop {
            if let Some(work) = spare.passed.pop_front() {
                drop(spare);
                // If a request panics, others continue; its dropped answer becomes an error.
                drop(catch_unwind(AssertUnwindSafe(work)));
                spare = locked(&self.spare);
                continue;
            }
            if spare.is_over {
                break;
            }
            spare.idle += 1;
            let waited = self.news.wait_timeout(spare, IDLE_TIMEOUT);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            spare = woken;
            spare.idle -= 1;
            if timeout.timed_out() && spare.passed.is_empty() {
                break;
            }
        }
        spare.threads -= 1;
        if spare.threads == 0 {
            self.empty.notify_all();
        }
    }

    /// The session has ended: waits for the requests that were passed.
    pub(crate) fn end(&self) {
        let mut spare = locked(&self.spare);
        spare.is_over = true;
        self.news.notify_all();
        while spare.threads > 0 {
            let waited = self.empty.wait(spare);
            spare = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_testkit::wait::eventually;
    use std::sync::mpsc::channel;

    #[test]
    fn one_thread_always_remains_for_the_next_request() {
        let threads = SpareThreads::new(3);
        let held = [threads.hold(), threads.hold()];
        assert!(held.iter().all(Option::is_some));
        assert!(threads.hold().is_none() && threads.hold().is_none());
        drop(held);
        assert!(threads.hold().is_some());
        assert!(SpareThreads::new(1).hold().is_none());
    }

    #[test]
    fn as_many_threads_wait_as_there_are_requests_up_to_a_bound() {
        let threads = SpareThreads::new(1);
        let (begun, begins) = channel();
        let gate = Arc::new(Mutex::new(()));
        let stalled = locked(&gate);
        for _ in 0..SPARE_MAX {
            let (begun, gate) = (begun.clone(), Arc::clone(&gate));
            threads.pass(Box::new(move || {
                begun.send(()).expect("the test waits");
                drop(locked(&gate));
            }));
        }
        for _ in 0..SPARE_MAX {
            begins.recv().expect("each has a thread");
        }
        let caller = std::thread::current().id();
        let (done, is_done) = channel();
        threads.pass(Box::new(move || {
            done.send(std::thread::current().id()).expect("kept");
        }));
        assert_eq!(is_done.try_recv(), Ok(caller));
        drop(stalled);
        eventually("one has nothing to do", || locked(&threads.spare).idle > 0);
        threads.pass(Box::new(|| {}));
        threads.end();
        let spare = locked(&threads.spare);
        assert_eq!((spare.threads, spare.passed.len()), (0, 0));
    }
}
