//! A guest on a vhost-user disk: what it writes is what it reads, also when the server is killed under it.

use futae_tests::binary::{binary, run};
use futae_tests::guest_disk::{MIB, await_writes, boot, make_image, order, plan, serve};
use futae_tests::stage::Stage;
use futae_tests::tools::text;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

const DISK_MIB: u64 = 64;
/// Times that the server is killed while the guest writes.
const KILLS: u32 = 5;

#[test]
fn a_guest_on_a_vhost_user_disk_reads_what_it_wrote_over_kills_of_the_server() {
    let stage = Stage::bare();
    make_image(&stage, DISK_MIB);
    let mut server = serve(&stage, &[]);
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    let plan = plan(&stage, &cache, Duration::from_secs(400)).file("bin/futae", binary());
    let Some(mut guest) = boot(plan) else { return };
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
        &format!(
            "({load} --seconds 30 --seed 2 >/tmp/load 2>&1; echo $? >/tmp/all; cat /tmp/load >>/tmp/all; mv /tmp/all /tmp/said) &"
        ),
    );
    for _ in 0..KILLS {
        await_writes(&mut guest, 200);
        server.kill();
        server = serve(&stage, &[]);
    }
    let said = order(
        &mut guest,
        "while [ ! -s /tmp/said ]; do sleep 0.2; done; cat /tmp/said",
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
    // The running guest sees a disk that has become longer, and can write to what is new.
    let image = File::options().write(true).open(&stage.image);
    let longer = image.expect("an image").set_len(2 * DISK_MIB * MIB);
    longer.expect("room");
    let said = run(&["export", "lengthen", text(&stage.control), "disk"]);
    assert!(said.status.success(), "{said:?}");
    let sectors = 2 * DISK_MIB * MIB / 512;
    order(
        &mut guest,
        &format!(
            "while [ $(cat /sys/block/vda/size) != {sectors} ]; do sleep 0.1; done; \
             dd if=/dev/urandom of=/tmp/new bs=64k count=1 && dd if=/tmp/new of=/dev/vda bs=64k seek=$(({sectors}/128-1)) && sync && \
             tail -c 65536 /dev/vda | cmp - /tmp/new"
        ),
    );
    drop(guest);
    drop(server);
}
