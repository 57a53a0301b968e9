//! Incremental backups by QEMU's own dirty bitmap of a disk that `futae serve` serves: the copy becomes what the disk is, and only what
//! changed is read.

use futae_testkit::nbd::Plain as Client;
use futae_testkit::wait::{eventually, obtain};
use futae_tests::BLOCK;
use futae_tests::process::Running;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::{has, text};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

const BLOCKS: u64 = 1024;
/// Bytes of a bit of the bitmap.
const GRANULARITY: u64 = 65_536;

/// QEMU's monitor.
struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn connect(socket: &Path) -> Self {
        let stream = obtain("the monitor", || UnixStream::connect(socket));
        let mut monitor = Self(BufReader::new(stream));
        monitor.line();
        monitor.ask("qmp_capabilities", &json!({}));
        monitor
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).expect("JSON")
    }

    fn ask(&mut self, what: &str, arguments: &Value) -> Value {
        let order = json!({ "execute": what, "arguments": arguments });
        let stream = self.0.get_mut();
        writeln!(stream, "{order}").expect("sent");
        loop {
            let line = self.line();
            assert!(line.get("error").is_none(), "{order}: {line}");
            if let Some(returned) = line.get("return") {
                return returned.clone();
            }
        }
    }

    /// Backs the disk up to the copy, and waits until that is over.
    fn backup(&mut self, how: &Value) {
        let mut arguments = json!({ "job-id": "backup", "device": "disk", "target": "copy", "auto-dismiss": false });
        for (key, value) in how.as_object().expect("an object") {
            arguments[key] = value.clone();
        }
        self.ask("blockdev-backup", &arguments);
        eventually("the backup ends", || {
            let jobs = self.ask("query-jobs", &json!({}));
            assert!(jobs[0].get("error").is_none(), "{jobs}");
            jobs[0]["status"] == "concluded"
        });
        self.ask("job-dismiss", &json!({ "id": "backup" }));
    }
}

#[test]
fn a_bitmap_of_qemu_has_only_what_changed_read_again() {
    if !has("qemu-storage-daemon") {
        return;
    }
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", "64blocks", "--policy", "lru"]);
    let (copy, monitor) = (stage.path("copy.img"), stage.path("qmp"));
    let socket = stage.path("qemu.sock");
    let file = File::create(&copy).expect("a file");
    file.set_len(BLOCKS * BLOCK as u64).expect("room");
    let disk = format!(
        "driver=nbd,node-name=disk,server.type=unix,server.path={},export={EXPORT}",
        text(&stage.socket)
    );
    let target = format!("driver=file,node-name=copy,filename={}", text(&copy));
    let mut qemu = Command::new("qemu-storage-daemon");
    qemu.args(["--blockdev", &disk, "--blockdev", &target]);
    let at = format!("socket,id=m,path={},server=on,wait=off", text(&monitor));
    qemu.args(["--chardev", &at, "--monitor", "chardev=m"]);
    // What the guest would write.
    let server = format!("addr.type=unix,addr.path={}", text(&socket));
    qemu.args(["--nbd-server", &server, "--export"]);
    qemu.arg("type=nbd,id=e,node-name=disk,name=disk,writable=on");
    let mut qemu = Running::start("qemu-storage-daemon", qemu);
    let mut monitor = Monitor::connect(&monitor);
    let bitmap = json!({ "node": "disk", "name": "changed", "granularity": GRANULARITY });
    monitor.ask("block-dirty-bitmap-add", &bitmap);
    monitor.backup(&json!({ "sync": "full" }));
    let image = || fs::read(&stage.image).expect("the image");
    assert!(fs::read(&copy).expect("the copy") == image());

    let mut guest = Client::connect(&socket, "disk").expect("connected");
    for block in [3, 4, 700] {
        let written = guest.write(block * BLOCK as u64, &[0xa5; BLOCK]);
        written.expect("connected").expect("written");
    }
    let requests = || stage.status()["engines"][0]["requests"].as_u64();
    let before = requests().expect("a number");
    let only_changed = json!({ "sync": "incremental", "bitmap": "changed" });
    monitor.backup(&only_changed);
    let came = requests().expect("a number") - before;
    assert!(fs::read(&copy).expect("the copy") == image());
    // Two bits of the bitmap.
    assert_eq!(came, 2 * GRANULARITY / BLOCK as u64);
    drop(guest);
    qemu.signal(Signal::TERM);
    qemu.wait();
    stage.stop_serve();
}
