//! The file system below a guest's disk is full: QEMU stops the guest, which goes on when there is room again.

use futae_machine::{Disk, Guest, Kernel, Plan};
use futae_testkit::wait::{eventually, within};
use futae_tests::guest_disk::{MIB, boot, order};
use futae_tests::mounted::Mounted;
use futae_tests::stage::Stage;
use futae_tests::tools::{run, text};
use serde_json::json;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

const DISK_MIB: u64 = 64;
/// What the guest writes; not all of it has room at first.
const WRITTEN_MIB: u64 = 24;
const SMALL: &str = "size=12m";
const LARGE: &str = "remount,size=100m";
const LIMIT: Duration = Duration::from_secs(300);

fn status(guest: &Guest) -> String {
    let told = guest.order_qemu(&json!({ "execute": "query-status" }));
    let told = told.unwrap_or_else(|error| panic!("{error}"));
    told["status"].as_str().unwrap_or_default().to_owned()
}

/// Writes to a disk whose store has no room for that.
fn write_to_a_full_store(arguments: &[&str]) {
    let mut stage = Stage::bare();
    let Some(small) = Mounted::new("tmpfs", SMALL) else {
        return;
    };
    stage.image = small.path().join("disk.img");
    let image = File::create(&stage.image).expect("an image");
    image.set_len(DISK_MIB * MIB).expect("a sparse image");
    let cache = [&["--cache", "8MiB", "--policy", "lru"], arguments].concat();
    stage.serve(&cache);
    let uri = stage.uri();
    let plan = Plan::new(Kernel::Debian61)
        .cache(Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"))
        .memory_mib(256)
        .limit(LIMIT)
        .movable()
        .disk(Disk::Nbd { uri });
    let Some(mut guest) = boot(plan) else { return };
    order(
        &mut guest,
        &format!(
            "head -c {} /dev/urandom >/tmp/data
             (dd if=/tmp/data of=/dev/vda bs=64k conv=fsync >/tmp/dd 2>&1; echo $? >/tmp/all; mv /tmp/all /tmp/said) &",
            WRITTEN_MIB * MIB
        ),
    );
    eventually("QEMU stops the guest", || status(&guest) == "io-error");
    run("mount", &["-o", LARGE, text(small.path())]);
    // Each write that fails stops it anew.
    let goes_on = within(LIMIT, || {
        if status(&guest) != "io-error" {
            return Ok(());
        }
        let told = guest.order_qemu(&json!({ "execute": "cont" }));
        Err(told)
    });
    goes_on.expect("there is room");
    let said = order(
        &mut guest,
        "while [ ! -s /tmp/said ]; do sleep 0.1; done; cat /tmp/said /tmp/dd",
    );
    assert!(said.starts_with("0\n"), "{said}{}", guest.console());
    order(
        &mut guest,
        &format!(
            "echo 1 >/proc/sys/vm/drop_caches; head -c {} /dev/vda | cmp - /tmp/data",
            WRITTEN_MIB * MIB
        ),
    );
    let errors = order(&mut guest, "dmesg | grep -i 'i/o error' || true");
    assert_eq!(errors, "", "the guest saw one");
    drop(guest);
    stage.end_serve();
}

#[test]
fn a_guest_goes_on_when_a_full_store_has_room_again() {
    write_to_a_full_store(&[]);
}

#[test]
fn a_guest_goes_on_when_a_full_store_below_write_back_has_room_again() {
    write_to_a_full_store(&["--write-mode", "write-back"]);
}
