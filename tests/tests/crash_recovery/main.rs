//! A loss of power below file systems and a database: what the disk could then hold is rebuilt at many moments, and is mounted, checked and
//! read.
//!
//! The disk is a recording in this process, shown as a file. `futae mount` caches it, as an image, as a volume of `futae serve`, or as the
//! disk of a file system of which it mounts a tree. The file system gets its disk from the mounted file by a loop device.
//!
//! `FUTAE_CRASH_STATES` says how many states of each case are judged.

mod postgres;
mod programs;
mod recorder;

use futae_policy::Prng;
use futae_testkit::unmount::unmount;
use futae_testkit::wait::eventually;
use futae_tests::stage::{Stage, is_mountpoint};
use futae_tests::tools::{Need, has, has_fuse, has_root, run, skip, text};
use futae_tests::tree::Tree;
use futae_tests::{BUSY, LATE};
use programs::{Load, Promised, SQLITE};
use recorder::{CrashStates, Moment, Recorder};
use std::fs;
use std::io::{Write, stderr};
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

/// The least that XFS takes is 300 MiB.
const DISK_BYTES: u64 = 320 << 20;
const CACHE: [&str; 2] = ["--cache", "4MiB"];
const STATES: u64 = 16;
/// Each of these is a start of a server.
const POSTGRES_STATES: u64 = 8;

/// What the recorded disk is to futae.
#[derive(Clone, Copy)]
enum Below {
    Image,
    Served,
    Tree,
}

/// A mounted file system, on a loop device of its own that goes with it.
struct Mounted {
    at: PathBuf,
    image: PathBuf,
}

impl Mounted {
    fn new(image: &Path, at: &Path, options: &str) -> Self {
        fs::create_dir_all(at).expect("a directory");
        let options = format!("loop,{options}");
        run("mount", &["-o", &options, text(image), text(at)]);
        Self {
            at: at.to_owned(),
            image: image.to_owned(),
        }
    }

    fn unmount(self) {
        unmount(&self.at);
        // A namespace that another test just made has a copy of the mount, and its log is open until that goes.
        eventually("the loop device is gone", || {
            let loops = run("losetup", &["--associated", text(&self.image)]);
            loops.stdout.is_empty()
        });
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if is_mountpoint(&self.at) {
            let _ = Command::new("umount").args(["-l", text(&self.at)]).output();
        }
    }
}

/// Lets a program of another user through.
fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("its mode");
}

fn make(kind: &str, image: &Path) {
    let force = if kind == "ext4" { "-F" } else { "-f" };
    run(&format!("mkfs.{kind}"), &["-q", force, text(image)]);
}

/// Options with which a file system sends no trims, which are undefined afterwards.
fn options(kind: &str) -> &'static str {
    match kind {
        "btrfs" => "nodiscard",
        _ => "rw",
    }
}

fn check(kind: &str, image: &Path) {
    match kind {
        "ext4" => run("e2fsck", &["-f", "-n", text(image)]),
        "xfs" => run("xfs_repair", &["-n", text(image)]),
        _ => run("btrfs", &["check", "--readonly", text(image)]),
    };
}

/// Works on a file system over the disk; what was promised, and in which directory of it.
fn play(
    disk: &mut Recorder,
    load: &Load,
    (kind, below): (&str, Below),
    words: &[&str],
) -> (Promised, &'static str) {
    let mut stage = Stage::bare();
    stage.image = disk.path();
    open_to_all(&stage.path(""));
    let inner = stage.path("inner");
    let words = [&CACHE[..], words].concat();
    let image = match below {
        Below::Image => {
            stage.mount_image(&words);
            stage.file()
        }
        Below::Served => {
            stage.serve(&CACHE);
            stage.mount(&words);
            stage.file()
        }
        Below::Tree => disk.path(),
    };
    make(kind, &image);
    let mounted = Mounted::new(&image, &inner, options(kind));
    let (promised, place) = if matches!(below, Below::Tree) {
        let mut tree = Tree::new();
        tree.source = inner.join("tree");
        fs::create_dir(&tree.source).expect("a directory");
        tree.mount(&[&words[..], &["--residency", "futae"]].concat());
        let promised = (load.work)(&tree.mountpoint, disk);
        tree.stop();
        (promised, "tree")
    } else {
        ((load.work)(&inner, disk), "")
    };
    mounted.unmount();
    match below {
        Below::Image => drop(stage.stop_mount()),
        Below::Served => {
            stage.stop_mount();
            stage.stop_serve();
        }
        Below::Tree => {}
    }
    disk.unmount();
    (promised, place)
}

fn can(kind: &str) -> bool {
    let tools = ["losetup", "mount", "umount", "python3", "cp"];
    let its: &[&str] = match kind {
        "ext4" => &["mkfs.ext4", "e2fsck"],
        "xfs" => &["mkfs.xfs", "xfs_repair"],
        _ => &["mkfs.btrfs", "btrfs"],
    };
    if !has_fuse() || !has_root() || !tools.iter().chain(its).all(|tool| has(tool)) {
        return false;
    }
    let known = fs::read_to_string("/proc/filesystems").expect("the file systems");
    let is_known = known.lines().any(|line| line.trim_start() == kind);
    let is_module = || {
        let found = Command::new("modprobe").arg(kind).output();
        found.is_ok_and(|output| output.status.success())
    };
    if !is_known && !is_module() {
        skip(Need::Tools, &format!("this kernel has no {kind}"));
        return false;
    }
    true
}

/// A case that has been played.
struct Case {
    load: &'static Load,
    kind: &'static str,
    disk: Recorder,
    promised: Promised,
    /// In which directory of the file system.
    directory: &'static str,
    place: TempDir,
    /// How many states were judged.
    judged: AtomicU64,
}

impl Case {
    fn play(load: &'static Load, kind: &'static str, below: Below, words: &[&str]) -> Option<Self> {
        if !can(kind) {
            return None;
        }
        let place = tempfile::tempdir().expect("a directory");
        open_to_all(place.path());
        let mountpoint = place.path().join("disk");
        fs::create_dir(&mountpoint).expect("a directory");
        let mut disk = Recorder::start(DISK_BYTES, &mountpoint);
        let (promised, directory) = play(&mut disk, load, (kind, below), words);
        Some(Self {
            load,
            kind,
            disk,
            promised,
            directory,
            place,
            judged: AtomicU64::new(0),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// One state: mounted, read and checked. How many writes could be lost, and were.
    fn judge(&self, states: &mut CrashStates<'_>, then: Moment, prng: &mut Prng) -> (usize, usize) {
        // A new name for each: a loop device that somebody still holds open keeps the state before in its cache, and mount(8) would
        // use it again for a file of the same name.
        let image = self.path(&format!(
            "state-{}.img",
            self.judged.fetch_add(1, Ordering::Relaxed)
        ));
        let counts = states.write(then, prng, &image);
        let mounted = Mounted::new(&image, &self.path("inner"), options(self.kind));
        (self.load.judge)(&mounted.at.join(self.directory), &self.promised, then);
        mounted.unmount();
        check(self.kind, &image);
        fs::remove_file(&image).expect("removed");
        counts
    }
}

fn survives(kind: &'static str, below: Below, words: &[&str]) {
    every_state(&SQLITE, STATES, kind, below, words);
}

/// Works, and judges states.
fn every_state(load: &'static Load, states: u64, kind: &'static str, below: Below, words: &[&str]) {
    let Some(case) = Case::play(load, kind, below, words) else {
        return;
    };
    let promised = &case.promised;
    let asked = std::env::var("FUTAE_CRASH_STATES").ok();
    let states = asked.map_or(states, |text| text.parse().expect("a number"));
    let mut prng = Prng::new(7);
    let transactions = &promised.transactions;
    let (first, last) = (transactions[0], transactions[transactions.len() - 1]);
    // Every other one soon after something was promised, when little more has been done for it.
    let mut moment = |number: u64| match number % 2 {
        0 => transactions[prng.below(transactions.len() as u64) as usize] + prng.below(8),
        _ => first + prng.below(last - first),
    };
    let mut moments: Vec<Moment> = (0..states).map(&mut moment).collect();
    moments.sort_unstable();
    let mut crash_states = CrashStates::new(&case.disk, case.path("base.img"));
    let (mut open, mut lost) = (0, 0);
    for then in moments {
        let (could, did) = case.judge(&mut crash_states, then, &mut prng);
        (open, lost) = (open + could, lost + did);
    }
    let (writes, flushes) = case.disk.counts();
    let _ = writeln!(
        stderr(),
        "{states} states of {writes} writes and {flushes} flushes; of {open} writes that could be lost, {lost} were"
    );
    assert!(lost > 0, "no state lost anything");
}

/// So the judge is no yes-man.
#[test]
fn a_disk_that_ignores_flushes_is_found() {
    let Some(case) = Case::play(&SQLITE, "ext4", Below::Image, &[]) else {
        return;
    };
    let transactions = &case.promised.transactions;
    let (first, last) = (transactions[0], transactions[transactions.len() - 1]);
    let states = CrashStates::new(&case.disk, case.path("base.img"));
    let mut states = states.lying_from(first);
    let mut prng = Prng::new(7);
    let judged = catch_unwind(AssertUnwindSafe(|| {
        case.judge(&mut states, last, &mut prng)
    }));
    assert!(judged.is_err(), "nothing is missing");
}

#[test]
fn ext4_over_an_image() {
    survives("ext4", Below::Image, &[]);
}

#[test]
fn ext4_over_an_image_that_is_written_back_as_late_as_can_be() {
    survives("ext4", Below::Image, &LATE);
}

#[test]
fn ext4_over_a_server_and_a_mount_that_writes_back() {
    survives("ext4", Below::Served, &BUSY);
}

#[test]
fn postgresql_on_ext4_over_an_image_that_is_written_back() {
    if postgres::is_here() {
        let load = &postgres::POSTGRES;
        every_state(load, POSTGRES_STATES, "ext4", Below::Image, &BUSY);
    }
}

#[test]
fn xfs_over_an_image_that_is_written_back() {
    survives("xfs", Below::Image, &BUSY);
}

#[test]
fn btrfs_over_an_image_that_is_written_back() {
    survives("btrfs", Below::Image, &BUSY);
}

#[test]
fn a_tree_on_ext4() {
    survives("ext4", Below::Tree, &[]);
}

#[test]
fn a_tree_on_ext4_that_is_written_back() {
    survives("ext4", Below::Tree, &LATE);
}
