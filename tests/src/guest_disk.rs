//! A guest whose disk is `futae serve --listen vhost-user:PATH`.

use crate::binary::futae;
use crate::process::Running;
use crate::stage::Stage;
use crate::tools::{Need, skip, text};
use futae_machine::{Disk, Guest, Kernel, Plan};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;

/// The image of the disk, empty.
pub fn make_image(stage: &Stage, mib: u64) {
    let file = File::create(&stage.image).expect("an image");
    file.set_len(mib * MIB).expect("room");
}

/// The socket of the disk.
#[must_use]
pub fn socket(stage: &Stage) -> PathBuf {
    stage.path("disk.sock")
}

/// Starts a server of the image, as a disk, and waits until it is ready.
#[must_use]
pub fn serve(stage: &Stage, arguments: &[&str]) -> Running {
    let export = format!("disk={}", text(&stage.image));
    let listen = format!("vhost-user:{}", text(&socket(stage)));
    let control = format!("unix:{}", text(&stage.control));
    let mut command = futae(&["serve", "--json", "--export", &export, "--listen", &listen]);
    command.args(["--cache", "16MiB", "--control", &control]);
    command.args(arguments);
    let mut server = Running::start("futae serve", command);
    server.line();
    server
}

/// A guest with that disk. `cache` is where packages are kept.
#[must_use]
pub fn plan(stage: &Stage, cache: &Path, limit: Duration) -> Plan {
    let disk = Disk::VhostUser {
        socket: socket(stage),
    };
    Plan::new(Kernel::Debian61)
        .cache(cache)
        .memory_mib(256)
        .limit(limit)
        .disk(disk)
}

/// Boots it; none, and it says why, where that cannot be had.
#[must_use]
pub fn boot(plan: Plan) -> Option<Guest> {
    match plan.boot() {
        Ok(guest) => Some(guest),
        Err(error) if error.is_missing() => {
            skip(Need::Qemu, &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs a script in the guest, which must succeed; what it prints.
pub fn order(guest: &mut Guest, script: &str) -> String {
    let told = guest.run(script).unwrap_or_else(|error| panic!("{error}"));
    let log = guest.console();
    assert_eq!(
        told.status, 0,
        "{script}: {}{}{log}",
        told.stdout, told.stderr
    );
    told.stdout
}

/// Waits until the guest's disk has been written to so often more, or the load has said in `/tmp/said` how it ended.
pub fn await_writes(guest: &mut Guest, count: u32) {
    let done = "awk '{print $5}' /sys/block/vda/stat";
    let script = format!(
        "a=$({done}); while [ $({done}) -lt $((a+{count})) ] && [ ! -s /tmp/said ]; do sleep 0.1; done"
    );
    order(guest, &script);
}
