//! A guest on a vhost-user disk: what its page cache evicts is read out of its memory, nearly all of it, and no page
//! enters the cache wrong.

use futae_machine::{Disk, Guest, Kernel, Plan};
use futae_testkit::wait::within;
use futae_tests::binary::{binary, futae};
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::{Need, skip, text};
use serde_json::Value;
use std::io::{Write, stderr};
use std::path::Path;
use std::time::Duration;

/// More than the guest's memory.
const DISK_BLOCKS: u64 = 75_000;
const PORT: &str = "futae.0";
/// A guest without hardware virtualisation on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

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
    let image = format!("disk={}", text(&stage.image));
    let disk = format!("vhost-user:{}", text(&stage.path("disk.sock")));
    let feed = format!("unix:{}", text(&stage.path("agent.sock")));
    let control = format!("unix:{}", text(&stage.control));
    let arguments = [
        "serve",
        "--export",
        &image,
        "--cache",
        "64MiB",
        "--policy",
        "exclusive",
        "--listen",
        &disk,
        "--feed",
        &feed,
        "--verify-evictions",
        "--control",
        &control,
        "--json",
    ];
    let mut server = Running::start("futae serve", futae(&arguments));
    server.line();
    server
}

fn boot(stage: &Stage, kernel: Kernel) -> Option<Guest> {
    let disk = Disk::VhostUser {
        socket: stage.path("disk.sock"),
    };
    let plan = Plan::new(kernel)
        .cache(Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"))
        .memory_mib(256)
        .limit(Duration::from_secs(500))
        .disk(disk)
        .port(PORT, stage.path("agent.sock"))
        .file("bin/futae", binary());
    match plan.boot() {
        Ok(guest) => Some(guest),
        Err(error) if error.is_missing() => {
            skip(Need::Qemu, &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Starts an agent in the guest, and waits until its ring is read.
fn start_agent(stage: &Stage, guest: &mut Guest) {
    let script = format!(
        "for port in /sys/class/virtio-ports/*; do
             [ $(cat $port/name) = {PORT} ] && port=/dev/${{port##*/}} && break
         done
         futae agent --report $port --evictions --evictions-cpu 100% >/tmp/agent.log 2>&1 &"
    );
    order(guest, &script);
    let reads = within(PATIENCE, || {
        let status = stage.status();
        match status["feeds"][0]["in_place"]["reading"].as_bool() {
            Some(true) => Ok(()),
            _ => Err(status["feeds"].clone()),
        }
    });
    if let Err(feeds) = reads {
        panic!("{feeds:#}\n{}", order(guest, "cat /tmp/agent.log"));
    }
}

/// Pages of files that the guest's kernel has reclaimed.
fn reclaimed(guest: &mut Guest) -> u64 {
    let number = order(guest, "awk '/^pgsteal_file/ {print $2}' /proc/vmstat");
    number.trim().parse().expect("a number")
}

#[test]
fn evicted_pages_are_read_out_of_the_guests_memory_and_none_enters_wrong() {
    let stage = Stage::new(DISK_BLOCKS);
    let _server = serve(&stage);
    let Some(mut guest) = boot(&stage, Kernel::Debian61) else {
        return;
    };
    // What is held of a device that nobody has open is dropped, not reclaimed.
    order(&mut guest, "sleep 100000 </dev/vda >/dev/null 2>&1 &");
    start_agent(&stage, &mut guest);
    let before = reclaimed(&mut guest);
    for _ in 0..2 {
        order(&mut guest, "cat /dev/vda >/dev/null");
    }
    let reclaimed = reclaimed(&mut guest) - before;
    let count = |of: &Value, key: &str| of[key].as_u64().expect(key);
    // The last pages are on their way; what entered is compared with the store.
    let mut status = stage.status();
    let arrived = within(PATIENCE, || {
        status = stage.status();
        let engine = &status["engines"][0];
        let is_compared =
            count(engine, "handed_down_compared") >= count(engine, "handed_down_verified");
        let pages = count(&status["feeds"][0]["in_place"], "pages");
        let is_all = is_compared && pages * 100 >= reclaimed * 95;
        is_all.then_some(()).ok_or("they did not all come")
    });
    let (in_place, engine) = (&status["feeds"][0]["in_place"], &status["engines"][0]);
    let log = order(&mut guest, "cat /tmp/agent.log");
    let line = format!(
        "{reclaimed} pages reclaimed; in place: {in_place:#}; by notice {} of which untold {}; \
         handed down: verified {}, resident {}, unknown {}, different {}, busy {}, compared {}, wrong {}\n{log}",
        engine["notices_in"],
        status["feeds"][0]["untold_pages"],
        engine["handed_down_verified"],
        engine["handed_down_resident"],
        engine["handed_down_unknown"],
        engine["handed_down_different"],
        engine["handed_down_busy"],
        engine["handed_down_compared"],
        engine["handed_down_wrong"],
    );
    let _ = writeln!(stderr(), "{line}");
    let pages = count(in_place, "pages");
    assert!(reclaimed > 20_000, "{line}");
    assert_eq!(arrived, Ok(()), "{line}");
    for nothing in ["foreign_pages", "unreadable_pages", "resyncs"] {
        assert_eq!(count(in_place, nothing), 0, "{nothing}: {line}");
    }
    assert!(count(engine, "handed_down_compared") > 10_000, "{line}");
    for nothing in ["handed_down_wrong", "handed_down_different"] {
        assert_eq!(count(engine, nothing), 0, "{nothing}: {line}");
    }
    let refused = count(engine, "handed_down_unknown") + count(engine, "handed_down_busy");
    assert!(refused * 100 <= pages, "{line}");
}
