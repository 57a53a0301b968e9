//! `futae mount --residency kernel` in guests: with Linux 6.12 the kernel holds the pages, with 6.1 the mount says what is missing and is
//! the ordinary one.

use futae_machine::{Guest, Kernel, Plan};
use futae_tests::BLOCK;
use futae_tests::binary::binary;
use futae_tests::kernel_pages::number;
use futae_tests::stage::Stage;
use futae_tests::tools::{Need, skip};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Mounts a disk and a tree, with room for 300 blocks each; waits until they are there.
const MOUNTS: &str = "mkdir -p /disk /above /below/hot /below/cold
for n in 1 2 3 4; do head -c 204800 /dev/urandom >/below/hot/$n; head -c 409600 /dev/urandom >/below/cold/$n; done
futae mount /dev/vda /disk --name image --json --cache 300blocks --policy sieve --residency kernel --control unix:/disk.sock >/disk.out 2>/disk.err &
futae mount /below /above --json --cache 300blocks --policy 'directory(sieve)' --protect hot --residency kernel --control unix:/tree.sock >/tree.out 2>/tree.err &
while ! [ -s /disk.out ] || ! [ -s /tree.out ]; do sleep 0.1; done
cat /disk.out /tree.out";

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

/// A guest with both mounts, and what they say of themselves.
fn mounted(stage: &Stage, kernel: Kernel) -> Option<(Guest, Vec<Value>)> {
    let plan = Plan::new(kernel)
        .cache(Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"))
        .module("fuse")
        .limit(Duration::from_secs(300))
        .disk(stage.image.clone())
        .file("bin/futae", binary());
    let mut guest = match plan.boot() {
        Ok(guest) => guest,
        Err(error) if error.is_missing() => {
            skip(Need::Qemu, &error.to_string());
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let said = order(&mut guest, MOUNTS);
    let ready = said
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let ready = ready.collect();
    Some((guest, ready))
}

fn cache(guest: &mut Guest, control: &str) -> Value {
    let said = order(guest, &format!("futae top unix:/{control}.sock --json"));
    let status: Value = serde_json::from_str(said.trim()).expect("JSON");
    status["engines"][0].clone()
}

#[test]
fn in_a_guest_with_a_kernel_that_can_it_holds_the_pages() {
    let stage = Stage::new(1024);
    let Some((mut guest, ready)) = mounted(&stage, Kernel::Debian612) else {
        return;
    };
    assert!(
        ready.iter().all(|one| one["residency"] == "kernel"),
        "{ready:?}"
    );
    // A page at a time, so that nothing is read ahead; what was read is hit the second time.
    order(
        &mut guest,
        "for i in 1 2; do dd if=/disk/image of=/dev/null bs=4096 count=200 2>/dev/null; done",
    );
    let read = cache(&mut guest, "disk");
    assert_eq!(
        (number(&read, "requests"), number(&read, "hits")),
        (400, 200),
        "{read}"
    );
    assert_eq!(number(&read["kernel"], "pages"), 200, "{read}");
    let bytes = order(
        &mut guest,
        "head -c 4096 /disk/image | cmp -n 4096 - /dev/vda && echo same",
    );
    assert_eq!((bytes.trim(), BLOCK), ("same", 4096));
    // Protected files stay, whatever else is read.
    order(
        &mut guest,
        "cat /above/hot/* >/dev/null; cat /above/cold/* /above/cold/* >/dev/null",
    );
    let before = cache(&mut guest, "tree");
    order(
        &mut guest,
        "for n in 1 2 3 4; do cmp /above/hot/$n /below/hot/$n; done",
    );
    let after = cache(&mut guest, "tree");
    assert_eq!(
        number(&before, "misses"),
        number(&after, "misses"),
        "{after}"
    );
    assert!(number(&after["kernel"], "pages") <= 300 + 8, "{after}");
    order(
        &mut guest,
        "umount /disk /above; wait; cat /disk.err /tree.err",
    );
}

#[test]
fn in_a_guest_with_a_kernel_that_cannot_the_mount_says_so_and_is_the_ordinary_one() {
    let stage = Stage::new(64);
    let Some((mut guest, ready)) = mounted(&stage, Kernel::Debian61) else {
        return;
    };
    assert!(
        ready.iter().all(|one| one["residency"] == "futae"),
        "{ready:?}"
    );
    let said = order(
        &mut guest,
        "cat /disk.err; cmp /above/hot/1 /below/hot/1; cat /tree.err",
    );
    let missing = said.matches("came with Linux 6.12").count();
    assert_eq!(missing, 2, "{said}");
    order(&mut guest, "umount /disk /above; wait");
}
