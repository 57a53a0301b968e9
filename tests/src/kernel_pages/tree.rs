//! A tree whose pages the kernel holds.

use super::number;
use crate::BLOCK;
use crate::tools::text;
use crate::tree::Tree;
use futae_testkit::stamp::Stamp;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// A mount with room for this many blocks.
///
/// # Panics
///
/// If the kernel does not hold the pages.
pub fn mount(tree: &mut Tree, cache_blocks: u64, policy: &str, others: &[&str]) {
    let cache = format!("{cache_blocks}blocks");
    let control = format!("unix:{}", text(&tree.beside("control.sock")));
    let words = ["--residency", "kernel", "--cache", &cache];
    let more = ["--policy", policy, "--control", &control];
    let ready = tree.mount(&[&words[..], &more[..], others].concat());
    assert_eq!(ready["residency"], "kernel", "{ready}");
}

/// What the mount answers to an order.
///
/// # Panics
///
/// If it does not.
#[must_use]
pub fn order(tree: &Tree, order: &str) -> Value {
    let mut stream = UnixStream::connect(tree.beside("control.sock")).expect("it listens");
    stream
        .write_all(format!("{order}\n").as_bytes())
        .expect("taken");
    let mut said = BufReader::new(stream);
    let mut line = String::new();
    said.read_line(&mut line).expect("an answer");
    serde_json::from_str(&line).expect("JSON")
}

/// The status of its cache.
#[must_use]
pub fn engine(tree: &Tree) -> Value {
    order(tree, "{\"command\":\"status\"}")["engines"][0].clone()
}

/// Resident pages that the kernel has taken by itself so far: machines that give memory back ahead of need do so all the time.
#[must_use]
pub fn reclaimed(tree: &Tree) -> u64 {
    number(&engine(tree)["kernel"], "reclaimed")
}

/// The pages that all count are this many, but for those that the kernel has taken.
///
/// # Panics
///
/// If not.
pub fn assert_resident(tree: &Tree, files: &[PathBuf], wanted: u64) {
    let resident = audit(tree, files);
    let taken = reclaimed(tree);
    assert!(
        resident <= wanted && resident + taken >= wanted,
        "{resident} {taken}"
    );
}

/// As [`super::audit`], of files of the tree.
#[must_use]
pub fn audit(tree: &Tree, files: &[PathBuf]) -> u64 {
    super::audit(files, || engine(tree))
}

/// Files below, this many blocks each, stamped as version 0; their paths in the mount.
///
/// # Panics
///
/// If they cannot be made.
#[must_use]
pub fn make(tree: &Tree, directory: &str, files: u64, blocks: u64) -> Vec<PathBuf> {
    fs::create_dir_all(tree.lower(directory)).expect("a directory");
    let one = |number: u64| {
        let name = format!("{directory}/{number}");
        fs::write(tree.lower(&name), data(number, blocks)).expect("a file");
        tree.upper(&name)
    };
    (0..files).map(one).collect()
}

/// What [`make`] writes to a file.
#[must_use]
pub fn data(file: u64, blocks: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK * blocks as usize];
    for (at, page) in (0..).zip(bytes.chunks_mut(BLOCK)) {
        stamp(file, at, 0).fill(page);
    }
    bytes
}

/// What a block of a file is stamped with.
#[must_use]
pub fn stamp(file: u64, block: u64, version: u64) -> Stamp {
    let block = file << 32 | block;
    Stamp { block, version }
}
