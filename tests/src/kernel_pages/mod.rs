//! What the tests of `--residency kernel` share: the streams that are held against the simulator, and counts of pages that have to
//! agree.

pub mod tree;

use crate::BLOCK;
use crate::predict::{one_level_hierarchy, requests};
use crate::tools::{Need, has_fuse, has_root, run, skip, text};
use crate::tree::RESIDENCY;
use futae_policy::AccessKind;
use futae_testkit::stamp::Stamp;
use futae_testkit::wait::{PATIENCE, within};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Blocks of what is read, and of the cache.
pub const BLOCKS: u64 = 4096;
/// Slots of the cache.
pub const SLOTS: u32 = 1000;
const READS: usize = 20_000;

/// Without these a mount is the ordinary one, and says so.
#[must_use]
pub fn can_run() -> bool {
    if !has_fuse() || !has_root() {
        return false;
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let is_new = version >= (6, 12);
    if !is_new {
        skip(
            Need::Ebpf,
            "the page cache's tracepoints came with Linux 6.12",
        );
    }
    is_new
}

/// Runs tests of the program that calls once more, the pages of their trees held by the kernel: those whose names contain one of
/// `names`.
///
/// # Panics
///
/// If one of them fails, or none has run.
pub fn again(names: &[&str]) {
    if !can_run() {
        return;
    }
    let program = std::env::current_exe().expect("the test's own program");
    let mut again = Command::new(program);
    again.args(names).args([
        "--skip",
        "held_by_the_kernel",
        "--skip",
        "by_ring",
        "--nocapture",
    ]);
    let output = again.env(RESIDENCY, "kernel").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let ran = said.matches("... ok").count() + said.matches("\nok").count();
    assert!(output.status.success(), "{said}\n{errors}");
    assert!(ran >= names.len(), "none has run:\n{said}");
}

/// A count of a status.
///
/// # Panics
///
/// If it is not there.
#[must_use]
pub fn number(value: &Value, name: &str) -> u64 {
    value[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {value}"))
}

/// Pages of a file that are in the page cache, as the kernel itself counts them (cachestat or mincore).
///
/// # Panics
///
/// If the kernel does not tell.
#[must_use]
pub fn pages_of(path: &Path) -> u64 {
    pages_of_all(&[path.to_owned()])
}

/// The same of several files, at one moment nearly.
///
/// # Panics
///
/// If the kernel does not tell.
#[must_use]
pub fn pages_of_all(files: &[PathBuf]) -> u64 {
    let files = files.iter().map(|file| text(file));
    let options = ["--noheadings", "--output", "PAGES"];
    let words: Vec<&str> = options.into_iter().chain(files).collect();
    let said = String::from_utf8(run("fincore", &words).stdout).expect("text");
    let pages = said.split_whitespace().map(str::parse::<u64>);
    pages.map(|pages| pages.expect("a number of pages")).sum()
}

/// Waits until the cache, the programs in the kernel and the kernel itself count the same pages of these files, of which
/// `status` tells; how many.
///
/// # Panics
///
/// If they do not come to agree.
pub fn audit(files: &[PathBuf], status: impl Fn() -> Value) -> u64 {
    let agree = || {
        let status = status();
        let counts = (
            number(&status, "resident_blocks"),
            number(&status["kernel"], "pages"),
            pages_of_all(files),
        );
        let waits = number(&status["kernel"], "waiting");
        if waits == 0 && counts.0 == counts.1 && counts.1 == counts.2 {
            Ok(counts.0)
        } else {
            Err(format!("{counts:?} {waits}"))
        }
    };
    within(PATIENCE, agree).expect("all count the same")
}

/// Reads a block of a file; it is that of the stamp.
///
/// # Panics
///
/// If it is not.
pub fn check(file: &File, at: u64, stamp: Stamp) {
    let mut bytes = vec![0; BLOCK];
    file.read_exact_at(&mut bytes, at * BLOCK as u64)
        .expect("a read");
    assert_eq!(Stamp::read(&bytes), Some(stamp), "block {at}");
}

/// Misses of the simulator.
#[must_use]
pub fn simulated(policy: &str, reads: &[u64]) -> u64 {
    let mut hierarchy = one_level_hierarchy(policy, SLOTS, BLOCKS);
    for &block in reads {
        hierarchy.access(0, block, AccessKind::Read);
    }
    hierarchy.counters(0, 0).misses
}

/// The streams on which hits are held against the simulator, by name: reads of [`BLOCKS`] blocks.
#[must_use]
pub fn stream(name: &str) -> Vec<u64> {
    let drawn = |workload: &str| -> Vec<u64> {
        let requests = requests(workload, 5, READS);
        requests.iter().map(|request| request.block()).collect()
    };
    match name {
        "zipf 0.8" => drawn(&format!("zipf(0.8):{BLOCKS}blocks")),
        "zipf 1.1" => drawn(&format!("zipf(1.1):{BLOCKS}blocks")),
        "loop with scan" => loop_with_scan(),
        "normal with shift" => shifted(&drawn(&format!("normal(0.1):{BLOCKS}blocks"))),
        other => panic!("no stream is called {other}"),
    }
}

/// A loop over two thirds of the cache, with a scan of all that is beyond it in between.
fn loop_with_scan() -> Vec<u64> {
    let slots = u64::from(SLOTS);
    let (looped, mut scanned) = (slots * 2 / 3, slots);
    let mut reads = Vec::new();
    for at in (0..looped).cycle().take(READS * 4 / 5) {
        reads.push(at);
        if at % 4 == 0 {
            reads.push(scanned);
            scanned = if scanned + 1 == BLOCKS {
                slots
            } else {
                scanned + 1
            };
        }
    }
    reads
}

/// The same with its middle a third of all blocks further at each third of the time.
fn shifted(reads: &[u64]) -> Vec<u64> {
    let shift = |at: usize| (at * 3 / reads.len()) as u64 * BLOCKS / 3;
    let places = reads.iter().enumerate();
    places
        .map(|(at, block)| (block + shift(at)) % BLOCKS)
        .collect()
}

/// Waits until no page waits to be given up. On a busy machine the thread that does it may come late, and pages that wait are hit.
///
/// # Panics
///
/// If that does not come.
pub fn settle(status: impl Fn() -> Value) {
    let waits = || {
        let kernel = status()["kernel"].clone();
        (number(&kernel, "waiting") == 0)
            .then_some(())
            .ok_or(kernel)
    };
    within(PATIENCE, waits).expect("all are given up");
}

/// After this many reads of a stream, [`settle`].
pub const SETTLED_EVERY: usize = 50;

/// Holds what a run of `reads` came to against the simulator: the policy has heard of as many misses, and as many blocks came from
/// the store, within a point; and every read was counted.
///
/// # Panics
///
/// If not.
pub fn assert_as_simulated(name: &str, policy: &str, reads: &[u64], status: &Value) {
    let ratio = |misses: u64| 100.0 * (1.0 - misses as f64 / reads.len() as f64);
    let expected = ratio(simulated(policy, reads));
    let decided = ratio(number(status, "misses"));
    // What a policy asks for by itself may be read for it, or be on its way.
    let unasked = number(status, "preload_reads");
    let blocks = number(status, "store_read_blocks");
    let least = blocks.saturating_sub(unasked);
    let read = ratio(number(status, "misses").clamp(least, blocks));
    println!(
        "{name}, {policy}: simulated {expected:.2} %, decided {decided:.2} %, from the page cache {read:.2} %"
    );
    assert!((decided - expected).abs() < 1.0 && (read - expected).abs() < 1.0);
    let requests = number(status, "requests");
    assert!(
        requests.abs_diff(reads.len() as u64) < reads.len() as u64 / 100,
        "{requests}"
    );
}

/// A control group whose memory has a limit, gone at the end; its processes have to be gone first.
pub struct Pressure(PathBuf);

impl Pressure {
    /// A group that may have this many bytes, page cache and all; says why if there can be none.
    #[must_use]
    pub fn new(bytes: u64) -> Option<Self> {
        let places = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        for (root, limit) in places {
            let path = Path::new(root).join(format!("futae-pages-{}", std::process::id()));
            if fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Self(path);
            if fs::write(group.0.join(limit), bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        skip(Need::Cgroup, "no memory cgroup can be made here");
        None
    }

    /// Runs a command in the group; it has to end well.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn run(&self, words: &[&str]) {
        let enter = "echo $$ > \"$0\" && exec \"$@\"";
        let mut within = Command::new("sh");
        within.args(["-c", enter]).arg(self.0.join("cgroup.procs"));
        let ended = within.args(words).output().expect("sh starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{words:?}: {said}");
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        // It may take a moment until the kernel has seen the last process go.
        if let Err(error) = within(PATIENCE, || fs::remove_dir(&self.0)) {
            eprintln!("left behind: {}: {error}", self.0.display());
        }
    }
}
