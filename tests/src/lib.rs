//! End-to-end tests of the `futae` binary, and the tidy test of this source tree.
//!
//! The tests are in `tests/tests/`; this library is what they share. Everything in it panics
//! when something goes wrong, since a test is the only caller.
//!
//! | room | holds |
//! | --- | --- |
//! | [`binary`] | the `futae` binary, built like the test itself |
//! | [`process`] | a running program, which does not outlive its test |
//! | [`stage`] | a disk image, `futae serve` and `futae mount` in a directory of their own |
//! | [`guest_disk`] | a guest whose disk is a vhost-user socket of `futae serve` |
//! | [`tree`] | a directory and `futae mount` of it, likewise |
//! | [`programs`] | programs that find out when a file system is none |
//! | [`tools`] | other programs, and what to do where something is missing |
//! | [`browser`] | a browser that shows what a page looks like |
//! | [`rings`] | FUSE over io_uring, switched on for a test |
//! | [`direct`] | files past the page cache |
//! | [`ledger`] | writers that keep a record of what was promised to them |
//! | [`promises`] | what a guest said to be on stable storage before its power was cut |
//! | [`predict`] | what the simulator says about the very same requests |
//! | [`web`] | a web server of files, in ranges, as object stores have it |
//! | [`tidy`] | the rules for this source tree |

pub mod binary;
pub mod book;
pub mod browser;
pub mod debian;
pub mod direct;
pub mod guest_disk;
pub mod huge_pages;
pub mod kernel_pages;
pub mod ledger;
pub mod live;
pub mod mounted;
pub mod package;
pub mod predict;
pub mod process;
pub mod programs;
pub mod promises;
pub mod rings;
pub mod stage;
pub mod systemd;
pub mod tidy;
pub mod tools;
pub mod tree;
pub mod web;

/// Bytes of a block, in every test that does not say otherwise.
pub const BLOCK: usize = futae_testkit::stamp::BLOCK;

/// Of a mount that writes back: nothing but a flush brings anything down, until all of it is dirty.
pub const LATE: [&str; 6] = [
    "--write-mode",
    "write-back",
    "--dirty-age-max",
    "1h",
    "--dirty-max",
    "100%",
];

/// Likewise: blocks come and go all the time, dirty or not.
pub const BUSY: [&str; 6] = [
    "--write-mode",
    "write-back",
    "--dirty-age-max",
    "20ms",
    "--dirty-max",
    "50%",
];

/// The words, with a cache of so much.
#[must_use]
pub fn cached<'a>(size: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    [&["--cache", size], words].concat()
}
