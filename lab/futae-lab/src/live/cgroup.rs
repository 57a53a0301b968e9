//! Bounds for processes of an experiment: of the page cache of what they read, and of the speed at
//! which they read a device. Control groups of either version.

use anyhow::Context;
use futae_balance::actuator::Actuator;
use futae_terminal::failure::Failure;
use rustix::fs::MemfdFlags;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const ROOT: &str = "/sys/fs/cgroup";
/// What version 2 calls all that version 1 keeps in a directory for each controller.
const UNIFIED: &str = "cgroup.controllers";
/// How often to look whether the last process has gone, and how long to wait in between.
const LOOKS: u32 = 100;
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How often the limit of a group's memory follows what its processes take for themselves.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);

/// Names of a memory controller.
struct Memory {
    limit: &'static str,
    usage: &'static str,
    /// The page cache's line of `memory.stat`.
    cache: &'static str,
}

/// Those of versions 1 and 2.
const MEMORY: [Memory; 2] = [
    Memory {
        limit: "memory.limit_in_bytes",
        usage: "memory.usage_in_bytes",
        cache: "cache ",
    },
    Memory {
        limit: "memory.max",
        usage: "memory.current",
        cache: "file ",
    },
];

impl Memory {
    /// Gives the page cache of a group this many bytes, and its processes what they have. None if the
    /// group does not tell, as when it is gone.
    fn follow(&self, directory: &Path, bytes: u64) -> Option<()> {
        let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
        let usage: u64 = read(self.usage)?.trim().parse().ok()?;
        let stat = read("memory.stat")?;
        let cache = stat
            .lines()
            .find_map(|line| line.strip_prefix(self.cache))?;
        let own = usage.saturating_sub(cache.trim().parse().ok()?);
        fs::write(directory.join(self.limit), (bytes + own).to_string()).ok()
    }
}

/// What a group bounds.
#[derive(Clone, Copy)]
pub enum Bound<'a> {
    /// Bytes of page cache, beside whatever the processes take for themselves.
    PageCache(u64),
    /// Bytes of memory, page cache and all else, at first.
    Memory(u64),
    /// Bytes a second that are read from a device, which is given as `major:minor`.
    Reading(&'a str, u64),
}

impl Bound<'_> {
    /// Controller, file and value, in version 1.
    fn v1(self) -> (&'static str, &'static str, String) {
        match self {
            Self::PageCache(bytes) | Self::Memory(bytes) => {
                ("memory", MEMORY[0].limit, bytes.to_string())
            }
            Self::Reading(device, rate) => (
                "blkio",
                "blkio.throttle.read_bps_device",
                format!("{device} {rate}"),
            ),
        }
    }

    /// The same in version 2.
    fn v2(self) -> (&'static str, &'static str, String) {
        match self {
            Self::PageCache(bytes) => ("memory", MEMORY[1].limit, bytes.to_string()),
            Self::Memory(bytes) => ("memory", "memory.high", bytes.to_string()),
            Self::Reading(device, rate) => ("io", "io.max", format!("{device} rbps={rate}")),
        }
    }
}

/// A group of processes, gone at the end; they have to be gone first.
#[derive(Default)]
pub struct Group {
    directories: Vec<PathBuf>,
    is_over: Arc<AtomicBool>,
    follower: Option<JoinHandle<()>>,
}

impl Group {
    /// A group with all of these bounds.
    pub fn new(bounds: &[Bound<'_>]) -> Result<Self, Failure> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("futae-paper-{}-{number}", std::process::id());
        let mut group = Self::default();
        for &bound in bounds {
            group.bound(bound, &name).with_context(|| {
                format!("{ROOT}: needs root and control groups for memory and devices")
            })?;
        }
        Ok(group)
    }

    fn bound(&mut self, bound: Bound<'_>, name: &str) -> anyhow::Result<()> {
        let root = Path::new(ROOT);
        let is_unified = root.join(UNIFIED).exists();
        let (controller, file, value) = if is_unified { bound.v2() } else { bound.v1() };
        let directory = if is_unified {
            // It may be given to groups already, or only now.
            let _ = fs::write(
                root.join("cgroup.subtree_control"),
                format!("+{controller}"),
            );
            root.join(name)
        } else {
            root.join(controller).join(name)
        };
        if !self.directories.contains(&directory) {
            fs::create_dir(&directory).with_context(|| directory.display().to_string())?;
            self.directories.push(directory.clone());
        }
        let path = directory.join(file);
        fs::write(&path, value).with_context(|| path.display().to_string())?;
        if let Bound::PageCache(bytes) = bound {
            let is_over = Arc::clone(&self.is_over);
            let names = &MEMORY[usize::from(is_unified)];
            self.follower = Some(std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // What is missed now comes the next time.
                    let _ = names.follow(&directory, bytes);
                    std::thread::sleep(FOLLOW_INTERVAL);
                }
            }));
        }
        Ok(())
    }

    /// By what its memory is changed, if that was bounded first.
    pub fn memory(&self) -> Option<Actuator> {
        let path = self.directories.first()?.clone();
        let is_unified = Path::new(ROOT).join(UNIFIED).exists();
        Some(if is_unified {
            Actuator::Cgroup2 { path }
        } else {
            Actuator::Cgroup1 { path }
        })
    }

    /// Bytes that are page cache of its processes, or could be, of this many.
    pub fn cache(&self, memory: u64) -> Option<u64> {
        let directory = self.directories.first()?;
        let is_unified = Path::new(ROOT).join(UNIFIED).exists();
        let names = &MEMORY[usize::from(is_unified)];
        let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
        let usage: u64 = read(names.usage)?.trim().parse().ok()?;
        let stat = read("memory.stat")?;
        let of = |name| {
            let value = stat.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().parse::<u64>().ok()
        };
        // Files in memory are in the page cache and cannot leave it.
        let files = of(names.cache)?.saturating_sub(of("shmem ").unwrap_or(0));
        Some(memory.saturating_sub(usage.saturating_sub(files)))
    }

    /// Takes this many bytes of its memory for good, as a guest's kernel and programs do. They are given back
    /// when the file that is returned is closed.
    pub fn hold(&self, bytes: u64) -> anyhow::Result<File> {
        let held = rustix::fs::memfd_create("futae-held", MemfdFlags::CLOEXEC)?;
        let held = File::from(held);
        let mut fill = Command::new("head");
        fill.args(["-c", &bytes.to_string(), "/dev/zero"]);
        let mut fill = self.run(&fill);
        let filled = fill.stdin(Stdio::null()).stdout(held.try_clone()?).status();
        let filled = filled.context("head cannot be started")?;
        anyhow::ensure!(filled.success(), "head, which takes memory: {filled}");
        Ok(held)
    }

    fn processes(&self) -> impl Iterator<Item = PathBuf> {
        self.directories
            .iter()
            .map(|directory| directory.join("cgroup.procs"))
    }

    /// Takes in a process, whose memory counts from now on.
    pub fn add(&self, process: u32) -> anyhow::Result<()> {
        for path in self.processes() {
            fs::write(&path, process.to_string()).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// A command that runs in the group from its first moment on.
    pub fn run(&self, command: &Command) -> Command {
        let paths = self.processes().map(|path| format!("'{}'", path.display()));
        let enter = paths.map(|path| format!("echo $$ >{path} && "));
        let script = format!("{}exec \"$@\"", enter.collect::<String>());
        let mut within = Command::new("sh");
        within
            .args(["-c", &script, "sh"])
            .arg(command.get_program());
        within.args(command.get_args());
        within
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(follower) = self.follower.take() {
            let _ = follower.join();
        }
        for directory in &self.directories {
            for _ in 0..LOOKS {
                if fs::remove_dir(directory).is_ok() {
                    break;
                }
                std::thread::sleep(LOOK_INTERVAL);
            }
        }
    }
}
