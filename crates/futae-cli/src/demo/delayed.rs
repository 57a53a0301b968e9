//! The disk image on a slower disk: every operation reaches it a fixed time after it was asked for, however
//! many are under way.

use futae_engine::{Extent, IoError, Store, StoreDone, StoreOperation};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// An operation that waits for its time.
struct Waiting {
    due: Instant,
    sequence: u64,
    operation: StoreOperation,
    done: StoreDone,
}

/// A store behind a delay.
pub struct Delayed {
    store: Arc<dyn Store>,
    latency: Duration,
    /// Its end is the end of the thread.
    waiting: Option<Sender<Waiting>>,
    thread: Option<JoinHandle<()>>,
}

impl Delayed {
    /// `store`, to which every operation goes `latency` later.
    pub fn new(store: Arc<dyn Store>, latency: Duration) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel::<Waiting>();
        let behind = Arc::clone(&store);
        let work = move || {
            // All wait equally long, so they are due in the order in which they came.
            for waiting in receiver {
                thread::sleep(waiting.due.saturating_duration_since(Instant::now()));
                behind.submit(waiting.sequence, waiting.operation, waiting.done);
            }
        };
        let thread = thread::Builder::new().name("delay".into()).spawn(work)?;
        Ok(Self {
            store,
            latency,
            waiting: Some(sender),
            thread: Some(thread),
        })
    }
}

impl Drop for Delayed {
    fn drop(&mut self) {
        self.waiting = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

impl Store for Delayed {
    fn size_bytes(&self) -> u64 {
        self.store.size_bytes()
    }

    fn describe(&self) -> String {
        let latency = self.latency.as_secs_f64() * 1e3;
        format!("{}, {latency} ms later", self.store.describe())
    }

    fn is_read_only(&self) -> bool {
        self.store.is_read_only()
    }

    fn submit(&self, sequence: u64, operation: StoreOperation, done: StoreDone) {
        let waiting = Waiting {
            due: Instant::now() + self.latency,
            sequence,
            operation,
            done,
        };
        let Some(queue) = &self.waiting else { return };
        if let Err(mpsc::SendError(waiting)) = queue.send(waiting) {
            // The thread is gone: without a delay, but answered.
            self.store
                .submit(waiting.sequence, waiting.operation, waiting.done);
        }
    }

    fn buffered_fallbacks(&self) -> u64 {
        self.store.buffered_fallbacks()
    }

    fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, IoError> {
        self.store.extents(offset, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_engine::{FileStore, IoBuf};

    #[test]
    fn operations_come_in_their_order_and_not_before_their_time() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(1 << 20).expect("room");
        let store: Arc<dyn Store> = Arc::new(FileStore::open(file.path(), false).expect("open"));
        let latency = Duration::from_millis(20);
        let delayed = Delayed::new(store, latency).expect("a thread");
        let (sender, answers) = mpsc::channel();
        let begin = Instant::now();
        for at in 0..3u64 {
            let sender = sender.clone();
            let operation = StoreOperation::Read {
                offset: at * 4096,
                buffer: IoBuf::new(4096),
            };
            let done = Box::new(move |result: Result<IoBuf, IoError>| {
                let _ = sender.send((begin.elapsed(), result));
            });
            delayed.submit(at, operation, done);
        }
        for _ in 0..3 {
            let (took, result) = answers.recv().expect("an answer");
            assert!(took >= latency, "after {took:?}");
            assert!(
                result
                    .expect("data")
                    .as_slice()
                    .iter()
                    .all(|&byte| byte == 0)
            );
        }
        assert!(delayed.describe().ends_with(", 20 ms later"));
    }
}
