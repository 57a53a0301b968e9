//! A guest is migrated while it writes, between QEMUs whose servers each have a cache of their own over one image: what it reads is
//! what it wrote last, wherever it wrote it.

use futae_machine::{Disk, Guest, Kernel, Plan};
use futae_testkit::wait::eventually;
use futae_tests::binary::{binary, futae, run as run_futae};
use futae_tests::guest_disk::{MIB, await_writes, boot, order, socket};
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::{run, text};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DISK_MIB: u64 = 16;
/// Holds all of the disk, so that nothing old goes by itself.
const CACHE: &str = "48MiB";
const WRITES: u32 = 1000;
const LIMIT: Duration = Duration::from_secs(400);

/// How the guest reaches its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Over NBD, from a server that has other exports, too, and runs all the time.
    Nbd,
    /// As a vhost-user device, from a server of its own, which is started and stopped with it.
    VhostUser,
}

/// A host of guests.
struct Host {
    stage: Stage,
    image: PathBuf,
    way: Way,
    arguments: Vec<String>,
    server: Option<Running>,
}

impl Host {
    fn new(image: &Path, way: Way, arguments: &[&str]) -> Self {
        let mut host = Self {
            stage: Stage::bare(),
            image: image.to_owned(),
            way,
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            server: None,
        };
        if way == Way::Nbd {
            let other = host.stage.path("other.img");
            let file = File::create(&other).expect("an image");
            file.set_len(MIB).expect("room");
            let address = format!("unix:{}", text(&host.stage.socket));
            host.start(&format!("other={}", text(&other)), &address);
        }
        host
    }

    fn start(&mut self, export: &str, address: &str) {
        let mut command = futae(&["serve", "--json", "--cache", CACHE, "--policy", "lru"]);
        let control = format!("unix:{}", text(&self.stage.control));
        command.args([
            "--export",
            export,
            "--listen",
            address,
            "--control",
            &control,
        ]);
        command.args(&self.arguments);
        let mut server = Running::start("futae serve", command);
        server.line();
        self.server = Some(server);
    }

    /// Has the host serve the guest's disk.
    fn take(&mut self, options: &str) {
        let export = format!("disk={}{options}", text(&self.image));
        match self.way {
            Way::Nbd => self.export(&["add", text(&self.stage.control), &export]),
            Way::VhostUser => {
                let address = format!("disk=vhost-user:{}", text(&socket(&self.stage)));
                self.start(&export, &address);
            }
        }
    }

    fn give(&mut self) {
        match self.way {
            Way::Nbd => self.export(&["remove", text(&self.stage.control), "disk"]),
            Way::VhostUser => self.stop(),
        }
    }

    fn export(&self, arguments: &[&str]) {
        let said = run_futae(&[&["export"], arguments].concat());
        assert!(said.status.success(), "{arguments:?}: {said:?}");
    }

    fn plan(&self) -> Plan {
        let disk = match self.way {
            Way::Nbd => Disk::Nbd {
                uri: self.stage.uri(),
            },
            Way::VhostUser => Disk::VhostUser {
                socket: socket(&self.stage),
            },
        };
        Plan::new(Kernel::Debian61)
            .cache(Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"))
            .memory_mib(256)
            .limit(LIMIT)
            .movable()
            .file("bin/futae", binary())
            .disk(disk)
    }

    fn dirty_blocks(&self) -> u64 {
        let status = self.stage.status();
        let volumes = status["engines"][0]["volumes"].as_array();
        let disk = volumes.and_then(|all| all.iter().find(|one| one["name"] == "disk"));
        disk.map_or(0, |disk| disk["dirty_blocks"].as_u64().expect("a number"))
    }

    fn stop(&mut self) {
        if let Some(ended) = self.server.take().map(Running::stop) {
            assert!(ended.status.success(), "{}", ended.errors);
        }
    }
}

/// Reads and writes, and compares what is read with what was written, until it is [stopped](end).
fn begin(guest: &mut Guest) {
    let load = "futae load /dev/vda --direct --verify --overwrite --writes 0.4 --threads 2 --seconds 3600 --json";
    order(
        guest,
        &format!(
            "({load} >/tmp/out 2>/tmp/errors & echo $! >/tmp/load; wait; cat /tmp/errors >/tmp/said) &"
        ),
    );
}

/// Waits for some of its writes.
fn go_on(guest: &mut Guest, during: &str) {
    await_writes(guest, WRITES);
    let said = order(guest, "cat /tmp/said /tmp/out 2>/dev/null || true");
    assert_eq!(said, "", "{during}: {}", guest.console());
}

fn end(guest: &mut Guest) {
    let said = order(
        guest,
        "kill -INT $(cat /tmp/load); until [ -s /tmp/said ]; do sleep 0.1; done; cat /tmp/out",
    );
    let report: Value = serde_json::from_str(&said).expect("a report");
    println!("{} operations", report["operations"]);
    assert_eq!(report["verify_errors"], 0, "{report}");
}

fn migrate(guest: Guest, plan: &Plan) -> Guest {
    let (guest, moved) = guest
        .migrate(plan)
        .unwrap_or_else(|error| panic!("{error}"));
    println!("{moved:?}");
    guest
}

fn there_and_back(way: Way, write_mode: &str) {
    let place = Stage::bare();
    let image = place.path("disk.img");
    let file = File::create(&image).expect("an image");
    file.set_len(DISK_MIB * MIB).expect("room");
    // What is not flushed stays in the cache.
    let late = [
        "--write-mode",
        write_mode,
        "--dirty-max",
        "100%",
        "--dirty-age-max",
        "1h",
    ];
    let arguments = match write_mode {
        "write-back" => &late[..],
        _ => &late[..2],
    };
    let mut hosts = [(); 2].map(|()| Host::new(&image, way, arguments));
    hosts[0].take("");
    let Some(mut guest) = boot(hosts[0].plan()) else {
        return;
    };
    begin(&mut guest);
    go_on(&mut guest, "before any move");
    for (from, to) in [(0, 1), (1, 0), (0, 1)] {
        hosts[to].take(",incoming");
        guest = migrate(guest, &hosts[to].plan());
        go_on(&mut guest, "after the move");
        let dirty = hosts[to].dirty_blocks();
        assert_eq!(dirty, 0, "the other server can still have a mark");
        hosts[from].give();
        go_on(&mut guest, "after the other server has let go");
        if write_mode == "write-back" {
            eventually("writes are kept once the image is locked", || {
                go_on(&mut guest, "once the image is locked");
                hosts[to].dirty_blocks() > 0
            });
        }
    }
    end(&mut guest);
    let sum = order(&mut guest, "md5sum </dev/vda");
    drop(guest);
    hosts.iter_mut().for_each(Host::stop);
    let there = run("md5sum", &[text(&image)]).stdout;
    assert_eq!(sum[..32], String::from_utf8_lossy(&there)[..32]);
}

#[test]
fn a_guest_that_is_migrated_between_two_servers_reads_what_it_wrote() {
    there_and_back(Way::Nbd, "write-through");
}

#[test]
fn a_guest_that_is_migrated_between_two_servers_that_write_back_reads_what_it_wrote() {
    there_and_back(Way::VhostUser, "write-back");
}
