//! qcow2 images, which qemu-storage-daemon and qemu-nbd read and write for `futae serve`.

use futae_testkit::nbd::Plain as Client;
use futae_testkit::wait::eventually;
use futae_tests::BLOCK;
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::{has, run, text};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;

const EXPORT: &str = "vm2";
const BLOCKS: usize = 512;

/// The blocks of a disk.
fn disk(seed: usize) -> Vec<u8> {
    (0..BLOCKS * BLOCK)
        .map(|at| ((at / BLOCK * 7 + seed) % 251) as u8)
        .collect()
}

/// qemu-storage-daemon, as the book starts it.
fn storage_daemon(image: &Path, socket: &Path) -> Running {
    let file = format!(
        "driver=file,node-name=file,filename={},cache.direct=on,aio=io_uring",
        text(image)
    );
    let disk = format!("driver=qcow2,node-name={EXPORT},file=file,discard=unmap");
    let server = format!("addr.type=unix,addr.path={}", text(socket));
    let export = format!("type=nbd,id={EXPORT},node-name={EXPORT},writable=on");
    let mut daemon = Command::new("qemu-storage-daemon");
    daemon.args(["--blockdev", &file, "--blockdev", &disk]);
    daemon.args(["--nbd-server", &server, "--export", &export]);
    Running::start("qemu-storage-daemon", daemon)
}

/// qemu-nbd, as the book starts it, but for the background.
fn qemu_nbd(image: &Path, socket: &Path) -> Running {
    let mut server = Command::new("qemu-nbd");
    server.args([
        "--persistent",
        "--shared=4",
        "--format=qcow2",
        "--cache=none",
        "--aio=io_uring",
    ]);
    server.args([
        "--export-name",
        EXPORT,
        "--socket",
        text(socket),
        text(image),
    ]);
    Running::start("qemu-nbd", server)
}

/// What is in a qcow2 image of which nobody else has hold.
fn content(image: &Path) -> Vec<u8> {
    run("qemu-img", &["check", "-q", text(image)]);
    let raw = image.with_extension("raw");
    run(
        "qemu-img",
        &[
            "convert",
            "-f",
            "qcow2",
            "-O",
            "raw",
            text(image),
            text(&raw),
        ],
    );
    fs::read(raw).expect("the disk")
}

#[test]
fn a_qcow2_disk_is_read_and_written_through_the_cache() {
    for (tool, start) in [
        (
            "qemu-storage-daemon",
            storage_daemon as fn(&Path, &Path) -> Running,
        ),
        ("qemu-nbd", qemu_nbd),
    ] {
        if !has(tool) || !has("qemu-img") {
            return;
        }
        let mut stage = Stage::new(8);
        let (image, socket) = (stage.path("vm2.qcow2"), stage.path("below.sock"));
        let mut expected = disk(1);
        fs::write(stage.path("vm2.img"), &expected).expect("a disk");
        let raw = stage.path("vm2.img");
        run(
            "qemu-img",
            &[
                "convert",
                "-f",
                "raw",
                "-O",
                "qcow2",
                text(&raw),
                text(&image),
            ],
        );
        let mut below = start(&image, &socket);
        eventually(tool, || socket.exists());
        let export = format!("{EXPORT}=nbd+unix:///{EXPORT}?socket={}", text(&socket));
        stage.serve(&["--export", &export, "--policy", "lru", "--cache", "4MiB"]);
        let mut client = Client::connect(&stage.socket, EXPORT).expect("connected");
        assert_eq!(client.export().size_bytes, expected.len() as u64);
        for _ in 0..2 {
            for (at, block) in expected.chunks(BLOCK).enumerate() {
                let read = client.read((at * BLOCK) as u64, BLOCK);
                assert!(
                    read.expect("connected").expect("read") == block,
                    "{tool}: block {at}"
                );
            }
        }
        let status = stage.status();
        assert_eq!(
            status["engines"][0]["hits"], BLOCKS,
            "{tool}: the second pass"
        );
        // Every other block, also by parts of a block.
        for at in (0..BLOCKS).step_by(2) {
            let range = at * BLOCK + 512..(at + 1) * BLOCK;
            expected[range.clone()].fill(0xa5);
            let written = client.write(range.start as u64, &expected[range.clone()]);
            written.expect("connected").expect("written");
        }
        client.flush().expect("connected").expect("flushed");
        drop(client);
        stage.stop_serve();
        below.signal(Signal::TERM);
        below.wait();
        assert!(
            content(&image) == expected,
            "{tool}: the image holds something else"
        );
    }
}
