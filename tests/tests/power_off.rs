//! A guest whose power is cut while it writes, again and again, and often the server with it: what the guest said to be on stable
//! storage is there when it boots again, and its file system is whole.
//!
//! `FUTAE_POWER_OFFS` says how often in each write mode, and `FUTAE_POWER_OFFS_SEED` which of them take the server along.

use futae_machine::{Disk, Guest, Kernel, Plan};
use futae_policy::Prng;
use futae_testkit::stamp::Stamp;
use futae_testkit::wait::eventually;
use futae_tests::BLOCK;
use futae_tests::binary::futae;
use futae_tests::guest_disk::{MIB, boot, order};
use futae_tests::process::Running;
use futae_tests::promises::{Promises, Said};
use futae_tests::stage::Stage;
use futae_tests::tools::{Need, has, run, skip, text};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

const POWER_OFFS: u64 = 2;
const SEED: u64 = 1;
/// The disk with the file system, `/dev/vda`.
const FILES_MIB: u64 = 48;
/// The other disk, `/dev/vdb`.
const BLOCKS: u64 = 2048;
/// A part of both.
const CACHE: &str = "4MiB";
/// The guest says that much before its power is cut, at least and at most.
const LINES: (u64, u64) = (5, 150);
/// How long a guest may live, which has to boot without hardware virtualisation on a busy machine.
const A_LIFE: Duration = Duration::from_secs(300);
const PORT: &str = "promises";
const EARLIER_BOOT: &str = "00000000-1111-2222-3333-444444444444";
/// What a write of the second disk's store takes, in milliseconds: long enough that an answer before its end is seen.
const WRITE_MS: u32 = 3;

/// What is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Guest,
    /// The server first.
    Both,
    /// The guest first.
    BothInTurn,
}

/// How the guest reaches its disks.
#[derive(Clone, Copy, Debug)]
enum Way {
    Nbd,
    VhostUser,
}

struct Host {
    stage: Stage,
    write_mode: &'static str,
}

impl Host {
    fn new(write_mode: &'static str) -> Self {
        let stage = Stage::bare();
        let host = Self { stage, write_mode };
        let files = host.image("files");
        let image = File::create(&files).expect("an image");
        image.set_len(FILES_MIB * MIB).expect("room");
        run("mke2fs", &["-q", "-F", "-t", "ext4", text(&files)]);
        let mut blocks = File::create(host.image("blocks")).expect("an image");
        let mut bytes = vec![0; BLOCK];
        for block in 0..BLOCKS {
            Stamp { block, version: 0 }.fill(&mut bytes);
            blocks.write_all(&bytes).expect("room");
        }
        host
    }

    fn image(&self, export: &str) -> PathBuf {
        self.stage.path(&format!("{export}.img"))
    }

    fn disk(&self, export: &str, way: Way) -> Disk {
        match way {
            Way::Nbd => {
                let socket = text(&self.stage.socket).to_owned();
                Disk::Nbd {
                    uri: format!("nbd+unix:///{export}?socket={socket}"),
                }
            }
            Way::VhostUser => Disk::VhostUser {
                socket: self.stage.path(&format!("{export}.sock")),
            },
        }
    }

    /// Starts the store of the second disk.
    fn store(&self) -> Running {
        let socket = self.stage.path("store.sock");
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args([
            "--foreground",
            "--exit-with-parent",
            "--filter=delay",
            "--unix",
        ]);
        nbdkit.arg(&socket).arg("file").arg(self.image("blocks"));
        nbdkit.arg(format!("delay-write={WRITE_MS}ms"));
        let running = Running::start("nbdkit", nbdkit);
        eventually("nbdkit", || socket.exists());
        running
    }

    fn source(&self, export: &str) -> String {
        match export {
            "blocks" => format!(
                "nbd+unix:///?socket={}",
                text(&self.stage.path("store.sock"))
            ),
            _ => text(&self.image(export)).to_owned(),
        }
    }

    /// Where the server's unclean marks are.
    fn marks(&self) -> PathBuf {
        self.stage.path("marks")
    }

    /// Kills the server. Its marks then say that the machine has been started again since: no client is left that could be told.
    fn cut(&self, server: Running) {
        server.kill();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot ID");
        // Without write-back there are none.
        for mark in fs::read_dir(self.marks()).into_iter().flatten() {
            let path = mark.expect("a mark").path();
            let note = fs::read_to_string(&path).expect("a mark");
            fs::write(&path, note.replace(boot.trim(), EARLIER_BOOT)).expect("room");
        }
    }

    /// Starts the server; no guest is running.
    fn serve(&self) -> Running {
        let mut command = futae(&["serve", "--json", "--cache", CACHE]);
        command.args(["--write-mode", self.write_mode]);
        command.arg("--state-dir").arg(self.marks());
        for export in ["files", "blocks"] {
            command.arg("--export");
            command.arg(format!("{export}={}", self.source(export)));
            let socket = self.stage.path(&format!("{export}.sock"));
            command.arg("--listen");
            command.arg(format!("{export}=vhost-user:{}", text(&socket)));
        }
        command.arg("--listen");
        command.arg(format!("unix:{}", text(&self.stage.socket)));
        let mut server = Running::start("futae serve", command);
        server.line();
        server
    }
}

/// What a guest says, line by line, until its end.
fn listen(listener: &UnixListener) -> Receiver<String> {
    let (stream, _) = listener.accept().expect("QEMU has connected");
    let (sender, lines) = channel();
    thread::spawn(move || {
        // The last line may have been cut off.
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Replays the journal, checks the file system, and mounts it.
const MOUNT: &str = "
mount -t ext4 /dev/vda /mnt && umount /mnt || exit 1
e2fsck -f -n /dev/vda >/tmp/fsck 2>&1 || { cat /tmp/fsck; exit 1; }
mount -t ext4 /dev/vda /mnt || exit 1
for port in /sys/class/virtio-ports/*; do
    [ \"$(cat $port/name)\" = promises ] && port=/dev/${port##*/} && break
done
promiser $port /dev/vdb /mnt >/tmp/promiser 2>&1 &
";

fn number(name: &str, otherwise: u64) -> u64 {
    let asked = std::env::var(name).ok();
    asked.map_or(otherwise, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number"))
    })
}

/// Boots a guest, and takes what it finds.
fn start(
    host: &Host,
    plan: &Plan,
    listener: &UnixListener,
    promises: &mut Promises,
) -> Option<(Guest, Receiver<String>)> {
    let mut guest = boot(plan.clone())?;
    let lines = listen(listener);
    order(&mut guest, MOUNT);
    loop {
        let line = lines.recv_timeout(A_LIFE);
        let line = line
            .unwrap_or_else(|error| panic!("{}: {error}: {}", host.write_mode, guest.console()));
        match line.parse().unwrap_or_else(|problem| panic!("{problem}")) {
            Said::Begins => return Some((guest, lines)),
            Said::Failed(why) => panic!("{why}: {}", guest.console()),
            said => promises.take(&said),
        }
    }
}

fn power_offs(write_mode: &'static str) {
    if !["mke2fs", "e2fsck", "nbdkit"].iter().all(|tool| has(tool)) {
        return;
    }
    if fs::metadata("/etc/machine-id").is_err() {
        skip(Need::Systemd, "this machine has no /etc/machine-id");
        return;
    }
    let (count, seed) = (
        number("FUTAE_POWER_OFFS", POWER_OFFS),
        number("FUTAE_POWER_OFFS_SEED", SEED),
    );
    let mut prng = Prng::new(seed);
    let host = Host::new(write_mode);
    let port = host.stage.path("promises.sock");
    let listener = UnixListener::bind(&port).expect("a socket");
    let plan = |way| {
        Plan::new(Kernel::Debian61)
            .cache(Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"))
            .memory_mib(160)
            .limit(A_LIFE)
            .disk(host.disk("files", way))
            .disk(host.disk("blocks", way))
            .port(PORT, &port)
            .file("bin/promiser", env!("CARGO_BIN_EXE_promiser"))
            .file("bin/e2fsck", path("e2fsck"))
    };
    let plans = [plan(Way::Nbd), plan(Way::VhostUser)];
    let mut promises = Promises::default();
    let _store = host.store();
    let mut server = host.serve();
    let mut with_server = 0;
    for round in 0..count {
        let plan = &plans[(round % 2) as usize];
        let Some((guest, lines)) = start(&host, plan, &listener, &mut promises) else {
            return;
        };
        let enough = LINES.0 + prng.below(LINES.1 - LINES.0 + 1);
        for _ in 0..enough {
            let line = lines.recv_timeout(A_LIFE);
            let line = line.unwrap_or_else(|error| panic!("{error}: {}", guest.console()));
            match line.parse().unwrap_or_else(|problem| panic!("{problem}")) {
                Said::Failed(why) => panic!("round {round}: {why}: {}", guest.console()),
                said => promises.take(&said),
            }
        }
        let cut = [Cut::Guest, Cut::Both, Cut::BothInTurn][prng.below(3) as usize];
        match cut {
            Cut::Guest => drop(guest),
            Cut::Both => {
                host.cut(server);
                drop(guest);
                server = host.serve();
            }
            Cut::BothInTurn => {
                drop(guest);
                host.cut(server);
                server = host.serve();
            }
        }
        with_server += u64::from(cut != Cut::Guest);
        for line in lines {
            // Its disk may have failed before its power did. The last line may be a part of one.
            if let Ok(said @ Said::Promised(_)) = line.parse() {
                promises.take(&said);
            }
        }
    }
    let last = start(
        &host,
        &plans[(count % 2) as usize],
        &listener,
        &mut promises,
    );
    drop(last);
    let ended = server.stop();
    assert!(ended.status.success(), "{}", ended.errors);
    println!(
        "{write_mode}: {count} power-offs, {with_server} of them with the server killed: {} versions promised, {} places compared, none lost",
        promises.made, promises.compared
    );
    assert!(promises.compared >= count, "{promises:?}");
}

#[test]
fn what_a_guest_flushed_outlives_its_power_with_write_through() {
    power_offs("write-through");
}

#[test]
fn what_a_guest_flushed_outlives_its_power_with_write_back() {
    power_offs("write-back");
}

fn path(tool: &str) -> String {
    let found = run("sh", &["-c", &format!("command -v {tool}")]);
    String::from_utf8_lossy(&found.stdout).trim().to_owned()
}
