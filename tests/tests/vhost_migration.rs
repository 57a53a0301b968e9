//! A guest on a vhost-user disk is migrated between QEMUs over one server, there and back, while it writes to its disk, to its
//! memory and to its page cache: nothing is lost.
//!
//! `FUTAE_MIGRATION_MOVES` says how often, twice without it. `FUTAE_MIGRATION_PLAIN=1` gives the guest no such disk,
//! but a QEMU's own, as a control: what is lost then, QEMU loses.

use futae_machine::{Disk, HostCache, Plan};
use futae_tests::binary::binary;
use futae_tests::guest_disk::{MIB, boot, order, plan, serve};
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::{run, text};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The first half is written to, the other is read.
const DISK_MIB: u64 = 16;
const MOVES: u32 = 2;
/// How long one move may take, on a busy machine.
const A_MOVE: Duration = Duration::from_secs(60);

/// Three loops until they are told to stop, which say how often they went round, or why they ended.
///
/// `disk` writes past the guest's page cache and reads back; `memory` does so in memory that no disk knows; `cache` has the disk
/// write to the guest's page cache, and reads there again and again what has to be there.
const LOADS: &str = r#"
go() {
    rounds=0
    while [ ! -e /tmp/stop ]; do
        "$1" >/tmp/$1.last 2>&1 || { echo "$1: $(cat /tmp/$1.last)" >/tmp/$1.ended; exit; }
        rounds=$((rounds+1)); echo $rounds >/tmp/$1.rounds
    done
    echo whole >/tmp/$1.ended
}
disk() { seed=$((seed+1)); futae load /dev/vda --direct --file-size HALFMiB --overwrite --threads 2 --verify --writes 0.5 --operations 400 --seed $seed; }
memory() { seed=$((seed+1)); futae load /tmp/pattern --file-size 8MiB --create --overwrite --verify --writes 0.5 --operations 2000 --seed $seed; }
sum() { dd if=/dev/vda bs=1M skip=HALF 2>/dev/null | md5sum; }
cache() {
    echo 1 >/proc/sys/vm/drop_caches
    for pass in 1 2 3 4; do said=$(sum); [ "$said" = "$(cat /tmp/sum)" ] || { echo "pass $pass: $said"; return 1; }; done
}
seed=0
sum >/tmp/sum
for load in disk memory cache; do go $load & done
"#;

fn moves() -> u32 {
    let asked = std::env::var("FUTAE_MIGRATION_MOVES").ok();
    asked.map_or(MOVES, |text| {
        text.parse()
            .expect("FUTAE_MIGRATION_MOVES is the number of moves")
    })
}

/// The same guest on an image that QEMU opens by itself, past the host's page cache.
fn plain(stage: &Stage, cache: &Path, limit: Duration) -> Plan {
    let disk = Disk::Image {
        path: stage.image.clone(),
        cache: HostCache::None,
    };
    Plan::new(futae_machine::Kernel::Debian61)
        .cache(cache)
        .memory_mib(256)
        .limit(limit)
        .disk(disk)
}

/// Waits until each of the loads has gone round twice more, or one has ended.
const TWO_ROUNDS: &str = "
for load in disk memory cache; do
    from=$(cat /tmp/$load.rounds 2>/dev/null || echo 0)
    until [ $(cat /tmp/$load.rounds 2>/dev/null || echo 0) -ge $((from+2)) ] || ls /tmp/*.ended >/dev/null 2>&1; do sleep 0.1; done
done
cat /tmp/*.ended 2>/dev/null || true";

#[test]
fn a_guest_is_migrated_there_and_back_under_load_and_has_lost_nothing() {
    let (stage, moves) = (Stage::bare(), moves());
    let content: Vec<u8> = (0..DISK_MIB * MIB / 8)
        .flat_map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
        .collect();
    fs::write(&stage.image, content).expect("an image");
    let is_plain = std::env::var_os("FUTAE_MIGRATION_PLAIN").is_some();
    let server = (!is_plain).then(|| serve(&stage, &[]));
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    let limit = Duration::from_secs(300) + A_MOVE * moves;
    let plan = if is_plain {
        plain(&stage, &cache, limit)
    } else {
        plan(&stage, &cache, limit)
    };
    let plan = plan.movable().file("bin/futae", binary());
    let Some(mut guest) = boot(plan.clone()) else {
        return;
    };
    let loads = LOADS.replace("HALF", &(DISK_MIB / 2).to_string());
    order(
        &mut guest,
        &format!("cat >/tmp/loads.sh <<'END'\n{loads}\nEND\nsh /tmp/loads.sh >/dev/null 2>&1"),
    );
    assert_eq!(order(&mut guest, TWO_ROUNDS), "", "before any move");
    for number in 1..=moves {
        let (other, moved) = guest
            .migrate(&plan)
            .unwrap_or_else(|error| panic!("move {number}: {error}"));
        println!("move {number}: {moved:?}");
        guest = other;
        assert_eq!(order(&mut guest, TWO_ROUNDS), "", "after move {number}");
    }
    let ended = order(
        &mut guest,
        "touch /tmp/stop; for load in disk memory cache; do until [ -s /tmp/$load.ended ]; do sleep 0.1; done; done; \
         cat /tmp/*.ended",
    );
    assert_eq!(ended, "whole\nwhole\nwhole\n");
    let sum = order(
        &mut guest,
        "echo 1 >/proc/sys/vm/drop_caches; md5sum </dev/vda",
    );
    let sectors = order(&mut guest, "cat /sys/block/vda/size");
    assert_eq!(sectors.trim(), (DISK_MIB * MIB / 512).to_string());
    drop(guest);
    if let Some(server) = server {
        end(server);
    }
    let image = run("md5sum", &[text(&stage.image)]).stdout;
    assert_eq!(sum[..32], String::from_utf8_lossy(&image)[..32]);
}

fn end(server: Running) {
    let ended = server.stop();
    assert!(ended.status.success(), "{}", ended.errors);
}
