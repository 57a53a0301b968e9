//! Reports arrive over every kind of connection, and again after it broke; memory cgroups are told apart; and
//! the agent keeps to its memory while it loads its programs.

use futae_agent_protocol::{
    Frame, GroupSample, Hello, Message, PAGE_BYTES, Sample, Source, Stream,
};
use futae_testkit::need::{Need, skip};
use std::fs::{self, File};
use std::io::{Read, Write, stderr};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// Pages of the file that is read in a memory cgroup.
const PAGES: u64 = 2048;
/// What an agent may have, with all that it can do: bytes of memory at any time.
const MEMORY_MAX: u64 = 16 << 20;

/// An agent, which does not outlive its test.
struct Agent(Child);

impl Agent {
    fn start(report: &str, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_futae-agent"));
        command.args(["--report", report, "--period", "100ms"]);
        command.args(options).stdin(Stdio::null());
        Self(command.spawn().expect("it starts"))
    }

    /// The most memory that it ever had, in bytes: resident memory with each page of a ring counted once. The kernel
    /// maps the data of a ring twice in a row, so that a record that wraps is in one piece, and `VmHWM` counts both. The limit was
    /// held against `VmHWM` until the agent, which had grown by its programs for evictions, came to 16.1 MiB in that count.
    fn peak(&self) -> u64 {
        let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", self.0.id()));
        let status = read("status").expect("it runs");
        let maps = read("smaps").expect("it runs");
        let highest = kib_after(&status, "VmHWM:").next();
        let rings = maps.split("anon_inode:bpf-map").skip(1);
        let rings = rings.filter_map(|map| kib_after(map, "Rss:").next());
        // A ring's other mapping is its position, which is one page.
        let twice: u64 = rings.filter(|&kib| kib > 4).sum();
        (highest.expect("a number") - twice / 2) << 10
    }
}

/// The numbers of KiB in the lines that begin with `name`.
fn kib_after(text: &str, name: &str) -> impl Iterator<Item = u64> {
    let lines = text.lines().filter_map(move |line| line.strip_prefix(name));
    lines.filter_map(|line| line.split_whitespace().next()?.parse().ok())
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

/// Frames of a connection until `is_enough`, which must come.
fn hear(mut connection: impl Read, mut is_enough: impl FnMut(&Frame) -> bool) {
    let (mut stream, mut buffer) = (Stream::default(), vec![0; 65_536]);
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let count = connection.read(&mut buffer).expect("the agent");
        assert!(count > 0, "the agent hung up");
        stream.feed(&buffer[..count]);
        while let Some(frame) = stream.next_frame() {
            if is_enough(&frame) {
                return;
            }
        }
    }
    panic!("it was never heard");
}

/// Until an agent has said who it is, and then how it is.
fn hear_both(connection: impl Read) -> (Hello, Sample) {
    let mut greeting = None;
    let mut both = None;
    hear(connection, |frame| {
        match (&frame.message, &greeting) {
            (Message::Hello(hello), None) => greeting = Some(hello.clone()),
            (Message::Sample(sample), Some(hello)) => both = Some((hello.clone(), sample.clone())),
            _ => {}
        }
        both.is_some()
    });
    both.expect("both")
}

#[test]
fn reports_arrive_over_sockets_and_again_after_a_break() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("host.sock");
    let unix = UnixListener::bind(&path).expect("a socket");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let accept_unix = || unix.accept().expect("the agent").0;
    let accept_tcp = || tcp.accept().expect("the agent").0;
    let address = tcp.local_addr().expect("it is bound");
    let options = ["--no-bpf", "--name", "told"];
    let _agents = [
        Agent::start(&format!("unix:{}", path.display()), &options),
        Agent::start(&format!("tcp:{address}"), &options),
    ];
    for _ in 0..2 {
        for (hello, sample) in [hear_both(accept_unix()), hear_both(accept_tcp())] {
            assert_eq!(
                (hello.guest.as_str(), hello.source),
                ("told", Source::Vmstat)
            );
            assert!(
                sample.memory.total > 0 && sample.period_us > 0,
                "{sample:?}"
            );
        }
    }
}

/// A memory cgroup, of either version.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let first = Path::new("/sys/fs/cgroup/memory");
        let root = if first.join("cgroup.procs").exists() {
            first
        } else {
            Path::new("/sys/fs/cgroup")
        };
        if root != first {
            fs::write(root.join("cgroup.subtree_control"), "+memory").ok()?;
        }
        let path = root.join(format!("futae-reports-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(Self(path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes may take a moment to be gone.
        let _ = futae_testkit::wait::within(Duration::from_secs(2), || fs::remove_dir(&self.0));
    }
}

#[test]
fn groups_are_told_apart_and_memory_is_kept_to() {
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Root, "counting by eBPF needs root");
    }
    let Some(group) = Group::new() else {
        return skip(Need::Cgroup, "no memory cgroups here");
    };
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = place.path().join("file");
    let made = File::create(&file).and_then(|mut file| {
        file.write_all(&vec![7; (PAGES * PAGE_BYTES) as usize])?;
        file.sync_all()
    });
    made.expect("a file");
    let socket = place.path().join("host.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let report = format!("unix:{}", socket.display());
    let agent = Agent::start(&report, &["--groups", "--notices", "--sample", "0.01"]);
    let (connection, _) = listener.accept().expect("the agent");
    let (hello, _) = hear_both(&connection);
    if hello.source == Source::Vmstat {
        return skip(Need::Ebpf, "this kernel takes no eBPF");
    }
    // All of it twice, in the group: from memory, or not, as it may be.
    let script =
        "echo 0 >$0/cgroup.procs; for round in 1 2; do dd bs=1M of=/dev/null <$1 2>/dev/null; done";
    let mut reader = Command::new("sh");
    reader.args(["-c", script]).arg(&group.0).arg(&file);
    assert!(reader.status().expect("it starts").success());
    let path = group.0.to_string_lossy().into_owned();
    let (mut accesses, end) = (0, Instant::now() + Duration::from_secs(3));
    hear(&connection, |frame| {
        if let Message::Sample(sample) = &frame.message {
            let is_ours = |one: &&GroupSample| one.path == path;
            accesses += sample
                .groups
                .iter()
                .find(is_ours)
                .map_or(0, |one| one.counters.accesses);
        }
        accesses >= 2 * PAGES || Instant::now() > end
    });
    // The shell and dd are read as well, but not much.
    let line = format!(
        "{accesses} accesses in the group, {} of the file",
        2 * PAGES
    );
    assert!((2 * PAGES..2 * PAGES + 1500).contains(&accesses), "{line}");
    let peak = agent.peak();
    say(&format!("{line}; the agent had {} KiB at most", peak >> 10));
    assert!(peak <= MEMORY_MAX, "{} KiB at most", peak >> 10);
}
