//! `--state` of a mounted tree: the next mount has the blocks of the one before.

use futae_testkit::wait::eventually;
use futae_tests::binary::run_json;
use futae_tests::tools::{has_fuse, text};
use futae_tests::tree::{Tree, read};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;

/// A mount opens the files of an earlier one 128 at a time.
const FILES: usize = 300;
const BLOCK: usize = 64 << 10;

/// Mounts a tree with a state file beside it and room for so many blocks. Returns its control socket.
fn mount(tree: &mut Tree, blocks: usize) -> String {
    let (state, size) = (tree.beside("state"), format!("{blocks}blocks"));
    let words = ["--block", "64KiB", "--cache", &size, "--policy", "lru"];
    let ready = tree.mount(&[&words[..], &["--state", text(&state)]].concat());
    ready["control"].as_str().expect("a socket").to_owned()
}

fn count(status: &Value, name: &str) -> u64 {
    let number = status[name].as_u64();
    number.unwrap_or_else(|| panic!("{name} in {status}"))
}

/// Waits until so many blocks are loaded without a request.
fn settle(control: &str, blocks: usize) {
    eventually("the blocks are loaded again", || {
        let status = &run_json(&["top", control, "--json"])["engines"][0];
        count(status, "preload_reads") == blocks as u64 && count(status, "loading_blocks") == 0
    });
}

fn content(number: usize) -> Vec<u8> {
    vec![number as u8; BLOCK]
}

fn make(tree: &Tree, directory: &str, files: usize) {
    fs::create_dir(tree.lower(directory)).expect("a directory");
    for number in 0..files {
        let path = tree.lower(&format!("{directory}/{number}"));
        fs::write(path, content(number)).expect("a file");
    }
}

fn read_files(tree: &Tree, directory: &str, files: impl IntoIterator<Item = usize>) {
    for number in files {
        let read = read(&tree.upper(&format!("{directory}/{number}")));
        assert!(read == content(number), "{directory}/{number}");
    }
}

#[test]
fn the_next_mount_has_the_blocks_of_the_one_before_in_their_order() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    make(&tree, "known", FILES);
    make(&tree, "new", 150);
    // The table of files takes some of it.
    let room = FILES + 100;
    mount(&mut tree, room);
    read_files(&tree, "known", 0..FILES);
    tree.stop();
    let control = mount(&mut tree, room);
    settle(&control, FILES);
    read_files(&tree, "new", 0..150);
    read_files(&tree, "known", (100..FILES).rev());
    let status = tree.stop().1["status"].clone();
    let counts = ["hits", "misses", "errors"].map(|name| count(&status, name));
    assert_eq!(counts, [200, 150, 0], "{status}");
    assert!(count(&status, "evictions") > 50, "{status}");
}

#[test]
fn files_are_found_by_their_paths_and_have_their_data_of_now() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    make(&tree, "a", 5);
    mount(&mut tree, 100);
    read_files(&tree, "a", 0..5);
    fs::rename(tree.upper("a"), tree.upper("b")).expect("renamed");
    fs::remove_file(tree.upper("b/0")).expect("removed");
    tree.stop();
    fs::remove_file(tree.lower("b/1")).expect("removed");
    fs::write(tree.lower("b/2"), "").expect("cut");
    let changed = fs::File::options().write(true).open(tree.lower("b/3"));
    let changed = changed.and_then(|file| file.write_all_at(b"new", 0));
    changed.expect("changed");
    let control = mount(&mut tree, 100);
    settle(&control, 2);
    assert_eq!(read(&tree.upper("b/3"))[..4], *b"new\x03");
    read_files(&tree, "b", [4]);
    assert!(read(&tree.upper("b/2")).is_empty());
    let (ended, last) = tree.stop();
    let counts = ["hits", "misses", "errors"].map(|name| count(&last["status"], name));
    assert_eq!(counts, [2, 0, 0], "{last}");
    let said =
        "3 blocks (192KiB) of 3 files are loaded again; files that are not there any more: 1";
    assert!(ended.errors.contains(said), "{}", ended.errors);
}

#[test]
fn the_file_of_another_directory_is_kept_and_not_used() {
    if !has_fuse() {
        return;
    }
    let (mut one, mut other) = (Tree::new(), Tree::new());
    for tree in [&one, &other] {
        make(tree, "a", 2);
    }
    mount(&mut one, 10);
    read_files(&one, "a", 0..2);
    one.stop();
    let state = other.beside("state");
    fs::copy(one.beside("state"), &state).expect("copied");
    mount(&mut other, 10);
    read_files(&other, "a", 0..2);
    let (ended, last) = other.stop();
    assert_eq!(count(&last["status"], "preload_reads"), 0);
    assert!(
        ended.errors.contains("is of another cache: its source is"),
        "{}",
        ended.errors
    );
    let old = fs::read(other.beside("state.old")).expect("kept");
    assert!(old == fs::read(one.beside("state")).expect("it is there"));
    assert!(old != fs::read(state).expect("its own"));
}
