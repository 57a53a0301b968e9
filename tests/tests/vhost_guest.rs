//! A guest on a vhost-user disk: what it writes is what it reads, also when the server is killed under it.

use futae_machine::{Disk, Guest, Kernel, Plan};
use futae_tests::binary::{binary, futae};
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::{Need, skip, text};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const DISK_MIB: u64 = 64;
/// Times that the server is killed while the guest writes.
const KILLS: u32 = 5;

fn order(guest: &mut Guest, script: &str) -> String {
    let told = guest.run(script).expect("it runs");
    let log = guest.console();
    assert_eq!(
        told.status, 0,
        "{script}: {}{}{log}",
        told.stdout, told.stderr
    );
    told.stdout
}

fn serve(stage: &Stage) -> Running {
    let image = format!("disk={}", text(&stage.path("disk.img")));
    let socket = format!("vhost-user:{}", text(&stage.path("disk.sock")));
    let control = format!("unix:{}", text(&stage.control));
    let arguments = [
        "serve",
        "--export",
        &image,
        "--cache",
        "16MiB",
        "--listen",
        &socket,
        "--control",
        &control,
        "--json",
    ];
    let mut server = Running::start("futae serve", futae(&arguments));
    server.line();
    server
}

#[test]
fn a_guest_on_a_vhost_user_disk_reads_what_it_wrote_over_kills_of_the_server() {
    let stage = Stage::bare();
    let file = File::create(stage.path("disk.img")).expect("an image");
    file.set_len(DISK_MIB * MIB).expect("room");
    let mut server = serve(&stage);
    let disk = Disk::VhostUser {
        socket: stage.path("disk.sock"),
    };
    let plan = Plan::new(Kernel::Debian61)
        .cache(Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"))
        .memory_mib(256)
        .limit(Duration::from_secs(400))
        .disk(disk)
        .file("bin/futae", binary());
    let mut guest = match plan.boot() {
        Ok(guest) => guest,
        Err(error) if error.is_missing() => return skip(Need::Qemu, &error.to_string()),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(
        order(&mut guest, "cat /sys/block/vda/serial").trim(),
        "disk"
    );
    let sectors = order(&mut guest, "cat /sys/block/vda/size");
    assert_eq!(sectors.trim(), (DISK_MIB * MIB / 512).to_string());
    // Each write is read back and compared; versions of blocks are kept in memory.
    let load = "futae load /dev/vda --direct --writes 0.5 --verify --overwrite --threads 4";
    order(
        &mut guest,
        &format!("{load} --operations 2000 >/tmp/first 2>&1 || {{ cat /tmp/first; false; }}"),
    );
    order(
        &mut guest,
        &format!("({load} --seconds 30 --seed 2 >/tmp/load 2>&1; echo $? >/tmp/status) &"),
    );
    for _ in 0..KILLS {
        order(
            &mut guest,
            "a=$(awk '{print $5}' /sys/block/vda/stat); while [ $(awk '{print $5}' /sys/block/vda/stat) -lt $((a+200)) ]; do sleep 0.1; done",
        );
        server.kill();
        server = serve(&stage);
    }
    let said = order(
        &mut guest,
        "while [ ! -s /tmp/status ]; do sleep 0.2; done; cat /tmp/status /tmp/load",
    );
    assert!(said.starts_with("0\n"), "{said}");
    let trimmed = order(
        &mut guest,
        "blkdiscard /dev/vda 2>&1 || true; cat /sys/block/vda/queue/discard_max_bytes",
    );
    assert_ne!(
        trimmed.trim().lines().last(),
        Some("0"),
        "the disk takes discards"
    );
    drop(guest);
    drop(server);
}
