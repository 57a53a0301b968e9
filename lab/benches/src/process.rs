//! Children that never outlive the benchmark: ended when dropped, and when a signal ends it.

use anyhow::{Context, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const START_PATIENCE: Duration = Duration::from_secs(20);
const END_PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(10);

/// The children of this process and its directory, for the code that clears them away.
#[derive(Clone)]
pub struct Nursery {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    children: Vec<(usize, Child)>,
    directory: PathBuf,
    next: usize,
    closed: bool,
}

/// A child that ends when this is dropped.
pub struct Running {
    nursery: Nursery,
    key: usize,
    id: u32,
}

impl Nursery {
    /// A nursery that clears away its children and `directory` when SIGINT, SIGTERM or SIGHUP
    /// comes, and then ends this process.
    pub fn new(directory: PathBuf) -> anyhow::Result<Self> {
        let nursery = Self {
            inner: Arc::new(Mutex::new(Inner {
                children: Vec::new(),
                directory,
                next: 0,
                closed: false,
            })),
        };
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let guard = nursery.clone();
        std::thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                guard.clear();
                std::process::exit(128 + signal);
            }
        });
        Ok(nursery)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clear(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        for (_, child) in &mut inner.children {
            end(child);
        }
        let _ = std::fs::remove_dir_all(&inner.directory);
    }

    /// Starts a server and waits until something accepts connections on `socket`. What it says
    /// goes to `log`, the end of which explains a failure.
    pub fn start(
        &self,
        command: &mut Command,
        socket: &Path,
        log: &Path,
    ) -> anyhow::Result<Running> {
        self.start_until(command, log, &|| UnixStream::connect(socket).is_ok())
    }

    /// The same for anything that can be seen to be ready.
    pub fn start_until(
        &self,
        command: &mut Command,
        log: &Path,
        is_ready: &dyn Fn() -> bool,
    ) -> anyhow::Result<Running> {
        let said = std::fs::File::create(log)?;
        command
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said);
        let running = {
            let mut inner = self.lock();
            if inner.closed {
                bail!("interrupted");
            }
            let child = command
                .spawn()
                .with_context(|| format!("starting {}", command.get_program().display()))?;
            let (id, key) = (child.id(), inner.next);
            inner.next += 1;
            inner.children.push((key, child));
            Running {
                nursery: self.clone(),
                key,
                id,
            }
        };
        let deadline = Instant::now() + START_PATIENCE;
        while !is_ready() {
            if running.has_ended() || Instant::now() > deadline {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                bail!(
                    "{} does not serve: {}",
                    command.get_program().display(),
                    said.trim()
                );
            }
            std::thread::sleep(PAUSE);
        }
        Ok(running)
    }
}

/// Asks a child to end, and makes it if it does not.
fn end(child: &mut Child) {
    let asked = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .map(|id| rustix::process::kill_process(id, rustix::process::Signal::TERM));
    let deadline = Instant::now() + END_PATIENCE;
    while matches!(asked, Some(Ok(()))) && Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    let _ = child.kill();
    let _ = child.wait();
}

impl Running {
    /// Its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Ends it at once.
    pub fn kill(&self) {
        let mut inner = self.nursery.lock();
        if let Some((_, child)) = inner.children.iter_mut().find(|(key, _)| *key == self.key) {
            // It may have ended by itself.
            let _ = child.kill();
        }
    }

    fn has_ended(&self) -> bool {
        let mut inner = self.nursery.lock();
        inner
            .children
            .iter_mut()
            .find(|(key, _)| *key == self.key)
            .is_none_or(|(_, child)| !matches!(child.try_wait(), Ok(None)))
    }

    /// Processor time that it has used, all its threads together.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds(&format!("/proc/{}/stat", self.id)).unwrap_or(0.0)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut inner = self.nursery.lock();
        if let Some(at) = inner.children.iter().position(|(key, _)| *key == self.key) {
            end(&mut inner.children[at].1);
            inner.children.swap_remove(at);
        }
    }
}

/// User and system time of a process, from its `stat` file.
pub(crate) fn cpu_seconds(path: &str) -> Option<f64> {
    let text = std::fs::read_to_string(path).ok()?;
    // The name may contain anything; the fields are counted from behind it.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let used = ticks(11)? + ticks(12)?;
    Some(used as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Runs a program to its end; the processor seconds that it used, all its threads together.
pub fn run_to_end(command: &mut Command, directory: &Path) -> anyhow::Result<f64> {
    let name = command.get_program().display().to_string();
    let said = std::fs::File::create(directory.join("said"))?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said);
    let before = cpu_of_ended()?;
    let ended = command
        .status()
        .with_context(|| format!("starting {name}"))?;
    if !ended.success() {
        let said = std::fs::read_to_string(directory.join("said")).unwrap_or_default();
        bail!("{name} failed: {}", said.trim());
    }
    Ok(cpu_of_ended()? - before)
}

/// Processor seconds of all children that have ended, by the microsecond: `/proc` counts in hundredths of a second.
fn cpu_of_ended() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: TimeVal| time.num_microseconds() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// Processor time of this process.
#[must_use]
pub fn own_cpu_seconds() -> f64 {
    cpu_seconds("/proc/self/stat").unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_processor_time_goes_up() {
        let before = own_cpu_seconds();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(300) {}
        let used = own_cpu_seconds() - before;
        assert!(used > 0.0, "{used}");
    }
}
