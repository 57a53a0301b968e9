//! A cache's environment beside its stores: time, threads and memory.

use std::io;
use std::time::{Instant, SystemTime};

/// Time, threads and memory. A cache uses those of its machine; a simulation provides its own, so that a
/// single seed determines all events.
pub trait World: Send + Sync {
    /// The current time. It never goes back.
    fn now(&self) -> Instant;

    /// Runs `work` on another thread, soon; it may wait for a disk. `name` is that of the thread.
    ///
    /// # Errors
    ///
    /// No thread can be started; `work` is dropped.
    fn apart(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()>;

    /// Whether the cache starts threads that read the clock. If not, the simulation calls
    /// [`Engine::tick`](crate::Engine::tick), and the errors of stores are not counted by the
    /// minute.
    fn has_clock_threads(&self) -> bool {
        true
    }

    /// The time of the clock that dates files, in nanoseconds since 1970. It may go back.
    fn wall_ns(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_nanos() as u64)
    }

    /// Bytes of memory of the machine.
    fn memory_bytes(&self) -> u64 {
        let memory = rustix::system::sysinfo();
        let unit = u64::from(memory.mem_unit).max(1);
        memory.totalram.saturating_mul(unit)
    }

    /// Whether a thread makes one small cache after the other. Each then takes over the memory of
    /// the frames of one that has ended, zeroed, and no allocation gets a mapping of its own because
    /// it is large.
    fn has_many_caches(&self) -> bool {
        false
    }

    /// Called between two steps of a long request, without the cache's lock: other threads may take
    /// it now.
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
