//! Spare threads for a session of the FUSE library, whose own threads are fixed in number. A
//! request may wait for the lower file system for as long as that stalls. If every thread of the
//! session waited so, nobody would take the requests that the cache can answer. The last free
//! thread therefore passes such a request to a spare thread, and takes the next request.
//!
//! The same threads do what the threads that complete requests must not do, since it may wait for
//! other requests. One of them always stays, because there may be no further thread when it is needed.

use crate::lock::locked;
use std::collections::VecDeque;
use std::io;
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
    /// Number of spare threads that stay without work.
    staying: usize,
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
        Self::with(own, 0)
    }

    fn with(own: usize, staying: usize) -> Arc<Self> {
        Arc::new(Self {
            own,
            staying,
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
        if self.start_one().is_err() {
            // Another thread may have taken it.
            let work = locked(&self.spare).passed.pop_back();
            if let Some(work) = work {
                work();
            }
        }
    }

    /// Starts a thread that was counted before.
    fn start_one(self: &Arc<Self>) -> io::Result<()> {
        let all = Arc::clone(self);
        let thread = std::thread::Builder::new().name("futae-spare".into());
        let started = thread.spawn(move || all.work());
        started.map(drop).inspect_err(|_| {
            locked(&self.spare).threads -= 1;
        })
    }

    /// Has a spare thread do the work, and never the caller. If there can be no further thread, one
    /// that there is does it later.
    fn queue(self: &Arc<Self>, work: Work) {
        let mut spare = locked(&self.spare);
        spare.passed.push_back(work);
        if spare.passed.len() <= spare.idle {
            self.news.notify_one();
        } else if spare.threads < SPARE_MAX {
            spare.threads += 1;
            drop(spare);
            // The thread that stays comes to it.
            let _ = self.start_one();
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
            if timeout.timed_out() && spare.passed.is_empty() && spare.threads > self.staying {
                break;
            }
        }
        spare.threads -= 1;
        if spare.threads == 0 {
            self.empty.notify_all();
        }
    }

    /// Lets the threads end once they have done their work.
    fn stop(&self) {
        locked(&self.spare).is_over = true;
        self.news.notify_all();
    }

    /// The session has ended: waits for the requests that were passed.
    pub(crate) fn end(&self) {
        self.stop();
        let mut spare = locked(&self.spare);
        while spare.threads > 0 {
            let waited = self.empty.wait(spare);
            spare = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Threads for work that the thread which finds it must not do. They do what is left when this is
/// dropped, and end.
pub(crate) struct Aside(Arc<SpareThreads>);

impl Aside {
    /// Starts the thread that stays.
    pub(crate) fn start() -> io::Result<Self> {
        let threads = SpareThreads::with(0, 1);
        locked(&threads.spare).threads = 1;
        threads.start_one()?;
        Ok(Self(threads))
    }

    /// Has the work done on another thread, which may wait.
    pub(crate) fn queue(&self, work: impl FnOnce() + Send + 'static) {
        self.0.queue(Box::new(work));
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // One of these threads may be the one that drops it, so nothing waits for them.
        self.0.stop();
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
    use crate::until::until;
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
        until("one has nothing to do", || locked(&threads.spare).idle > 0);
        threads.pass(Box::new(|| {}));
        threads.end();
        let spare = locked(&threads.spare);
        assert_eq!((spare.threads, spare.passed.len()), (0, 0));
    }

    #[test]
    fn what_is_done_aside_is_never_done_by_the_caller() {
        let aside = Aside::start().expect("a thread");
        let gate = Arc::new(Mutex::new(()));
        let stalled = locked(&gate);
        let (done, ends) = channel();
        let caller = std::thread::current().id();
        // More than there can be threads: as when the process may have no more of them.
        for _ in 0..=SPARE_MAX {
            let (done, gate) = (done.clone(), Arc::clone(&gate));
            aside.queue(move || {
                drop(locked(&gate));
                done.send(std::thread::current().id()).expect("kept");
            });
        }
        assert!(ends.try_recv().is_err(), "all of it waits");
        drop(stalled);
        for _ in 0..=SPARE_MAX {
            assert_ne!(ends.recv().expect("done"), caller);
        }
        let threads = Arc::clone(&aside.0);
        drop(aside);
        until("none is left", || locked(&threads.spare).threads == 0);
    }
}
