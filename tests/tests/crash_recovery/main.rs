//! A loss of power below file systems and a database: what the disk could then hold is rebuilt at many moments, and is mounted, checked and
//! read.
//!
//! The disk is a recording in this process, shown as a file. `futae mount` caches it, as an image, as a volume of `futae serve`, or as the
//! disk of a file system of which it mounts a tree. The file system gets its disk from the mounted file by a loop device.
//!
//! `FUTAE_CRASH_STATES` says how many states of each case are judged.

mod recorder;

use futae_policy::Prng;
use futae_tests::direct::{Buffer, Direct};
use futae_tests::stage::{Stage, is_mountpoint};
use futae_tests::tools::{Need, has, has_fuse, has_root, run, skip, text};
use futae_tests::tree::Tree;
use futae_tests::{BLOCK, BUSY, LATE};
use recorder::{CrashStates, Moment, Recorder};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write, stderr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use tempfile::TempDir;

/// The least that XFS takes is 300 MiB.
const DISK_BYTES: u64 = 320 << 20;
const CACHE: [&str; 2] = ["--cache", "4MiB"];
/// Transactions, and files beside them.
const TRANSACTIONS: u64 = 120;
const FILES: u64 = 60;
/// In blocks of 4 KiB, a file that is written over and over.
const SCRIBBLE_BLOCKS: u64 = 1024;
/// Writes of two blocks of it after each transaction.
const SCRIBBLES: u64 = 4;
const STATES: u64 = 16;
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/database.py");

/// What the recorded disk is to futae.
#[derive(Clone, Copy)]
enum Below {
    Image,
    Served,
    Tree,
}

/// A mounted file system, on a loop device of its own that goes with it.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, at: &Path, options: &str) -> Self {
        fs::create_dir_all(at).expect("a directory");
        let options = format!("loop,{options}");
        run("mount", &["-o", &options, text(image), text(at)]);
        Self(at.to_owned())
    }

    fn unmount(self) {
        run("umount", &[text(&self.0)]);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if is_mountpoint(&self.0) {
            let _ = Command::new("umount").args(["-l", text(&self.0)]).output();
        }
    }
}

/// Ends a program that a test leaves behind.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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

fn content(number: u64) -> Vec<u8> {
    let length = 500 + number * 977 % 20_000;
    (0..length)
        .map(|at| ((at / 5) ^ (number * 37)) as u8)
        .collect()
}

/// What programs have been told to be stored, and when.
#[derive(Default)]
struct Promised {
    transactions: Vec<Moment>,
    files: Vec<Moment>,
}

/// A file that is written past the page cache and never flushed.
struct Scribble {
    file: Direct,
    prng: Prng,
}

impl Scribble {
    fn new(directory: &Path) -> Self {
        let path = directory.join("scribble");
        fs::write(&path, vec![0; SCRIBBLE_BLOCKS as usize * BLOCK]).expect("written");
        let (file, prng) = (Direct::open(&path).expect("a file"), Prng::new(3));
        Self { file, prng }
    }

    fn write(&mut self) {
        for _ in 0..SCRIBBLES {
            let mut buffer = Buffer::new(2 * BLOCK);
            let at = self.prng.below(SCRIBBLE_BLOCKS - 1);
            buffer.get_mut().fill(at as u8);
            let written = self.file.write(at * BLOCK as u64, &buffer);
            written.expect("written");
        }
    }
}

/// A database, files, and what nobody is promised, written at the same time.
fn work(directory: &Path, disk: &Recorder) -> Promised {
    let database = directory.join("database");
    let mut writer = Command::new("python3");
    writer.args([PROGRAM, "write", text(&database), "0"]);
    writer.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut writer = Ending(writer.spawn().expect("python3 starts"));
    let lines = BufReader::new(writer.0.stdout.take().expect("piped")).lines();
    let mut scribble = Scribble::new(directory);
    thread::scope(|scope| {
        let files = scope.spawn(|| {
            let one = |number| {
                let path = directory.join(format!("file{number}"));
                let mut file = File::create(path).expect("a file");
                file.write_all(&content(number)).expect("written");
                file.sync_all().expect("stored");
                File::open(directory)
                    .and_then(|directory| directory.sync_all())
                    .expect("stored");
                disk.now()
            };
            (0..FILES).map(one).collect()
        });
        let mut transactions = Vec::new();
        for (number, line) in (0..TRANSACTIONS).zip(lines) {
            assert_eq!(line.expect("a line"), number.to_string());
            transactions.push(disk.now());
            scribble.write();
        }
        drop(writer);
        let files = files.join().expect("all files");
        Promised {
            transactions,
            files,
        }
    })
}

/// What was promised by then is there.
fn judge(directory: &Path, promised: &Promised, then: Moment) {
    let count = |all: &[Moment]| all.iter().filter(|&&at| at <= then).count() as u64;
    for number in 0..count(&promised.files) {
        let found = fs::read(directory.join(format!("file{number}")));
        let found = found.unwrap_or_else(|error| panic!("file {number} was stored: {error}"));
        assert!(found == content(number), "file {number} differs");
    }
    let database = directory.join("database");
    let checked = run("python3", &[PROGRAM, "check", text(&database)]).stdout;
    let checked = String::from_utf8_lossy(&checked).into_owned();
    let mut said = checked.lines();
    assert_eq!(said.next(), Some("ok"), "{checked}");
    let row: Vec<u64> = said
        .next()
        .expect("a row")
        .split(' ')
        .map(|word| word.parse().expect("a number"))
        .collect();
    let stored = count(&promised.transactions);
    assert!(
        row[1] >= stored,
        "{stored} transactions were stored: {checked}"
    );
    assert_eq!(row[1], row[2] + 1, "a row is missing: {checked}");
}

/// Works on a file system over the disk; what was promised, and in which directory of it.
fn play(disk: &mut Recorder, kind: &str, below: Below, words: &[&str]) -> (Promised, &'static str) {
    let mut stage = Stage::bare();
    stage.image = disk.path();
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
        let promised = work(&tree.mountpoint, disk);
        tree.stop();
        (promised, "tree")
    } else {
        (work(&inner, disk), "")
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
    kind: &'static str,
    disk: Recorder,
    promised: Promised,
    /// In which directory of the file system.
    directory: &'static str,
    place: TempDir,
}

impl Case {
    fn play(kind: &'static str, below: Below, words: &[&str]) -> Option<Self> {
        if !can(kind) {
            return None;
        }
        let place = tempfile::tempdir().expect("a directory");
        let mountpoint = place.path().join("disk");
        fs::create_dir(&mountpoint).expect("a directory");
        let mut disk = Recorder::start(DISK_BYTES, &mountpoint);
        let (promised, directory) = play(&mut disk, kind, below, words);
        Some(Self {
            kind,
            disk,
            promised,
            directory,
            place,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// One state: mounted, read and checked. How many writes could be lost, and were.
    fn judge(&self, states: &mut CrashStates<'_>, then: Moment, prng: &mut Prng) -> (usize, usize) {
        let image = self.path("state.img");
        let counts = states.write(then, prng, &image);
        let mounted = Mounted::new(&image, &self.path("inner"), options(self.kind));
        judge(&mounted.0.join(self.directory), &self.promised, then);
        mounted.unmount();
        check(self.kind, &image);
        counts
    }
}

/// Works, and judges states.
fn survives(kind: &'static str, below: Below, words: &[&str]) {
    let Some(case) = Case::play(kind, below, words) else {
        return;
    };
    let promised = &case.promised;
    let states = std::env::var("FUTAE_CRASH_STATES").ok();
    let states = states.map_or(STATES, |text| text.parse().expect("a number"));
    let mut prng = Prng::new(7);
    let first = promised.transactions[0];
    let last = promised.transactions[TRANSACTIONS as usize - 1];
    // Every other one soon after something was promised, when little more has been done for it.
    let mut moment = |number: u64| match number % 2 {
        0 => promised.transactions[prng.below(TRANSACTIONS) as usize] + prng.below(8),
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
    let Some(case) = Case::play("ext4", Below::Image, &[]) else {
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
