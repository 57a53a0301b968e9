//! `make suites` tells a difference between a plain file system and a mounted tree that is not known, by a suite that fails on FUSE only.

use futae_tests::binary::binary;
use futae_tests::tidy::root;
use futae_tests::tools::{has, has_fuse, has_root, text};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// In place of pjdfstest: its last case fails on FUSE.
const SUITE: &str = "#!/bin/bash
while (($# > 0)); do [[ $1 == -p ]] && place=$2; shift; done
echo 'open::one   ok'
[[ \"$(stat --file-system --format=%T \"$place\")\" == fuseblk ]] && word=FAILED || word=ok
echo \"open::two   $word\"
";

fn suites(known: &str) -> Output {
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name);
    fs::write(path("pjdfstest"), SUITE).expect("a suite");
    fs::set_permissions(path("pjdfstest"), Permissions::from_mode(0o755)).expect("set");
    fs::write(path("known"), known).expect("a list");
    let mut suites = Command::new(root().join("scripts/suites"));
    suites.args(["--mode", "through", "--futae", text(binary())]);
    suites.args(["--known", text(&path("known")), "pjdfstest"]);
    let output = suites.env("PJDFSTEST", path("pjdfstest")).output();
    output.expect("python3 starts")
}

#[test]
fn a_difference_that_is_not_known_is_told() {
    if !has_fuse() || !has_root() || !has("python3") {
        return;
    }
    let told = suites("");
    let said = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    let line = "pjdfstest, through: open::two: without futae ok, with futae failed";
    assert!(said.contains(line), "{said}");
    assert!(
        said.contains("1 differences, 1 of them not known"),
        "{said}"
    );
    let known = suites("pjdfstest * open::two ok failed: FUSE\n");
    assert_eq!(known.status.code(), Some(0), "{known:?}");
}

#[test]
fn a_suite_that_is_not_here_is_skipped_with_the_way_to_get_it() {
    if !has_root() || !has("python3") {
        return;
    }
    let mut suites = Command::new(root().join("scripts/suites"));
    let suites_by_source = [
        ("LTP", "ltp"),
        ("LIBNBD", "libnbd"),
        ("QEMU", "iotests"),
        ("XFSTESTS", "xfstests"),
        ("XFSTESTS", "fsstress"),
        ("XFSTESTS", "disk-xfstests"),
        ("XFSTESTS", "guest-xfstests"),
        ("BLKTESTS", "blktests"),
    ];
    suites.args(["--futae", text(binary())]);
    for (name, suite) in suites_by_source {
        suites.env(name, "/nowhere").arg(suite);
    }
    let told = suites.output().expect("python3 starts");
    let said = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(told.status.code(), Some(1), "nothing ran: {told:?}");
    for (name, suite) in suites_by_source {
        let line = format!("suites: {suite} skipped: {name} names no directory with");
        assert!(said.contains(&line), "{said}");
        assert!(said.contains(&format!("{name}=DIRECTORY")), "{said}");
    }
}
