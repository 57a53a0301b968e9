//! Below an unmodified guest: with the word of an agent, an exclusive cache hits more often than blind, and one agent
//! tells of all disks.

use futae_machine::{Disk, Kernel, Plan};
use futae_tests::binary::binary;
use futae_tests::stage::Stage;
use futae_tests::tools::{Need, skip, text};
use serde_json::Value;
use std::fs::File;
use std::io::{Write, stderr};
use std::path::Path;
use std::time::Duration;

/// With 192 MiB the program no longer fitted when the guest unpacked what it starts with.
const MEMORY_MIB: u32 = 208;
/// Blocks of the disk: more than the guest and the cache hold.
const BLOCKS: u64 = 192 << 8;
const CACHE: &str = "40MiB";
/// Bytes of the second disk: a part of what the guest holds.
const DATA_BYTES: u64 = 16 << 20;

fn number(status: &Value, name: &str) -> u64 {
    status["engines"][0][name].as_u64().expect("a number")
}

/// Hit ratio, misses and reads for notices of the cache from one status to the next.
fn between(before: &Value, after: &Value) -> (f64, u64, u64) {
    let grown = |name: &str| number(after, name) - number(before, name);
    (
        grown("hits") as f64 / grown("requests") as f64,
        grown("misses"),
        grown("notice_reads"),
    )
}

#[test]
fn an_agent_makes_an_exclusive_cache_hit_below_a_guest() {
    let mut stage = Stage::new(BLOCKS);
    let (image, socket) = (stage.path("data.img"), stage.path("agent.sock"));
    let made = File::create(&image).and_then(|image| image.set_len(DATA_BYTES));
    made.expect("a second image");
    let export = format!("data={}", text(&image));
    let feed = format!("disk,data=unix:{}", text(&socket));
    stage.serve(&["--cache", CACHE, "--export", &export, "--feed", &feed]);
    let data = stage.uri().replace("///disk?", "///data?");
    let plan = Plan::new(Kernel::Debian612)
        .cache(Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"))
        .memory_mib(MEMORY_MIB)
        .limit(Duration::from_secs(400))
        .disk(Disk::Nbd { uri: stage.uri() })
        .disk(Disk::Nbd { uri: data })
        .port("futae.0", &socket)
        .file("bin/futae", binary());
    let mut guest = match plan.boot() {
        Ok(guest) => guest,
        Err(error) if error.is_missing() => return skip(Need::Qemu, &error.to_string()),
        Err(error) => panic!("{error}"),
    };
    let mut run = |script: &str| {
        let told = guest.run(script).expect("it runs");
        assert_eq!(told.status, 0, "{script}: {}{}", told.stdout, told.stderr);
        stage.status()
    };
    let load = |seed: u32, operations: u32| {
        format!("futae load /dev/vda --operations {operations} --seed {seed} >/tmp/load")
    };
    // The kernel forgets what it holds of a device that nobody has open.
    run("sleep 1000 </dev/vda >/dev/null 2>&1 &");
    let begin = run(&load(1, 40_000));
    assert_eq!(begin["exports"][0]["is_blind"], true);
    let blind = between(&begin, &run(&load(2, 15_000)));
    run("for port in /sys/class/virtio-ports/*; do
             [ $(cat $port/name) = futae.0 ] && port=/dev/${port##*/} && break
         done
         futae agent --report $port --notices >/tmp/agent.log 2>&1 &
         sleep 3");
    let begin = run(&load(3, 40_000));
    assert_eq!(begin["exports"][0]["is_blind"], false, "{}", begin["feeds"]);
    let end = run(&load(4, 15_000));
    let told = between(&begin, &end);
    let line = format!("hit ratio, misses, reads for notices: blind {blind:?}, told {told:?}");
    let _ = writeln!(stderr(), "{line}");
    assert_eq!(end["feeds"][0]["refused_ranges"], 0, "{}", end["feeds"]);
    assert!(told.2 > 0, "{line}");
    assert!(told.0 > blind.0 * 1.2, "{line}");

    // What is read of the second disk makes room for what is then read of the first.
    run("sleep 1000 </dev/vdb >/dev/null 2>&1 &");
    run("dd if=/dev/vdb of=/dev/null bs=1M 2>/dev/null");
    let end = run(&load(5, 40_000));
    let exports = &end["feeds"][0]["exports"];
    for (at, name, disk) in [(0, "disk", "vda"), (1, "data", "vdb")] {
        let export = &exports[at];
        assert_eq!(
            (&export["name"], &export["disk"]),
            (&name.into(), &disk.into()),
            "{exports}"
        );
    }
    let told = exports[1]["bytes"].as_u64().expect("bytes");
    assert!(told * 2 > DATA_BYTES, "{told} bytes of the second disk");
    let mut volumes = end["engines"][0]["volumes"]
        .as_array()
        .expect("volumes")
        .iter();
    let volume = volumes.find(|volume| volume["name"] == "data");
    let notices = volume.expect("a volume")["notices_in"]
        .as_u64()
        .expect("a number");
    assert!(
        notices * 2 * 4096 > DATA_BYTES,
        "{notices} blocks of the second disk"
    );
    assert_eq!(end["feeds"][0]["refused_ranges"], 0, "{}", end["feeds"]);
}
