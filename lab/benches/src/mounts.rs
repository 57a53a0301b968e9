//! The same file by several ways, all of it cached: as it is, through futae's mounts, and through
//! libfuse's example of a file system that passes everything on.

use crate::pattern;
use crate::process::{Nursery, Running};
use anyhow::{Context, bail, ensure};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// What is read by each thread.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The heading of its column.
    pub name: &'static str,
    /// Bytes of a read.
    pub bytes: usize,
    /// Whether reads follow each other, and not go anywhere.
    pub in_order: bool,
    /// Threads, each with a descriptor of its own.
    pub threads: u64,
}

/// What is measured.
pub const LOADS: [Load; 4] = [
    Load {
        name: "4 KiB random, 1 thread",
        bytes: PAGE,
        in_order: false,
        threads: 1,
    },
    Load {
        name: "4 KiB random, 2 threads",
        bytes: PAGE,
        in_order: false,
        threads: 2,
    },
    Load {
        name: "1 MiB sequential, 1 thread",
        bytes: MIB,
        in_order: true,
        threads: 1,
    },
    Load {
        name: "1 MiB sequential, 2 threads",
        bytes: MIB,
        in_order: true,
        threads: 2,
    },
];

/// A way to the file.
pub struct Way {
    /// What it is called.
    pub name: String,
    /// Where the file is.
    pub path: PathBuf,
    /// Who shows it there; kept running.
    pub shown_by: Option<Running>,
}

/// What came of one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Reads a second, of all threads together.
    pub per_second: f64,
    /// Processor time of the process that shows the file, in seconds for a read.
    pub cpu_seconds: f64,
}

/// Makes the file.
pub fn make(path: &Path, bytes: u64) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let mut piece = vec![0; MIB];
    for offset in (0..bytes).step_by(MIB) {
        pattern::fill(offset, &mut piece);
        file.write_all_at(&piece, offset)?;
    }
    Ok(file.sync_all()?)
}

/// Runs a command that mounts something, and waits until `path` is there.
pub fn mount(
    nursery: &Nursery,
    name: &str,
    command: &mut Command,
    path: PathBuf,
) -> anyhow::Result<Way> {
    let mountpoint = path.parent().context("a path in a mount")?;
    fs::create_dir_all(mountpoint)?;
    let log = mountpoint.with_extension("log");
    let running = nursery.start_until(command, &log, &|| path.exists())?;
    Ok(Way {
        name: name.to_owned(),
        path,
        shown_by: Some(running),
    })
}

/// Reads it from end to end twice, and checks every byte: then it is cached.
pub fn warm_up(way: &Way, bytes: u64) -> anyhow::Result<()> {
    let file = File::open(&way.path).with_context(|| way.path.display().to_string())?;
    let mut buffer = Buffer::new(MIB);
    for offset in (0..bytes).step_by(MIB).chain((0..bytes).step_by(MIB)) {
        file.read_exact_at(buffer.bytes(), offset)?;
        let (name, is_right) = (&way.name, pattern::matches(offset, buffer.bytes()));
        ensure!(is_right, "{name}: wrong bytes at {offset}");
    }
    Ok(())
}

/// Reads for a time.
pub fn measure(
    way: &Way,
    load: &Load,
    bytes: u64,
    time: Duration,
    seed: u64,
) -> anyhow::Result<Sample> {
    let is_over = AtomicBool::new(false);
    let cpu = || way.shown_by.as_ref().map_or(0.0, Running::cpu_seconds);
    let before = cpu();
    let places = bytes / load.bytes as u64;
    let reader = |thread: u64| -> anyhow::Result<(u64, f64)> {
        let file = File::open(&way.path)?;
        let mut buffer = Buffer::new(load.bytes);
        // Each thread begins elsewhere.
        let mut place = places / load.threads * thread;
        let mut dice = seed ^ (thread + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (mut reads, begun) = (0u64, Instant::now());
        // Once at least, also where a busy machine lets the thread begin too late.
        while reads == 0 || !is_over.load(Ordering::Relaxed) {
            place = if load.in_order {
                (place + 1) % places
            } else {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (dice >> 33) % places
            };
            file.read_exact_at(buffer.bytes(), place * load.bytes as u64)?;
            reads += 1;
        }
        Ok((reads, reads as f64 / begun.elapsed().as_secs_f64()))
    };
    thread::scope(|scope| {
        let reader = &reader;
        let threads: Vec<_> = (0..load.threads)
            .map(|thread| scope.spawn(move || reader(thread)))
            .collect();
        thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        let (mut reads, mut per_second) = (0, 0.0);
        for thread in threads {
            match thread.join() {
                Ok(one) => {
                    let one = one?;
                    reads += one.0;
                    per_second += one.1;
                }
                Err(_) => bail!("a reader of {} has broken down", way.path.display()),
            }
        }
        Ok(Sample {
            per_second,
            cpu_seconds: (cpu() - before) / reads as f64,
        })
    })
}

/// Memory that begins at a page: else a read of a MiB touches one page more than the kernel puts
/// into one FUSE request.
struct Buffer {
    memory: Vec<u8>,
    length: usize,
}

impl Buffer {
    fn new(length: usize) -> Self {
        let memory = vec![0; length + PAGE];
        Self { memory, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        let skipped = self.memory.as_ptr().align_offset(PAGE);
        &mut self.memory[skipped..skipped + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_file_is_measured_and_a_wrong_one_is_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let bytes = 4 * MIB as u64;
        make(&path, bytes).expect("made");
        let way = Way {
            name: "plain".to_owned(),
            path,
            shown_by: None,
        };
        warm_up(&way, bytes).expect("right");
        for load in &LOADS {
            let time = Duration::from_millis(20);
            let speed = measure(&way, load, bytes, time, 1).expect("a speed");
            assert!(speed.per_second > 0.0, "{}", load.name);
            assert_eq!(speed.cpu_seconds, 0.0, "nobody shows it");
        }
        let file = File::options().write(true).open(&way.path).expect("opened");
        file.write_all_at(b"x", bytes / 2).expect("written");
        assert!(warm_up(&way, bytes).is_err());
    }
}
