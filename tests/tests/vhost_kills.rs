//! A file system on a vhost-user disk, while the server is killed again and again: what fio wrote is what it reads,
//! and fsck finds nothing.
//!
//! `FUTAE_VHOST_KILLS` says how often, 10 times without it.

use futae_tests::guest_disk::{await_writes, boot, make_image, order, plan, serve};
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::{has, run, text};
use std::path::Path;
use std::time::Duration;

const DISK_MIB: u64 = 256;
const KILLS: u32 = 10;
/// What the test runs, the first of them in the guest.
const TOOLS: [&str; 3] = ["fio", "mke2fs", "e2fsck"];
/// Writes that reach the disk between two kills.
const WRITES: u32 = 50;
/// How long one kill may take, with the guest's way to the next.
const A_KILL: Duration = Duration::from_secs(20);

/// Rounds of writes that are read back and compared, half of them with a flush behind every few, until it is told to stop.
const LOAD: &str = "
round=0
while [ ! -e /tmp/stop ]; do
    round=$((round+1))
    for sync in 0 4; do
        fio --name=verified --filename=/mnt/file-$sync --size=24m --bs=4k --rw=randwrite --ioengine=libaio --iodepth=16 --direct=1 \
            --thread --verify=crc32c --verify_fatal=1 --do_verify=1 --fsync=$sync --randseed=$round --output-format=terse \
            --end_fsync=1 >/tmp/fio 2>&1 || { echo \"1 in round $round\"; cat /tmp/fio; exit; }
        cp /mnt/file-$sync /mnt/copy-$sync && cmp /mnt/file-$sync /mnt/copy-$sync || { echo \"1: a copy differs\"; exit; }
        rm /mnt/copy-$sync
    done
done
echo \"0 after $round rounds\"
";

fn kills() -> u32 {
    let asked = std::env::var("FUTAE_VHOST_KILLS").ok();
    asked.map_or(KILLS, |text| {
        text.parse()
            .expect("FUTAE_VHOST_KILLS is the number of kills")
    })
}

#[test]
fn fio_and_fsck_find_nothing_after_many_kills_of_the_server_under_load() {
    if !TOOLS.iter().all(|tool| has(tool)) {
        return;
    }
    let (stage, kills) = (Stage::bare(), kills());
    make_image(&stage, DISK_MIB);
    run("mke2fs", &["-q", "-F", "-t", "ext4", text(&stage.image)]);
    let mut server = serve(&stage, &[]);
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    let limit = Duration::from_secs(300) + A_KILL * kills;
    let plan = plan(&stage, &cache, limit).memory_mib(512);
    let plan = plan.file("bin/fio", path("fio"));
    let Some(mut guest) = boot(plan) else { return };
    order(&mut guest, "mount -t ext4 /dev/vda /mnt");
    order(
        &mut guest,
        &format!(
            "cat >/tmp/load.sh <<'END'\n{LOAD}\nEND\n(sh /tmp/load.sh >/tmp/all 2>&1; mv /tmp/all /tmp/said) &"
        ),
    );
    for kill in 1..=kills {
        await_writes(&mut guest, WRITES);
        assert_eq!(
            order(&mut guest, "cat /tmp/said 2>/dev/null || true"),
            "",
            "before kill {kill}"
        );
        server.kill();
        server = serve(&stage, &[]);
    }
    await_writes(&mut guest, WRITES);
    let said = order(
        &mut guest,
        "touch /tmp/stop; while [ ! -s /tmp/said ]; do sleep 0.2; done; cat /tmp/said",
    );
    println!("{kills} kills: {}", said.trim());
    assert!(said.starts_with("0 "), "{said}");
    let kernel = order(
        &mut guest,
        "dmesg | grep -iE 'ext4-fs error|i/o error|buffer i/o' || true",
    );
    assert_eq!(kernel, "", "the kernel saw errors");
    order(&mut guest, "umount /mnt");
    drop(guest);
    end(server);
    let found = run("e2fsck", &["-f", "-n", text(&stage.image)]);
    println!("{}", String::from_utf8_lossy(&found.stdout));
}

fn path(tool: &str) -> String {
    let found = run("sh", &["-c", &format!("command -v {tool}")]);
    String::from_utf8_lossy(&found.stdout).trim().to_owned()
}

fn end(server: Running) {
    let ended = server.stop();
    assert!(ended.status.success(), "{}", ended.errors);
}
