//! The mounted file as a disk: a file system on a loop device over it, and a mount that is killed.

use futae_testkit::unmount::unmount;
use futae_tests::programs::{Database, exercise};
use futae_tests::rings;
use futae_tests::stage::{Stage, is_mountpoint};
use futae_tests::tools::Need;
use futae_tests::tools::{has, has_fuse, has_root, run, skip, text};
use futae_tests::{BUSY, LATE, cached};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const IMAGE: u64 = 96 << 20;
const FILES: u64 = 24;

/// A loop device over the mounted file and a mount of what is on it, both given back at the end.
struct Disk {
    device: String,
    inner: PathBuf,
}

impl Disk {
    /// None, and it says why, where there are no loop devices.
    fn attach(stage: &Stage, direct: &str) -> Option<Self> {
        let direct = format!("--direct-io={direct}");
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", &direct, text(&stage.file())]);
        let attached = losetup.output().expect("losetup starts");
        if !attached.status.success() {
            let why = String::from_utf8_lossy(&attached.stderr);
            skip(Need::Loop, &format!("no loop devices here: {}", why.trim()));
            return None;
        }
        let device = String::from_utf8_lossy(&attached.stdout).trim().to_owned();
        let inner = stage.path("inner");
        fs::create_dir_all(&inner).expect("a directory");
        Some(Self { device, inner })
    }

    fn mount(&self) {
        run("mount", &[&self.device, text(&self.inner)]);
    }

    fn unmount(&self) {
        unmount(&self.inner);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if is_mountpoint(&self.inner) {
            // What it says is of a disk that is gone.
            let _ = Command::new("umount")
                .args(["-l", text(&self.inner)])
                .output();
        }
        let _ = Command::new("losetup")
            .args(["--detach", &self.device])
            .output();
    }
}

/// What file `number` holds.
fn content(number: u64) -> Vec<u8> {
    let length = 1000 + number * 37_000;
    (0..length)
        .map(|at| ((at / 7) ^ (at >> 9) ^ (number * 31)) as u8)
        .collect()
}

fn write(directory: &Path, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let path = directory.join(format!("file{number}"));
        let mut file = File::create(path).expect("a file");
        file.write_all(&content(number)).expect("written");
    }
}

fn check(directory: &Path) {
    for number in 0..FILES {
        let found = fs::read(directory.join(format!("file{number}"))).expect("a file");
        assert!(found == content(number), "file {number} differs");
    }
}

fn survives(kind: &str, direct: &str, words: &[&str]) {
    let tools = ["losetup", "mkfs.ext4", "mkfs.ext2", "umount"];
    if !has_fuse() || !has_root() || !tools.iter().all(|tool| has(tool)) {
        return;
    }
    let mut stage = Stage::bare();
    let image = File::create(&stage.image).expect("the image");
    image.set_len(IMAGE).expect("its size");
    stage.mount_image(words);
    let Some(disk) = Disk::attach(&stage, direct) else {
        return;
    };
    run(&format!("mkfs.{kind}"), &["-q", "-F", &disk.device]);
    disk.mount();
    write(&disk.inner, 0..FILES);
    run("sync", &["-f", text(&disk.inner)]);
    check(&disk.inner);
    // What comes now is promised to nobody. Without a journal, a file system that is killed in the
    // middle of a change is not whole on any disk.
    if kind == "ext4" {
        write(&disk.inner, FILES..2 * FILES);
    }
    stage.kill_mount();
    drop(disk);
    stage.mount_image(words);
    let Some(disk) = Disk::attach(&stage, direct) else {
        return;
    };
    if kind == "ext4" {
        // Mounting replays the journal.
        disk.mount();
        disk.unmount();
    }
    run("e2fsck", &["-f", "-n", &disk.device]);
    disk.mount();
    check(&disk.inner);
    write(&disk.inner, FILES..FILES + 3);
    disk.unmount();
    run("e2fsck", &["-f", "-n", &disk.device]);
    drop(disk);
    stage.stop_mount();
    // The image by itself, without any cache.
    run("e2fsck", &["-f", "-n", text(&stage.image)]);
}

const HISTORY: [&str; 6] = [
    "--policy",
    "lfu-history(min_gain=0,review=3)",
    "--block",
    "4MiB",
    "--cache",
    "32MiB",
];

#[test]
fn ext4_over_a_history_of_large_blocks() {
    survives("ext4", "off", &HISTORY);
}

#[test]
fn ext4_over_a_history_of_large_blocks_with_direct_io() {
    survives("ext4", "on", &HISTORY);
}

#[test]
fn ext2_over_a_history_of_large_blocks() {
    survives("ext2", "on", &HISTORY);
}

#[test]
fn ext2_over_pinned_blocks() {
    let pinned = [
        "--policy", "const", "--pin", "0-7", "--block", "4MiB", "--cache", "32MiB",
    ];
    survives("ext2", "off", &pinned);
}

#[test]
fn ext4_over_large_blocks_that_come_and_go() {
    survives(
        "ext4",
        "on",
        &["--policy", "lru", "--block", "2MiB", "--cache", "16MiB"],
    );
}

#[test]
fn ext4_over_a_mount_that_writes_back() {
    survives("ext4", "on", &cached("32MiB", &LATE));
}

/// A file system made, mounted and ready, over a mount; none, and it says why, where that cannot be.
fn ext4_over(stage: &mut Stage, words: &[&str]) -> Option<Disk> {
    let tools = ["losetup", "mkfs.ext4", "umount", "python3"];
    if !has_fuse() || !has_root() || !tools.iter().all(|tool| has(tool)) {
        return None;
    }
    let image = File::create(&stage.image).expect("the image");
    image.set_len(IMAGE).expect("its size");
    stage.mount_image(words);
    let disk = Disk::attach(stage, "on")?;
    run("mkfs.ext4", &["-q", "-F", &disk.device]);
    disk.mount();
    Some(disk)
}

/// The mounted file itself, much larger than the cache. Nothing is flushed at the end but by the end.
fn random_operations_on_a_file(cache: &str, words: &[&str], seed: u32) {
    if !has_fuse() || !has("python3") {
        return;
    }
    let mut stage = Stage::new(64);
    stage.mount_image(&cached(cache, words));
    let expected = exercise(&stage.file(), 20_000, seed, true);
    let last = stage.stop_mount();
    let written = last["status"]["write_back_blocks"].as_u64();
    assert!(written > Some(1000), "{last}");
    assert!(fs::read(&stage.image).expect("the image") == expected);
}

#[test]
fn random_operations_with_maps_in_a_small_cache_that_writes_back() {
    random_operations_on_a_file("128KiB", &BUSY, 3);
}

#[test]
fn random_operations_with_maps_in_large_blocks_that_are_written_back() {
    let words = [&LATE[..], &["--block", "16KiB", "--policy", "arc"]].concat();
    random_operations_on_a_file("128KiB", &words, 4);
}

#[test]
fn random_operations_on_ext4_over_a_mount_that_writes_back() {
    let mut stage = Stage::bare();
    // Less than the file, so that dirty blocks have to go.
    let words = cached("128KiB", &LATE);
    let Some(disk) = ext4_over(&mut stage, &words) else {
        return;
    };
    for seed in [5, 6] {
        exercise(&disk.inner.join("file"), 8000, seed, false);
    }
    disk.unmount();
    run("e2fsck", &["-f", "-n", &disk.device]);
    drop(disk);
    stage.stop_mount();
    run("e2fsck", &["-f", "-n", text(&stage.image)]);
}

/// Whatever SQLite has said to be stored is there after the kill, and the database is whole.
fn a_database_survives(words: &[&str]) {
    const ROUNDS: usize = 3;
    let mut stage = Stage::bare();
    let Some(mut disk) = ext4_over(&mut stage, words) else {
        return;
    };
    let mut database = Database::default();
    for _ in 0..ROUNDS {
        let file = disk.inner.join("data.db");
        database.write(&file, || stage.kill_mount());
        drop(disk);
        stage.mount_image(words);
        let Some(again) = Disk::attach(&stage, "on") else {
            return;
        };
        disk = again;
        disk.mount();
        database.check(&file);
    }
    disk.unmount();
    run("e2fsck", &["-f", "-n", &disk.device]);
    drop(disk);
    stage.stop_mount();
}

#[test]
fn a_database_survives_the_kill_of_a_mount_that_writes_back_late() {
    a_database_survives(&cached("32MiB", &LATE));
}

#[test]
fn a_database_survives_the_kill_of_a_mount_that_writes_back_all_the_time() {
    a_database_survives(&cached("2MiB", &BUSY));
}

#[test]
fn some_of_it_by_ring() {
    let random = "random_operations_with_maps_in_a_small_cache";
    rings::again(&["ext4_over_a_mount", random, "back_all_the_time"]);
}
