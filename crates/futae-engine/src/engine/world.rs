//! What a cache has around it beside its stores: the time, and threads.

use std::io;
use std::time::{Instant, SystemTime};

/// The time, and threads. A cache has those of its machine; a simulation brings its own, so that one seed
/// decides on all that happens.
pub trait World: Send + Sync {
    /// The time. It never goes back.
    fn now(&self) -> Instant;

    /// Has `work` done by somebody else, soon; it may wait for a disk. `name` is that of the thread.
    ///
    /// # Errors
    ///
    /// There is nobody; `work` is dropped.
    fn apart(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()>;

    /// Whether the cache has threads that look at the clock. Otherwise the simulation calls
    /// [`Engine::tick`](crate::Engine::tick), and errors of stores are not counted by the minute.
    fn has_clock_threads(&self) -> bool {
        true
    }

    /// The time by the clock that files are dated by, in nanoseconds since 1970. It may go back.
    fn wall_ns(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_nanos() as u64)
    }

    /// Called between two steps of a long request, without the cache's lock: others may have it now.
    fn between_steps(&self) {}
}

/// The machine that the process runs on.
pub struct Machine;

impl World for Machine {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn apart(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(work).map(drop)
    }
}
