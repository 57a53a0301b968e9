//! A mounted tree that writes back: nobody can tell, but by what is below before a file is closed or
//! flushed.

use futae_testkit::wait::{eventually, later_file_time};
use futae_tests::kernel_pages;
use futae_tests::programs::{Database, exercise};
use futae_tests::rings;
use futae_tests::tools::{has, has_fuse, has_root, run, text};
use futae_tests::tree::{Tree, read};
use futae_tests::{BLOCK, BUSY, LATE, cached};
use rustix::fs::{AtFlags, StatxFlags, statx};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

fn late() -> Vec<&'static str> {
    cached("4MiB", &LATE)
}

fn busy() -> Vec<&'static str> {
    cached("128KiB", &BUSY)
}

fn writable(path: &Path) -> File {
    let file = File::options().read(true).write(true).open(path);
    file.expect("opened")
}

fn modified(path: &Path) -> SystemTime {
    let metadata = fs::metadata(path).expect("there");
    metadata.modified().expect("a time")
}

fn exercised(words: &[&str], operations: u32, seed: u32) {
    if !has_fuse() || !has("python3") {
        return;
    }
    let mut tree = Tree::new();
    tree.mount(words);
    let file = tree.upper("file");
    exercise(&file, operations, seed, false);
    assert_eq!(read(&file), read(&tree.lower("file")), "after the close");
    let (_, last) = tree.stop();
    let written = last["status"]["write_back_blocks"].as_u64();
    assert!(written > Some(1000), "{last}");
}

#[test]
fn seventy_thousand_random_operations_with_maps_in_a_small_cache() {
    exercised(&busy(), 70_000, 7);
}

#[test]
fn thirty_thousand_random_operations_with_maps_in_large_blocks() {
    let words = [&late()[..], &["--block", "64KiB", "--policy", "arc"]].concat();
    exercised(&words, 30_000, 8);
}

fn a_database_survives(words: &[&str]) {
    if !has_fuse() || !has("python3") {
        return;
    }
    let mut tree = Tree::new();
    let mut database = Database::default();
    let file = tree.upper("data.db");
    for _ in 0..3 {
        tree.mount(words);
        database.write(&file, || tree.kill_and_leave());
        tree.kill();
        tree.mount(words);
        database.check(&file);
        tree.stop();
    }
}

#[test]
fn a_database_survives_the_kill_of_a_tree_that_writes_back_late() {
    a_database_survives(&late());
}

#[test]
fn a_database_survives_the_kill_of_a_tree_that_writes_back_all_the_time() {
    a_database_survives(&busy());
}

#[test]
fn what_is_written_over_is_below_after_a_close_a_sync_or_the_end() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    for name in ["file", "longer"] {
        fs::write(tree.lower(name), vec![1; 100_000]).expect("a file");
    }
    tree.mount(&late());
    let first = |path: &Path| read(path)[..4096].to_vec();
    let written = |file: &File, name: &str, byte: u8| {
        file.write_all_at(&vec![byte; 4096], 0).expect("written");
        assert_eq!(first(&tree.upper(name)), vec![byte; 4096]);
        let below = first(&tree.lower(name));
        assert_ne!(below, vec![byte; 4096], "{byte}: written through");
    };
    let (upper, lower) = (tree.upper("file"), tree.lower("file"));
    let file = writable(&upper);
    written(&file, "file", 2);
    file.sync_data().expect("synced");
    assert_eq!(first(&lower), [2; 4096]);
    written(&file, "file", 3);
    file.sync_all().expect("synced");
    assert_eq!(first(&lower), [3; 4096]);
    written(&file, "file", 4);
    drop(file);
    assert_eq!(first(&lower), [4; 4096]);
    // What makes a file longer is below at once, and all of it in its order. Not in the same file: the mount learns of its last
    // close after `close` has returned, and then writes what is dirty, by whatever descriptor it was written.
    let (upper, lower) = (tree.upper("longer"), tree.lower("longer"));
    let file = writable(&upper);
    file.write_all_at(&[5; 10], 200_000).expect("written");
    assert_eq!(read(&lower), read(&upper));
    written(&file, "longer", 6);
    // The mount is taken away under the open file.
    let (_, last) = tree.stop();
    assert_eq!(first(&lower), [6; 4096]);
    assert_eq!(last["status"]["dirty_blocks"], 0, "{last}");
}

/// Nor while the write-back is under way.
#[test]
fn a_write_back_under_way_is_not_seen_in_the_time_of_a_file() {
    const BLOCKS: u64 = 64;
    const ROUNDS: u64 = 30;
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    let (upper, lower) = (tree.upper("file"), tree.lower("file"));
    fs::write(&lower, vec![0; 2 * BLOCKS as usize * BLOCK]).expect("a file");
    tree.mount(&cached("4MiB", &BUSY));
    let (file, below) = (writable(&upper), File::open(&lower).expect("opened"));
    let last = (2 * BLOCKS - 2) * BLOCK as u64;
    for round in 1..=ROUNDS {
        let bytes = vec![round as u8; BLOCK];
        // Each block is written back apart.
        for block in (0..2 * BLOCKS).step_by(2) {
            file.write_all_at(&bytes, block * BLOCK as u64)
                .expect("written");
        }
        let written = time_now(&file);
        let mut now = vec![0; BLOCK];
        while now != bytes {
            assert_eq!(time_now(&file), written, "round {round}");
            below.read_exact_at(&mut now, last).expect("read");
        }
    }
    drop(file);
    tree.stop();
}

/// The time of change of a file that the mount says now, and not one that the kernel was told before.
fn time_now(file: &File) -> (i64, u32) {
    let wanted = (
        AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC,
        StatxFlags::MTIME,
    );
    let stat = statx(file, "", wanted.0, wanted.1).expect("attributes");
    (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec)
}

#[test]
fn a_file_has_the_time_of_the_write_and_not_of_the_write_back() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    let (upper, lower) = (tree.upper("file"), tree.lower("file"));
    fs::write(&lower, vec![1; 100_000]).expect("a file");
    tree.mount(&late());
    let file = writable(&upper);
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    file.set_modified(long_ago).expect("set");
    let before = later_file_time();
    file.write_all_at(&[2; 4096], 0).expect("written");
    let written = file.metadata().expect("there").modified().expect("a time");
    assert!(written >= before, "it has been written");
    let _ = later_file_time();
    file.sync_all().expect("synced");
    assert_eq!(read(&lower)[0], 2);
    assert_eq!(modified(&lower), written, "the write-back");
    // A write has its own time, however soon it follows one whose time was set.
    for byte in 0..20 {
        file.write_all_at(&[byte; 4096], 0).expect("written");
        file.set_modified(long_ago).expect("set");
        file.write_all_at(&[byte; 4096], 0).expect("written");
        let now = file.metadata().expect("there").modified();
        assert_ne!(now.expect("a time"), long_ago);
    }
    // As `cp -p` does: the time stays as it was set, whatever is still to be written.
    file.write_all_at(&[3; 4096], 0).expect("written");
    file.set_modified(long_ago).expect("set");
    drop(file);
    assert_eq!((modified(&lower), read(&lower)[0]), (long_ago, 3));
    assert_eq!(modified(&upper), long_ago);
    tree.stop();
}

#[test]
fn our_own_write_backs_do_not_cost_the_cache() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    let upper = tree.upper("file");
    fs::write(tree.lower("file"), vec![1; 40_960]).expect("a file");
    tree.mount(&late());
    assert_eq!(read(&upper).len(), 40_960);
    for round in 0..5 {
        let file = writable(&upper);
        file.write_all_at(&[round; 4096], 4096).expect("written");
        drop(file);
        assert_eq!(read(&upper)[4096..8192], [round; 4096]);
    }
    // Somebody else's are seen.
    let below = writable(&tree.lower("file"));
    below.write_all_at(&[9; 10], 20_000).expect("written");
    assert_eq!(read(&upper)[20_000..20_010], [9; 10]);
    let (_, last) = tree.stop();
    // Ten blocks were read from below, and once more when they had been changed there.
    assert_eq!(last["status"]["store_read_blocks"], 20, "{last}");
}

#[test]
fn a_hole_that_was_written_over_is_none() {
    if !has_fuse() || !has("cp") {
        return;
    }
    let mut tree = Tree::new();
    let upper = tree.upper("file");
    tree.mount(&late());
    let file = File::create(&upper).expect("made");
    file.set_len(1 << 20).expect("a hole");
    drop(file);
    let file = writable(&upper);
    assert_eq!(read(&upper).len(), 1 << 20);
    file.write_all_at(&[7; 4096], 512 << 10).expect("written");
    // Finds data by `lseek`.
    let copy = tree.beside("copy");
    run("cp", &["--sparse=always", text(&upper), text(&copy)]);
    let bytes = read(&copy);
    assert_eq!(bytes[512 << 10..][..4096], [7; 4096]);
    assert_eq!(bytes.len(), 1 << 20);
    drop(file);
    tree.stop();
}

/// A tree on a file system that another file has filled, and a file that was all hole and has been written
/// to: there is room for less than that. Also where it is below.
fn without_room() -> (Tree, String, File) {
    without_room_for(400 << 10, 900 << 10, &late())
}

fn without_room_for(length: usize, full: usize, words: &[&str]) -> (Tree, String, File) {
    let mut tree = Tree::new();
    let lower = text(&tree.source).to_owned();
    run("mount", &["-t", "tmpfs", "-o", "size=1m", "none", &lower]);
    let hole = File::create(tree.lower("file")).expect("made");
    hole.set_len(length as u64).expect("a hole");
    fs::write(tree.lower("full"), vec![1; full]).expect("written");
    tree.mount(words);
    let file = tree.upper("file");
    assert_eq!(read(&file).len(), length);
    let opened = writable(&file);
    opened.write_all_at(&vec![2; length], 0).expect("kept");
    (tree, lower, opened)
}

#[test]
fn a_full_disk_below_is_told_at_the_sync_and_at_the_close_and_nothing_is_lost() {
    if !has_fuse() || !has_root() || !has("python3") {
        return;
    }
    let (mut tree, lower, opened) = without_room();
    let (full, file) = (tree.lower("full"), tree.upper("file"));
    let told = opened.sync_all().expect_err("no room");
    assert_eq!(told.raw_os_error(), Some(28));
    let close = "import os, sys\n\
                 file = os.open(sys.argv[1], os.O_WRONLY)\n\
                 os.pwrite(file, bytes([2]), 0)\n\
                 try: os.close(file)\n\
                 except OSError as error: print(error.errno)";
    let closed = run("python3", &["-c", close, text(&file)]);
    assert_eq!(String::from_utf8_lossy(&closed.stdout), "28\n");
    assert_eq!(read(&file), vec![2; 400 << 10], "it is still there");
    fs::remove_file(&full).expect("removed");
    opened.sync_all().expect("there is room again");
    assert_eq!(read(&tree.lower("file")), vec![2; 400 << 10]);
    drop(opened);
    let (ended, _) = tree.stop();
    futae_tests::stage::detach(Path::new(&lower));
    let said = "/file: syncing: No space left";
    assert!(ended.errors.contains(said), "{}", ended.errors);
}

/// The names of the files that the mount has open below, as the kernel says them: `(deleted)` follows those that have none.
fn open_below(tree: &Tree) -> Vec<String> {
    let open = fs::read_dir(format!("/proc/{}/fd", tree.process())).expect("a list");
    let names = open.filter_map(|it| fs::read_link(it.ok()?.path()).ok());
    let names = names.map(|path| path.to_string_lossy().into_owned());
    names
        .filter(|it| it.starts_with(text(&tree.lower("file"))))
        .collect()
}

/// Descriptors of a file that is closed: where it is.
const CLOSED: usize = 1;

#[test]
fn a_file_that_was_closed_without_room_is_below_and_closed_there_once_there_is_room() {
    if !has_fuse() || !has_root() {
        return;
    }
    let (mut tree, lower, opened) = without_room();
    drop(opened);
    let file = tree.upper("file");
    // Closed again, it is not kept open once more.
    drop(writable(&file));
    let open = open_below(&tree);
    assert!(open.len() > CLOSED, "{open:?}");
    fs::remove_file(tree.lower("full")).expect("removed");
    let writer = writable(&file);
    // The cache may have tried by itself before there was room, which one sync reports.
    let _ = writer.sync_all();
    writer.sync_all().expect("there is room again");
    drop(writer);
    assert_eq!(read(&tree.lower("file")), vec![2; 400 << 10]);
    eventually("it is closed", || open_below(&tree).len() <= CLOSED);
    tree.stop();
    futae_tests::stage::detach(Path::new(&lower));
}

#[test]
fn a_file_is_closed_below_when_the_cache_has_been_able_to_write_it_by_itself() {
    if !has_fuse() || !has_root() {
        return;
    }
    let (mut tree, lower, opened) = without_room_for(40 << 10, 1000 << 10, &busy());
    drop(opened);
    fs::remove_file(tree.lower("full")).expect("removed");
    eventually("it is closed", || open_below(&tree).len() <= CLOSED);
    assert_eq!(read(&tree.lower("file")), vec![2; 40 << 10]);
    tree.stop();
    futae_tests::stage::detach(Path::new(&lower));
}

#[test]
fn a_removed_file_that_could_not_be_written_does_not_keep_its_space() {
    if !has_fuse() || !has_root() {
        return;
    }
    let (mut tree, lower, opened) = without_room();
    drop(opened);
    fs::remove_file(tree.upper("file")).expect("removed");
    eventually("it is closed", || open_below(&tree).is_empty());
    let (_, last) = tree.stop();
    futae_tests::stage::detach(Path::new(&lower));
    assert_eq!(last["status"]["dirty_blocks"], 0, "{last}");
}

#[test]
fn what_cannot_be_written_at_the_end_is_named() {
    if !has_fuse() || !has_root() {
        return;
    }
    let (mut tree, lower, opened) = without_room();
    let ended = tree.stop_badly();
    drop(opened);
    futae_tests::stage::detach(Path::new(&lower));
    assert_eq!(ended.status.code(), Some(1), "{}", ended.errors);
    let said = format!("the last writes to {lower}/file are lost");
    assert!(ended.errors.contains(&said), "{}", ended.errors);
}

#[test]
fn some_of_it_by_ring() {
    let time = "time_of_the_write";
    rings::again(&["thirty_thousand", "database", "what_is_written_over", time]);
}

#[test]
fn some_of_it_held_by_the_kernel() {
    let written = ["back_all_the_time", "what_is_written_over"];
    let failing = ["full_disk", "what_cannot_be_written", "a_hole_that"];
    kernel_pages::again(&[&written[..], &failing[..]].concat());
}
