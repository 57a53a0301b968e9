//! `futae balance` with the agent in a real guest: what the agent samples makes the guest's curve, and
//! memory moves to the guest that would gain, from a share of a cache that nobody uses.

use futae_machine::{Guest, Kernel, Plan};
use futae_tests::binary::{binary, futae};
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::Need;
use futae_tests::tools::{skip, text};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Write, stderr};
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// What the guest reads, evenly: more than its page cache has at first.
const DISK_MIB: u64 = 96;
const START_MIB: u64 = 160;
const MOST_MIB: u64 = 300;
/// Periods until memory must have moved.
const PERIODS: usize = 180;

fn order(guest: &mut Guest, script: &str) -> String {
    let told = guest.run(script).expect("it runs");
    assert_eq!(told.status, 0, "{script}: {}{}", told.stdout, told.stderr);
    told.stdout
}

fn boot(stage: &Stage, agent: &Path) -> Option<Guest> {
    let disk = stage.path("vm.img");
    let file = File::create(&disk).expect("an image");
    file.set_len(DISK_MIB * MIB).expect("room");
    let plan = Plan::new(Kernel::Debian61)
        .cache(Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"))
        .memory_mib(u32::try_from(MOST_MIB).expect("few"))
        .limit(Duration::from_secs(600))
        .balloon()
        .disk(disk)
        .port("futae.0", agent)
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

fn config(stage: &Stage, agent: &Path, monitor: &Path) -> String {
    let path = stage.path("balance.toml");
    let body = format!(
        "total = \"{}MiB\"\nperiod = 1\nreserve = \"0MiB\"\nreturn_on_exit = true\n\
         [[guest]]\nname = \"vm\"\nminimum = \"{START_MIB}MiB\"\nmaximum = \"{MOST_MIB}MiB\"\n\
         start = \"{START_MIB}MiB\"\nagent = {{ listen = \"{}\" }}\n\
         actuator = {{ kind = \"qmp\", socket = \"{}\" }}\n\
         [[guest]]\nname = \"idle\"\nminimum = \"4MiB\"\nmaximum = \"160MiB\"\n\
         actuator = {{ kind = \"share\", control = \"{}\", export = \"idle\" }}\n",
        START_MIB + 160,
        agent.display(),
        monitor.display(),
        stage.control.display()
    );
    fs::write(&path, body).expect("a file");
    text(&path).to_owned()
}

/// MiB of the export that nobody uses.
fn share(stage: &Stage) -> u64 {
    let status = stage.status();
    let engines = status["engines"].as_array().expect("engines");
    let idle = engines.iter().find(|engine| engine["exports"][0] == "idle");
    let blocks = idle.expect("its engine")["capacity_blocks"].as_u64();
    blocks.expect("a number") * 4096 / MIB
}

/// A guest whose program ends gives its cache to the host, and has it back once it reads again.
fn idle_and_busy(stage: &Stage, guest: &mut Guest, agent: &Path) {
    let path = stage.path("idle.toml");
    let body = format!(
        "total = \"{MOST_MIB}MiB\"\nperiod = 1\nreserve = \"0MiB\"\nreturn_on_exit = true\n\
         [host]\nidle_after = 3\n[[guest]]\nname = \"vm\"\nminimum = \"{START_MIB}MiB\"\n\
         maximum = \"{MOST_MIB}MiB\"\nagent = {{ listen = \"{}\" }}\n\
         actuator = {{ kind = \"qmp\", socket = \"{}\" }}\n",
        agent.display(),
        guest.monitor().display()
    );
    fs::write(&path, body).expect("a file");
    let words = ["balance", "--json", "--config", text(&path)];
    let mut balance = Running::start("futae balance", futae(&words));
    let mut until = |what: &str, is_so: &dyn Fn(&Value) -> bool| {
        for _ in 0..PERIODS {
            let said: Value = serde_json::from_str(&balance.line()).expect("JSON");
            if is_so(&said) {
                return said;
            }
        }
        panic!("not in {PERIODS} periods: {what}");
    };
    let has = |said: &Value| said["guests"][0]["achieved"].as_u64().unwrap_or(0) / MIB;
    let told = until("it is heard", &|said| {
        said["guests"][0]["activity"]["hits"].as_u64() > Some(0)
    });
    let hint = told["hints"][0].as_str().unwrap_or_default();
    assert!(hint.ends_with("free-page-reporting=on"), "{told}");
    let resident = |guest: &Guest| guest.resident_bytes().expect("it runs") / MIB;
    let full = resident(guest);
    order(guest, "kill $(cat /tmp/load.pid)");
    until("it has its minimum", &|said| has(said) <= START_MIB);
    let idle = resident(guest);
    let _ = writeln!(
        stderr(),
        "QEMU had {full} MiB, and has {idle} beside an idle guest"
    );
    assert!(idle + 60 < full, "{idle} of {full} MiB");
    order(
        guest,
        "futae load /dev/vda --seconds 580 >/dev/null 2>&1 & echo $! >/tmp/load.pid",
    );
    until("it has what it had", &|said| has(said) > START_MIB + 60);
    let ended = balance.stop();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[test]
fn memory_moves_to_a_guest_by_what_its_agent_samples() {
    let mut stage = Stage::new(16);
    let export = format!(
        "idle={},share=160MiB",
        text(&stage.image).replace("disk.img", "idle.img")
    );
    fs::copy(&stage.image, stage.path("idle.img")).expect("a copy");
    stage.serve(&["--export", &export, "--cache", "161MiB", "--policy", "lru"]);
    let agent = stage.path("vm.agent");
    let Some(mut guest) = boot(&stage, &agent) else {
        return;
    };
    order(
        &mut guest,
        // All of its memory is used once, so that the host has given it.
        "dd if=/dev/zero of=/fill bs=1M count=130 2>/dev/null; rm /fill; dd if=/dev/vda of=/dev/null bs=1M 2>/dev/null
         echo 0 >/sys/block/vda/queue/read_ahead_kb; sleep 1000 </dev/vda >/dev/null 2>&1 &
         for port in /sys/class/virtio-ports/*; do
             [ $(cat $port/name) = futae.0 ] && port=/dev/${port##*/} && break
         done
         futae agent --report $port --period 300ms --sample 0.25 >/tmp/agent.log 2>&1 &
         futae load /dev/vda --seconds 580 >/dev/null 2>&1 & echo $! >/tmp/load.pid",
    );
    idle_and_busy(&stage, &mut guest, &agent);
    let config = config(&stage, &agent, &guest.monitor());
    let words = ["balance", "--json", "--config", &config];
    let mut balance = Running::start("futae balance", futae(&words));
    let (mut misses, mut last) = (Vec::new(), Value::Null);
    for _ in 0..PERIODS {
        last = serde_json::from_str(&balance.line()).expect("JSON");
        assert_eq!(last["problems"], serde_json::json!([]), "{last}");
        let did = &last["guests"][0]["activity"];
        if let (Some(hits), Some(missed)) = (did["hits"].as_f64(), did["misses"].as_f64()) {
            misses.push(missed / (hits + missed).max(1.0));
        }
        let has = last["guests"][0]["achieved"].as_u64().unwrap_or(0) / MIB;
        // All that is read fits, and nearly all has been read again.
        if has > START_MIB + 60 && misses.last().is_some_and(|&now| now < 0.05) {
            break;
        }
    }
    let begin = misses.iter().copied().fold(0.0, f64::max);
    let end = misses.last().copied().unwrap_or(1.0);
    let line = format!("{begin:.3} missed at first, {end:.3} in the end: {last}");
    let _ = writeln!(stderr(), "{line}");
    assert!(begin > 0.2 && end < 0.05, "{line}");
    assert!(share(&stage) < 100, "{line}");
    assert_eq!(
        order(&mut guest, "grep oom_kill /proc/vmstat"),
        "oom_kill 0\n"
    );
    // The guest dies. Nobody gets what it had, and the balancing goes on.
    let before = share(&stage);
    drop(guest);
    for _ in 0..3 {
        last = serde_json::from_str(&balance.line()).expect("JSON");
    }
    let problem = last["problems"][0].as_str().expect("it is missed");
    assert!(problem.starts_with("vm: "), "{last}");
    assert_eq!(share(&stage), before, "{last}");
    // What is still there is returned.
    let ended = balance.stop();
    assert!(ended.errors.contains("vm: "), "{ended:?}");
    assert_eq!((ended.status.code(), share(&stage)), (Some(1), 160));
}
