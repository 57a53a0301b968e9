//! What the programs in the kernel count equals what is known to have happened, within half a percent: on
//! this machine, and in guests with Linux 6.1 and 6.12; on ext4 and on XFS.

mod cases;
mod system;

use cases::Bench;
use futae_agent_protocol::{Message, Stream};
use futae_machine::{Guest, Kernel, Plan};
use futae_testkit::need::{Need, skip};
use std::fs::File;
use std::io::{Read, Write, stderr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Directories in which to run the cases, in a guest.
const PLACES: &str = "FUTAE_CASES";
/// The agent that is to report over vsock, in a guest: there, a machine can talk to itself.
const AGENT: &str = "FUTAE_AGENT_HERE";
const VSOCK_PORT: u32 = 9000;
const MIB: u64 = 1 << 20;

/// Past the capturing of tests' output.
fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

fn run(command: &mut Command) -> Result<String, String> {
    let said = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if said.status.success() {
        return Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned());
    }
    Err(format!(
        "{command:?}: {}",
        String::from_utf8_lossy(&said.stderr)
    ))
}

/// An image with an empty file system.
fn image(directory: &Path, kind: &str) -> PathBuf {
    let path = directory.join(format!("{kind}.img"));
    File::create(&path)
        .expect("an image")
        .set_len(320 * MIB)
        .expect("room");
    let mut make = Command::new(format!("mkfs.{kind}"));
    let quiet: &[&str] = match kind {
        "ext4" => &["-q", "-E", "lazy_itable_init=0,nodiscard"],
        _ => &["-q", "-K"],
    };
    run(make.args(quiet).arg(&path)).expect("a file system");
    path
}

/// An image mounted here.
struct Mounted {
    place: PathBuf,
    device: String,
}

impl Mounted {
    fn new(image: &Path, place: PathBuf) -> Result<Self, String> {
        std::fs::create_dir(&place).map_err(|error| error.to_string())?;
        let device = run(Command::new("losetup")
            .args(["--find", "--show"])
            .arg(image))?;
        let mut mounted = Self {
            place: PathBuf::new(),
            device,
        };
        run(Command::new("mount").arg(&mounted.device).arg(&place))?;
        mounted.place = place;
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.place.is_dir() {
            let _ = run(Command::new("umount").arg(&self.place));
        }
        let _ = run(Command::new("losetup").args(["--detach", &self.device]));
    }
}

/// Runs every case in each of these directories.
fn check(places: &[PathBuf]) {
    let probe = match cases::probe() {
        Ok(probe) => probe,
        Err(why) => {
            assert!(
                std::env::var_os(PLACES).is_none(),
                "this kernel must take eBPF: {why}"
            );
            return skip(Need::Ebpf, &why.to_string());
        }
    };
    let mut problems = Vec::new();
    for place in places {
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        let what = format!("{:?} on {name}", probe.source());
        let mut bench = Bench::new(&probe, &what, place);
        bench.run();
        for _ in 0..4 {
            if bench.problems.is_empty() || !bench.disturbed {
                break;
            }
            say(&format!(
                "{what}: again, since others took pages of the file out of memory"
            ));
            bench = Bench::new(&probe, &what, place);
            bench.run();
        }
        for line in &bench.lines {
            println!("{line}");
        }
        say(&format!("{what}: {} figures", bench.lines.len()));
        problems.append(&mut bench.problems);
    }
    let list = problems.join("\n");
    assert!(
        problems.is_empty(),
        "{} figures are wrong:\n{list}",
        problems.len()
    );
}

/// On this machine; in a guest, where the environment says where.
#[test]
fn counts_equal_the_truth_here() {
    if let Some(places) = std::env::var_os(PLACES) {
        return check(&std::env::split_paths(&places).collect::<Vec<_>>());
    }
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Root, "mounting needs root");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut mounts = Vec::new();
    for kind in ["ext4", "xfs"] {
        let image = image(directory.path(), kind);
        match Mounted::new(&image, directory.path().join(kind)) {
            Ok(mounted) => mounts.push(mounted),
            Err(why) => skip(Need::Loop, &format!("{kind}: {why}")),
        }
    }
    let places: Vec<_> = mounts.iter().map(|mounted| mounted.place.clone()).collect();
    check(&places);
}

/// In a guest, where the environment says which agent.
#[test]
fn a_report_arrives_over_vsock() {
    let Some(agent) = std::env::var_os(AGENT) else {
        return skip(Need::Vsock, "vsock, here; it is tested in guests");
    };
    let socket = system::listen_vsock(VSOCK_PORT).expect("a port");
    let mut agent = Command::new(agent)
        .args([
            "--no-bpf", "--period", "100ms", "--name", "near", "--report",
        ])
        .arg(format!("vsock:1:{VSOCK_PORT}"))
        .spawn()
        .expect("it starts");
    let mut connection = File::from(system::accept(&socket).expect("the agent"));
    let (mut stream, mut buffer, mut heard) = (Stream::default(), [0; 4096], (false, false));
    while heard != (true, true) {
        let count = connection.read(&mut buffer).expect("the agent");
        assert!(count > 0, "the agent hung up");
        stream.feed(&buffer[..count]);
        while let Some(frame) = stream.next_frame() {
            match frame.message {
                Message::Hello(hello) => heard.0 |= hello.guest == "near",
                Message::Sample(sample) => heard.1 |= sample.memory.total > 0,
                _ => {}
            }
        }
    }
    agent.kill().expect("it runs");
    agent.wait().expect("it ends");
}

/// The guest; none, and it says why, where there can be no guests.
fn boot(plan: Plan) -> Option<Guest> {
    match plan.boot() {
        Ok(guest) => Some(guest),
        Err(error) if error.is_missing() => {
            skip(Need::Qemu, &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn counts_equal_the_truth_in_guests() {
    for kernel in [Kernel::Debian61, Kernel::Debian612] {
        let directory = tempfile::tempdir().expect("a directory");
        let cases = std::env::current_exe().expect("this test");
        let mut plan = Plan::new(kernel)
            .cache(Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"))
            .memory_mib(768)
            .limit(Duration::from_secs(300))
            .module("xfs")
            .module("vsock_loopback")
            .file("bin/futae-agent", env!("CARGO_BIN_EXE_futae-agent"))
            .file("bin/cases", cases);
        for kind in ["ext4", "xfs"] {
            plan = plan.disk(image(directory.path(), kind));
        }
        let Some(mut guest) = boot(plan) else {
            return;
        };
        let told = guest
            .run(
                "mkdir /mnt/ext4 /mnt/xfs && mount -t ext4 /dev/vda /mnt/ext4 && \
                 mount -t xfs /dev/vdb /mnt/xfs && mount -t cgroup2 none /sys/fs/cgroup && \
                 FUTAE_CASES=/mnt/ext4:/mnt/xfs cases --exact counts_equal_the_truth_here --nocapture",
            )
            .expect("it runs");
        println!("{}: {}{}", guest.release(), told.stdout, told.stderr);
        assert_eq!(
            told.status,
            0,
            "{}: {}{}",
            guest.release(),
            told.stdout,
            told.stderr
        );
        assert!(told.stdout.contains("on xfs: deleted"), "{}", told.stdout);
        let told = guest.run(
            "FUTAE_AGENT_HERE=/bin/futae-agent cases --exact a_report_arrives_over_vsock --nocapture",
        );
        let told = told.expect("it runs");
        assert_eq!(told.status, 0, "{}{}", told.stdout, told.stderr);
        assert!(told.stdout.contains("1 passed"), "{}", told.stdout);
    }
}
