//! Files that are opened past the kernel's page cache are written by calls, and at the same time by maps: what was written is seen by
//! both and by `sendfile`, and nothing is lost.

use futae_tests::rings::Switched;
use futae_tests::stage::Stage;
use futae_tests::tools::{has, has_fuse, text};
use futae_tests::tree::{Tree, read};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/mapped.py");

/// How often each page is written. Without what this tests, the map did not see 42 of 456 writes in a tree, and 47 of 1,600 in an image.
const ROUNDS_IN_A_TREE: u32 = 20;
const ROUNDS_IN_AN_IMAGE: u32 = 200;

fn written_in_both_ways(file: &Path, rounds: u32, more: &[&str]) {
    let mut python = Command::new("python3");
    python.args([PROGRAM, text(file), &rounds.to_string()]);
    let output = python.args(more).output().expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    let times: u64 = said.trim().parse().expect("how often the map was written");
    assert!(times > 0, "the map was not written");
}

fn in_a_tree(arguments: &[&str]) {
    let mut tree = Tree::new();
    tree.mount(&[&["--cache", "1MiB"], arguments].concat());
    written_in_both_ways(&tree.upper("file"), ROUNDS_IN_A_TREE, &[]);
    let above = read(&tree.upper("file"));
    tree.stop();
    assert_eq!(read(&tree.lower("file")), above);
}

#[test]
fn in_trees_of_both_write_modes() {
    if !has_fuse() || !has("python3") {
        return;
    }
    in_a_tree(&[]);
    in_a_tree(&["--write-mode", "write-back"]);
}

#[test]
fn in_a_tree_over_rings() {
    if !has_fuse() || !has("python3") {
        return;
    }
    let Some(_switched) = Switched::to(true) else {
        return;
    };
    in_a_tree(&["--transport", "ring"]);
}

#[test]
fn in_an_image() {
    if !has_fuse() || !has("python3") {
        return;
    }
    let mut stage = Stage::new(8);
    stage.mount_image(&["--cache", "1MiB"]);
    // In place of the stamps.
    let image = OpenOptions::new().write(true).open(stage.file());
    let zeroed = image.and_then(|image| image.write_all_at(&[0; 8 * 4096], 0));
    zeroed.expect("zeroes");
    written_in_both_ways(&stage.file(), ROUNDS_IN_AN_IMAGE, &["fixed"]);
    stage.stop_mount();
}
