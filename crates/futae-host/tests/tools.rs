//! The tools that people use with NBD work unchanged. A tool that is not installed is named and
//! its test passes; CI installs them all.

mod common;

use common::{Rig, StoreEvent, pattern};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const SIZE: usize = 6 << 20;

fn installed(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        futae_testkit::need::skip(
            futae_testkit::need::Need::Tools,
            &format!("{tool} is not installed"),
        );
    }
    found
}

fn run(tool: &str, arguments: &[&str]) -> Output {
    let output = Command::new(tool)
        .args(arguments)
        .output()
        .expect("the tool starts");
    assert!(
        output.status.success(),
        "{tool} {arguments:?}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Data with a hole in its middle.
fn content() -> Vec<u8> {
    let mut content = pattern(1, SIZE);
    content[1 << 20..3 << 20].fill(0);
    content
}

#[test]
fn nbdinfo_describes_the_export() {
    if !installed("nbdinfo") {
        return;
    }
    let rig = Rig::new("lru", 256, content());
    let info = text(&run("nbdinfo", &[&rig.uri()]));
    for expected in [
        "export-size: 6291456",
        "can_cache: true",
        "can_df: true",
        "can_fua: true",
        "can_flush: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "base:allocation",
        "is_read_only: false",
        "block_size_preferred: 4096",
    ] {
        assert!(info.contains(expected), "{expected} is missing in\n{info}");
    }
    let list = text(&run("nbdinfo", &["--list", &rig.uri()]));
    assert!(
        list.contains("export=\"disk\"") && list.contains("the disk of a test"),
        "{list}"
    );
    let map = text(&run("nbdinfo", &["--map", &rig.uri()]));
    let rows: Vec<Vec<&str>> = map
        .lines()
        .map(|l| l.split_whitespace().take(3).collect())
        .collect();
    let expected = [
        ["0", "1048576", "0"],
        ["1048576", "2097152", "3"],
        ["3145728", "3145728", "0"],
    ];
    assert_eq!(rows, expected, "{map}");
}

#[test]
fn nbdcopy_copies_out_and_in() {
    if !installed("nbdcopy") {
        return;
    }
    let rig = Rig::new("exclusive", 128, content());
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("out");
    run("nbdcopy", &[&rig.uri(), path(&file)]);
    assert!(fs::read(&file).expect("read") == content());
    let other = pattern(2, SIZE);
    fs::write(&file, &other).expect("write");
    run("nbdcopy", &["--flush", path(&file), &rig.uri()]);
    assert!(rig.store.content() == other);
    assert!(rig.store.count(|event| *event == StoreEvent::Flush) > 0);
}

#[test]
fn qemu_img_compares_and_converts() {
    if !installed("qemu-img") {
        return;
    }
    let rig = Rig::new("lru", 128, content());
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("raw");
    fs::write(&file, content()).expect("write");
    run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", path(&file), &rig.uri()],
    );
    let copy = directory.path().join("copy");
    run(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "raw", &rig.uri(), path(&copy)],
    );
    assert!(fs::read(&copy).expect("read") == content());
    let other = pattern(3, SIZE);
    fs::write(&file, &other).expect("write");
    run(
        "qemu-img",
        &[
            "convert",
            "-n",
            "-f",
            "raw",
            "-O",
            "raw",
            path(&file),
            &rig.uri(),
        ],
    );
    assert!(rig.store.content() == other);
}

#[test]
fn qemu_io_writes_verifies_zeroes_and_discards() {
    if !installed("qemu-io") {
        return;
    }
    let rig = Rig::new("lru", 128, content());
    let script = [
        "write -P 0xa1 1000 70000",
        "read -P 0xa1 1000 70000",
        "write -f -P 0x33 1048576 4096",
        "write -z 8192 12288",
        "read -P 0 8192 12288",
        "read -P 0xa1 1000 7192",
        "discard 2M 1M",
        "flush",
        "aio_read -P 0x33 1048576 4096",
        "aio_flush",
    ];
    let mut arguments = vec!["-f", "raw", "--cache=none"];
    for command in script {
        arguments.extend(["-c", command]);
    }
    let uri = rig.uri();
    arguments.push(&uri);
    let output = text(&run("qemu-io", &arguments));
    assert!(!output.contains("failed"), "{output}");
    assert!(
        rig.store.content()[1000..8192]
            .iter()
            .all(|&byte| byte == 0xa1)
    );
    assert!(
        rig.store
            .count(|event| matches!(event, StoreEvent::Trim(_)))
            > 0
    );
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !installed("fio") {
        return;
    }
    if !text(&run("fio", &["--enghelp"])).contains("nbd") {
        futae_testkit::need::skip(
            futae_testkit::need::Need::Tools,
            "this fio has no nbd engine",
        );
        return;
    }
    let rig = Rig::new("exclusive", 256, content());
    let uri = format!("--uri={}", rig.uri());
    let directory = tempfile::tempdir().expect("a directory");
    let output = Command::new("fio")
        .current_dir(directory.path())
        .args([
            "--name=v",
            "--ioengine=nbd",
            &uri,
            "--rw=randrw",
            "--bsrange=512-64k",
        ])
        .args([
            "--iodepth=32",
            "--size=6m",
            "--verify=crc32c",
            "--verify_fatal=1",
        ])
        .output()
        .expect("fio starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
