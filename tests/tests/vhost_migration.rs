//! A guest on a vhost-user disk is migrated between two QEMUs while it writes, over one server: what it wrote is what it
//! reads, before, meanwhile and after.

use futae_tests::binary::binary;
use futae_tests::guest_disk::{MIB, await_writes, boot, order, plan, serve};
use futae_tests::stage::Stage;
use std::fs;
use std::path::Path;
use std::time::Duration;

const DISK_MIB: u64 = 64;
/// There and back.
const MOVES: u32 = 2;

#[test]
fn a_guest_is_migrated_while_it_writes_and_reads_what_it_wrote() {
    let stage = Stage::bare();
    let content: Vec<u8> = (0..DISK_MIB * MIB / 8)
        .flat_map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
        .collect();
    fs::write(&stage.image, content).expect("an image");
    let server = serve(&stage, &[]);
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    let plan = plan(&stage, &cache, Duration::from_secs(500)).movable();
    let plan = plan.file("bin/futae", binary());
    let Some(mut guest) = boot(plan.clone()) else {
        return;
    };
    let load = "futae load /dev/vda --direct --writes 0.5 --verify --overwrite --threads 2";
    order(
        &mut guest,
        &format!(
            "(while [ ! -e /tmp/stop ]; do {load} --operations 2000 >/tmp/load 2>&1 || {{ cat /tmp/load >/tmp/said; exit; }}; \
             done; echo whole >/tmp/all; mv /tmp/all /tmp/said) &"
        ),
    );
    for _ in 0..MOVES {
        await_writes(&mut guest, 100);
        guest = guest
            .migrate(&plan)
            .unwrap_or_else(|error| panic!("{error}"));
        await_writes(&mut guest, 100);
    }
    let said = order(
        &mut guest,
        "touch /tmp/stop; while [ ! -s /tmp/said ]; do sleep 0.2; done; cat /tmp/said",
    );
    assert_eq!(said, "whole\n");
    // What the disk writes into the guest's page cache while it moves is there afterwards, too. Only the disk knows that it
    // wrote to those pages.
    order(
        &mut guest,
        "(while [ ! -e /tmp/enough ]; do echo 1 >/proc/sys/vm/drop_caches; cat /dev/vda >/dev/null; echo more >>/tmp/passes; done; \
         echo over >/tmp/over) & while [ ! -s /tmp/passes ]; do sleep 0.1; done",
    );
    guest = guest
        .migrate(&plan)
        .unwrap_or_else(|error| panic!("{error}"));
    let sums = order(
        &mut guest,
        "touch /tmp/enough; while [ ! -s /tmp/over ]; do sleep 0.1; done; md5sum /dev/vda; echo 1 >/proc/sys/vm/drop_caches; \
         md5sum /dev/vda",
    );
    let sums: Vec<_> = sums.lines().collect();
    assert_eq!(sums[0], sums[1], "cached pages and the disk");
    // And the disk is told of by the server that it was on all the time.
    let sectors = order(&mut guest, "cat /sys/block/vda/size");
    assert_eq!(sectors.trim(), (DISK_MIB * MIB / 512).to_string());
    drop(guest);
    let ended = server.stop();
    assert!(ended.status.success(), "{}", ended.errors);
}
