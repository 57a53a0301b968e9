//! What is asked of a cache, and where the answers come; and its world.

use crate::disk::{Clock, Disk, End};
use futae_engine::{ClientId, IoBuf, IoError, Operation, Request, World};
use futae_policy::{Prng, VolumeId};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Policies that need nothing special.
pub const POLICIES: [&str; 6] = ["lru", "fix", "arc", "cost", "s3-fifo", "sieve"];

type Bytes = Result<Vec<u8>, IoError>;

/// Where the answer to a request comes.
#[derive(Clone, Default)]
pub struct Answer(Arc<Mutex<Option<Bytes>>>);

impl Answer {
    /// The answer, once it is there.
    pub fn take(&self) -> Option<Bytes> {
        self.0.lock().expect("whole").take()
    }

    pub fn is_there(&self) -> bool {
        self.0.lock().expect("whole").is_some()
    }
}

/// A request, and where its answer will be.
pub fn request(
    volume: VolumeId,
    client: ClientId,
    sequence: u64,
    operation: Operation,
) -> (Request, Answer) {
    let answer = Answer::default();
    let slot = Arc::clone(&answer.0);
    let request = Request {
        volume,
        client,
        sequence,
        operation,
        done: Box::new(move |result: Result<IoBuf, IoError>| {
            let result = result.map(|data| data.as_slice().to_vec());
            let before = slot.lock().expect("whole").replace(result);
            assert!(before.is_none(), "answered twice");
        }),
    };
    (request, answer)
}

/// In which order a disk ends its operations.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    OfArrival,
    Any,
}

/// Ends one operation of any of the disks, if there is one: badly one time of `fails`, unless that is 0. Returns whose it was.
pub fn release_one(
    disks: &[Arc<Disk>],
    fails: u64,
    order: Order,
    prng: &mut Prng,
) -> Option<usize> {
    let from = prng.below(disks.len() as u64) as usize;
    let mut all = (from..disks.len()).chain(0..from);
    let at = all.find(|&at| disks[at].held() > 0)?;
    let is_bad = fails > 0 && prng.below(fails) == 0;
    let end = if is_bad { End::Bad } else { End::Good };
    let which = match order {
        Order::OfArrival => 0,
        Order::Any => prng.below(disks[at].held() as u64) as usize,
    };
    disks[at].release(which, end, prng);
    Some(at)
}

/// A world with the test's clock and one thread.
pub struct Alone {
    clock: Arc<Clock>,
    start: Instant,
    /// Of these, another thread ends operations between the steps of a request.
    disks: Vec<Arc<Disk>>,
    prng: Mutex<Prng>,
}

impl Alone {
    pub fn new(clock: &Arc<Clock>, disks: Vec<Arc<Disk>>, prng: Prng) -> Self {
        Self {
            clock: Arc::clone(clock),
            start: Instant::now(),
            disks,
            prng: Mutex::new(prng),
        }
    }
}

impl World for Alone {
    fn now(&self) -> Instant {
        self.start + Duration::from_nanos(self.clock.ns())
    }

    fn apart(&self, _name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        work();
        Ok(())
    }

    fn has_clock_threads(&self) -> bool {
        false
    }

    fn wall_ns(&self) -> u64 {
        self.clock.ns()
    }

    fn between_steps(&self) {
        if self.disks.is_empty() {
            return;
        }
        let mut prng = self.prng.lock().expect("whole").clone();
        *self.prng.lock().expect("whole") = Prng::new(prng.bits());
        let disk = &self.disks[prng.below(self.disks.len() as u64) as usize];
        let held = disk.held() as u64;
        if held > 0 && prng.below(2) == 0 {
            disk.release(prng.below(held) as usize, End::Good, &mut prng);
        }
    }
}
