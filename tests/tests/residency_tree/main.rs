//! `futae mount DIRECTORY --residency kernel`: the pages of all files of a tree are in the kernel's page cache of the mount, and the
//! policy decides which.

mod cut;

use futae_policy::Prng;
use futae_testkit::stamp::Stamp;
use futae_testkit::wait::{PATIENCE, within};
use futae_tests::BLOCK;
use futae_tests::direct::{Buffer, Direct};
use futae_tests::kernel_pages::tree::{
    assert_resident, audit, engine, make, mount, order, reclaimed, stamp,
};
use futae_tests::kernel_pages::{
    BLOCKS, SETTLED_EVERY, SLOTS, assert_as_simulated, can_run, check, number, pages_of_all,
    settle, stream,
};
use futae_tests::programs::exercise;
use futae_tests::rings;
use futae_tests::stage::Stage;
use futae_tests::tools::{has, text};
use futae_tests::tree::{Tree, of_class, read};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

fn as_simulated(name: &str) {
    if !can_run() {
        return;
    }
    let (reads, of_each) = (stream(name), 64);
    for policy in ["sieve", "s3-fifo"] {
        let mut tree = Tree::new();
        let paths = make(&tree, "many", BLOCKS / of_each, of_each);
        mount(&mut tree, SLOTS.into(), policy, &[]);
        let files: Vec<File> = paths
            .iter()
            .map(|path| File::open(path).expect("opened"))
            .collect();
        for some in reads.chunks(SETTLED_EVERY) {
            for &block in some {
                let (file, at) = (block / of_each, block % of_each);
                check(&files[file as usize], at, stamp(file, at, 0));
            }
            settle(|| engine(&tree));
        }
        drop(files);
        assert_resident(&tree, &paths, SLOTS.into());
        let status = tree.stop().1["status"].clone();
        assert_as_simulated(name, policy, &reads, &status);
    }
}

#[test]
fn a_mild_zipf_over_files_hits_as_simulated() {
    as_simulated("zipf 0.8");
}

#[test]
fn a_strong_zipf_over_files_hits_as_simulated() {
    as_simulated("zipf 1.1");
}

#[test]
fn a_loop_with_a_scan_over_files_hits_as_simulated() {
    as_simulated("loop with scan");
}

#[test]
fn a_middle_that_moves_over_files_hits_as_simulated() {
    as_simulated("normal with shift");
}

#[test]
fn other_files_take_no_page_from_protected_ones() {
    if !can_run() {
        return;
    }
    let mut tree = Tree::new();
    let hot = make(&tree, "hot", 4, 50);
    let cold = make(&tree, "cold", 32, 64);
    mount(&mut tree, 300, "directory(sieve)", &["--protect", "hot"]);
    let all_hot = || pages_of_all(&hot);
    let read_all = |paths: &[PathBuf]| paths.iter().for_each(|path| drop(read(path)));
    read_all(&hot);
    for path in &cold {
        assert!(!read(path).is_empty());
        assert!(all_hot() + reclaimed(&tree) >= 200);
    }
    assert_resident(&tree, &[hot.clone(), cold.clone()].concat(), 300);
    // Every read of them hits.
    let before = engine(&tree);
    read_all(&hot);
    let after = engine(&tree);
    let missed = number(&after, "misses") - number(&before, "misses");
    assert!(missed <= reclaimed(&tree), "{missed}");
    // A directory stays protected by whatever name, and not when that is taken back.
    fs::rename(tree.upper("hot"), tree.upper("warm")).expect("renamed");
    read_all(&cold);
    let warm: Vec<PathBuf> = (0..4).map(|at| tree.upper(&format!("warm/{at}"))).collect();
    let all_warm = || pages_of_all(&warm);
    assert!(all_warm() + reclaimed(&tree) >= 200);
    let source = text(&tree.source).to_owned();
    let said = order(
        &tree,
        &format!("{{\"command\":\"unprotect\",\"directory\":\"{source}/warm\"}}"),
    );
    assert_eq!(
        said["protected"].as_array().map(Vec::len),
        Some(0),
        "{said}"
    );
    warm.iter().for_each(|path| drop(read(path)));
    cold.iter().chain(&cold).for_each(|path| drop(read(path)));
    let few = || (all_warm() < 100).then_some(()).ok_or_else(all_warm);
    within(PATIENCE, few).expect("the others take them");
    // What was read of a page is not heard if it is taken soon after.
    let taken = reclaimed(&tree);
    let (requests, hits) = of_class(&tree.stop().1, 1);
    assert!(
        hits + taken >= 200 && requests + taken >= 400,
        "{requests} {hits} {taken}"
    );
}

#[test]
fn random_operations_with_maps_are_below_and_counted() {
    random_operations(&[], 12_000);
}

#[test]
fn random_operations_with_maps_that_are_kept_are_below_after_a_close() {
    random_operations(&futae_tests::BUSY, 6000);
}

/// By every way to write, read and cut a file, with maps, in a cache smaller than the file.
fn random_operations(words: &[&str], operations: u32) {
    if !can_run() || !has("python3") {
        return;
    }
    let mut tree = Tree::new();
    mount(&mut tree, 32, "sieve", words);
    let file = tree.upper("file");
    exercise(&file, operations, 3, false);
    assert_eq!(read(&file), read(&tree.lower("file")), "it is below");
    let agree = || {
        let status = engine(&tree);
        let pages = number(&status["kernel"], "pages");
        let is_alike = pages == number(&status, "resident_blocks") && pages <= 32;
        is_alike.then_some(()).ok_or(status)
    };
    within(PATIENCE, agree).expect("both have the same pages");
    tree.stop();
}

/// What a test knows of a file: the version of each block; none for a hole.
type Known = Vec<Option<u64>>;

/// Files that are changed in every way by several who have them open, past the page cache and below, with evictions all the time.
#[test]
fn no_page_of_a_tree_is_stale() {
    if !can_run() {
        return;
    }
    let (count, blocks) = (8, 24);
    let mut tree = Tree::new();
    let paths = make(&tree, "files", count, blocks);
    mount(&mut tree, 60, "s3-fifo", &[]);
    let open = |path: &PathBuf| {
        let file = OpenOptions::new().read(true).write(true).open(path);
        file.expect("opened")
    };
    let mut files: Vec<[File; 2]> = paths.iter().map(|path| [open(path), open(path)]).collect();
    let mut known: Vec<Known> = vec![vec![Some(0); blocks as usize]; count as usize];
    let (mut prng, mut bytes, mut aligned) = (Prng::new(7), vec![0; BLOCK], Buffer::new(BLOCK));
    let below = |number: u64| tree.lower(&format!("files/{number}"));
    for version in 1..4000 {
        let number = prng.below(count);
        let (path, knows) = (&paths[number as usize], &mut known[number as usize]);
        let file = &files[number as usize][prng.below(2) as usize];
        let length = knows.len() as u64;
        let block = prng.below(length.max(1));
        let offset = block * BLOCK as u64;
        let new = stamp(number, block, version);
        match prng.below(16) {
            0 if block < length => {
                new.fill(&mut bytes);
                file.write_all_at(&bytes, offset).expect("a write");
                knows[block as usize] = Some(version);
            }
            // In parts: the page is there half written in between.
            1 if block < length => {
                new.fill(&mut bytes);
                file.write_all_at(&bytes[..1000], offset).expect("a write");
                file.write_all_at(&bytes[1000..], offset + 1000)
                    .expect("a write");
                knows[block as usize] = Some(version);
            }
            2 if block < length => {
                new.fill(aligned.get_mut());
                let direct = Direct::open(path).expect("opened");
                direct.write(offset, &aligned).expect("a direct write");
                knows[block as usize] = Some(version);
            }
            3 if block < length => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, hole, offset, BLOCK as u64).expect("a hole");
                knows[block as usize] = None;
            }
            4 => {
                file.set_len(offset).expect("shorter");
                knows.truncate(block as usize);
            }
            5 | 6 => {
                let stamp = stamp(number, length, version);
                stamp.fill(&mut bytes);
                let mut end = OpenOptions::new().append(true).open(path).expect("opened");
                end.write_all(&bytes[..100]).expect("appended");
                end.write_all(&bytes[100..]).expect("appended");
                knows.push(Some(version));
            }
            // Below, which the next open sees.
            7 if block < length => {
                new.fill(&mut bytes);
                let lower = OpenOptions::new().write(true).open(below(number));
                let lower = lower.expect("opened");
                let changed = || lower.metadata().expect("there").modified().expect("a time");
                let before = changed();
                // Where the clock for files ticks seldom, it is written until that shows.
                while changed() == before {
                    lower.write_all_at(&bytes, offset).expect("written");
                }
                knows[block as usize] = Some(version);
                files[number as usize] = [open(path), open(path)];
            }
            // Another file of the name; the old one lives while it is open.
            8 if prng.below(4) == 0 => {
                let old = open(path);
                let other = tree.upper("files/other");
                fs::copy(path, &other).expect("copied");
                fs::rename(&other, path).expect("renamed");
                for (at, version) in (0..).zip(knows.iter()) {
                    let mut bytes = vec![0; BLOCK];
                    old.read_exact_at(&mut bytes, at * BLOCK as u64)
                        .expect("a read");
                    assert_eq!(Stamp::read(&bytes), version.map(|it| stamp(number, at, it)));
                }
                files[number as usize] = [open(path), open(path)];
            }
            9 => {
                let moved = tree.upper("files/moved");
                fs::rename(path, &moved).expect("renamed");
                fs::rename(&moved, path).expect("renamed");
            }
            10 if block < length => {
                let direct = Direct::open(path).expect("opened");
                direct.read(offset, &mut aligned).expect("a direct read");
                let seen = Stamp::read(aligned.get());
                assert_eq!(
                    seen,
                    knows[block as usize].map(|it| stamp(number, block, it))
                );
            }
            _ => {
                for (at, version) in (0..).zip(knows.iter()).skip(block as usize).take(4) {
                    file.read_exact_at(&mut bytes, at * BLOCK as u64)
                        .expect("a read");
                    let expected = version.map(|it| stamp(number, at, it));
                    assert_eq!(Stamp::read(&bytes), expected, "file {number}, block {at}");
                }
                assert_eq!(
                    file.metadata().expect("there").len(),
                    knows.len() as u64 * BLOCK as u64
                );
            }
        }
    }
    for (number, knows) in (0..).zip(&known) {
        let (above, under) = (read(&paths[number as usize]), read(&below(number)));
        assert_eq!(above.len(), knows.len() * BLOCK);
        assert!(above == under, "file {number} is the same above and below");
    }
    drop(files);
    assert!(audit(&tree, &paths) <= 60);
    tree.stop();
}

/// Misses and writes by FUSE over io_uring, hits by the kernel as ever.
#[test]
fn by_ring_the_pages_of_a_tree_are_the_same() {
    if can_run() {
        rings::again(&["no_page_of_a_tree_is_stale", "take_no_page", "strong_zipf"]);
    }
}

#[test]
fn what_does_not_go_with_a_tree_is_refused() {
    let stage = Stage::bare();
    let source = stage.path("tree");
    fs::create_dir(&source).expect("a directory");
    for (words, named) in [
        (&["--policy", "directory"][..], "directory(sieve)"),
        (&["--policy", "sieve", "--block", "8KiB"], "--block"),
    ] {
        let mut command = futae_tests::binary::futae(&["mount", text(&source)]);
        command
            .arg(&stage.mountpoint)
            .args(["--residency", "kernel", "--cache", "1MiB"]);
        let ended = command.args(words).output().expect("futae starts");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(
            said.contains(named) && said.contains("--residency kernel"),
            "{said}"
        );
    }
}
