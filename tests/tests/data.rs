//! What applications write through mount and server is what the image holds in the end.

use futae_testkit::unmount::unmount;
use futae_tests::BLOCK;
use futae_tests::stage::Stage;
use futae_tests::tools::Need;
use futae_tests::tools::{has, has_fuse, has_root, run, skip, text};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

const MIB: u64 = 256;
const SIZE: u64 = 48 * MIB;

/// Both levels, much smaller than what is written.
fn both(link: &str) -> Stage {
    let mut stage = Stage::new(SIZE);
    let policy = if link == "data" { "exclusive" } else { "lru" };
    stage.serve(&["--cache", "12MiB", "--policy", policy]);
    stage.mount(&["--cache", "8MiB", "--on-eviction", link]);
    stage
}

fn fio(stage: &Stage, file: &Path, arguments: &[&str]) {
    let mut fio = Command::new("fio");
    // Its state files go where everything else of the test is.
    fio.current_dir(stage.path(""))
        .args(["--name=verify", "--minimal", "--randseed=7"]);
    fio.arg(format!("--filename={}", file.display()))
        .args(arguments);
    fio.args(["--verify=crc32c", "--verify_fatal=1", "--verify_dump=0"]);
    fio.args(["--size=48m", "--rw=randwrite"]);
    let output = fio.output().expect("fio starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "fio {arguments:?}: {said}");
}

fn stop(stage: &mut Stage) {
    let upper = stage.stop_mount();
    let lower = stage.stop_serve();
    assert_eq!(upper["status"]["errors"], 0, "{upper}");
    assert_eq!(lower["status"]["engines"][0]["errors"], 0, "{lower}");
}

/// Writes and verifies through the mount by `arguments`; then verifies the image itself.
fn verified_twice(link: &str, arguments: &[&str]) {
    if !has_fuse() || !has("fio") {
        return;
    }
    let mut stage = both(link);
    fio(&stage, &stage.file(), arguments);
    stop(&mut stage);
    let again = [arguments, &["--verify_only"]].concat();
    fio(&stage, &stage.image, &again);
}

const DIRECT: [&str; 5] = [
    "--ioengine=libaio",
    "--direct=1",
    "--iodepth=16",
    "--bs=4k",
    "--verify_backlog=512",
];

#[test]
fn direct_writes_over_an_exclusive_level() {
    verified_twice("data", &DIRECT);
}

#[test]
fn direct_writes_over_an_lru_level() {
    verified_twice("nothing", &DIRECT);
}

#[test]
fn direct_writes_with_notices() {
    verified_twice("notice", &DIRECT);
}

#[test]
fn direct_writes_of_many_sizes() {
    let sizes = [
        "--ioengine=libaio",
        "--direct=1",
        "--iodepth=8",
        "--bsrange=4k-256k",
    ];
    verified_twice("data", &sizes);
}

#[test]
fn writes_through_a_shared_map() {
    verified_twice("data", &["--ioengine=mmap", "--bs=4k"]);
}

#[test]
fn buffered_writes_of_odd_sizes() {
    verified_twice(
        "data",
        &["--ioengine=psync", "--bsrange=512-70k", "--bs_unaligned=1"],
    );
}

/// A damaged image is seen, or the tests above would mean nothing.
#[test]
fn one_wrong_byte_is_seen() {
    if !has("fio") {
        return;
    }
    let stage = Stage::new(SIZE);
    let psync = ["--ioengine=psync", "--bs=4k"];
    fio(&stage, &stage.image, &psync);
    let image = File::options().write(true).open(&stage.image);
    let image = image.expect("the image");
    image.write_at(&[0x5A], 1_000_000).expect("a byte");
    let again = [&psync[..], &["--verify_only"]].concat();
    let verify = || fio(&stage, &stage.image, &again);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(verify));
    assert!(outcome.is_err(), "fio does not see a wrong byte");
}

/// A file system on a loop device over the mounted file, as a hypervisor's host might have it.
#[test]
fn a_file_system_on_a_loop_device() {
    if !has_fuse() || !has_root() || !has("losetup") || !has("mkfs.ext4") {
        return;
    }
    let mut stage = both("data");
    let file = stage.file();
    let attach = ["--find", "--show", "--direct-io=on", text(&file)];
    let attached = Command::new("losetup").args(attach).output();
    let attached = attached.expect("losetup starts");
    if !attached.status.success() {
        let why = String::from_utf8_lossy(&attached.stderr);
        return skip(Need::Loop, &format!("no loop devices here: {}", why.trim()));
    }
    let device = String::from_utf8_lossy(&attached.stdout).trim().to_owned();
    let loop_device = Loop { device };
    run("mkfs.ext4", &["-q", "-F", &loop_device.device]);
    let inner = stage.path("inner");
    fs::create_dir(&inner).expect("a directory");
    run("mount", &[&loop_device.device, text(&inner)]);
    let content = fs::read(&stage.image).expect("the image");
    let content = &content[..20 << 20];
    let written = fs::write(inner.join("file"), content);
    unmount(&inner);
    written.expect("a file in the file system");
    run("e2fsck", &["-f", "-n", &loop_device.device]);
    drop(loop_device);
    stop(&mut stage);
    run("e2fsck", &["-f", "-n", text(&stage.image)]);
    run(
        "mount",
        &["-o", "loop,ro", text(&stage.image), text(&inner)],
    );
    let found = fs::read(inner.join("file"));
    unmount(&inner);
    assert!(
        found.expect("the file") == content,
        "the file has other content"
    );
}

struct Loop {
    device: String,
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.device]);
    }
}

/// Reads by parts of blocks, over the edges of blocks and of the file.
#[test]
fn reads_of_any_range() {
    if !has_fuse() {
        return;
    }
    let mut stage = both("data");
    let expected = fs::read(&stage.image).expect("the image");
    let file = File::open(stage.file()).expect("the mounted file");
    let size = expected.len();
    let edges = [
        0,
        1,
        511,
        4095,
        4096,
        4097,
        65_535,
        131_072,
        size - 4097,
        size - 1,
        size,
    ];
    for begin in edges {
        for length in [1, 2, 4095, 4096, 4097, 3 * BLOCK + 5, 1 << 20] {
            let mut buffer = vec![0; length];
            let got = file.read_at(&mut buffer, begin as u64).expect("a read");
            let end = size.min(begin + length);
            assert!(got > 0 || begin == size, "nothing at {begin}");
            assert!(begin + got <= end, "{got} bytes at {begin}");
            assert!(
                buffer[..got] == expected[begin..begin + got],
                "{length} at {begin}"
            );
        }
    }
    drop(file);
    stop(&mut stage);
}
