//! A guest of the soak: its agent, its loads, and what is done to it.

use crate::lies::{Liar, Lie};
use futae_machine::{Guest, GuestError, Kernel, Plan};
use futae_policy::Prng;
use futae_tests::binary::binary;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// What a guest boots with: more than its maximum.
pub const BOOT_MIB: u64 = 288;
/// What it can read.
pub const DISK_MIB: u64 = 192;
/// Room for a lie.
const LIES_MIB: u64 = 16;
/// No run takes longer.
const LIMIT: Duration = Duration::from_secs(3000);

/// How an agent is told to report.
const AGENT: &str = "--period 200ms --sample 0.25 >/tmp/agent.log 2>&1 & echo $! >/tmp/agent.pid";
/// Parts of a lie that is told in several.
const LIE_PARTS: usize = 4;

/// Where the parts of a guest are, whichever boot of it it is.
#[derive(Clone, Debug)]
pub struct Place {
    pub name: String,
    /// Where its agent is listened to.
    pub agent: PathBuf,
    /// QEMU's monitor, for `futae balance`.
    pub monitor: PathBuf,
    /// QEMU's other monitor, for an observer.
    pub watch: PathBuf,
    disk: PathBuf,
    lies: PathBuf,
}

impl Place {
    pub fn new(directory: &Path, name: &str) -> Self {
        let path = |end: &str| directory.join(format!("{name}.{end}"));
        let place = Self {
            name: name.to_owned(),
            agent: path("agent"),
            monitor: path("qmp"),
            watch: path("watch"),
            disk: path("img"),
            lies: path("lies"),
        };
        for (disk, mib) in [(&place.disk, DISK_MIB), (&place.lies, LIES_MIB)] {
            let file = File::create(disk).expect("an image");
            file.set_len(mib * MIB).expect("room");
        }
        place
    }
}

/// A running guest.
pub struct Machine {
    place: Place,
    /// None: it was killed.
    guest: Option<Guest>,
    /// Kilobytes that could be had without anybody giving any up, at the worst.
    pub available_kib: u64,
}

impl Machine {
    /// Boots it; its two monitors are then where they always are.
    pub fn boot(place: &Place) -> Result<Self, GuestError> {
        let lies = futae_machine::Disk::Image {
            path: place.lies.clone(),
            cache: futae_machine::HostCache::Writeback,
        };
        let plan = Plan::new(Kernel::Debian61)
            .cache(Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"))
            .memory_mib(u32::try_from(BOOT_MIB).expect("few"))
            .limit(LIMIT)
            .balloon()
            .disk(place.disk.clone())
            .disk(lies)
            .port("futae.0", &place.agent)
            .file("bin/futae", binary());
        let guest = plan.boot()?;
        for (link, socket) in [
            (&place.monitor, guest.monitor()),
            (&place.watch, guest.second_monitor()),
        ] {
            let new = link.with_extension("new");
            std::os::unix::fs::symlink(socket, &new).expect("a link");
            fs::rename(&new, link).expect("a link in place of another");
        }
        let mut machine = Self {
            place: place.clone(),
            guest: Some(guest),
            available_kib: u64::MAX,
        };
        machine.order(
            "echo 0 >/sys/block/vda/queue/read_ahead_kb; sleep 100000 </dev/vda >/dev/null 2>&1 &
             for port in /sys/class/virtio-ports/*; do
                 [ $(cat $port/name) = futae.0 ] && ln -s /dev/${port##*/} /tmp/port
             done",
        );
        Ok(machine)
    }

    fn order(&mut self, script: &str) -> String {
        let (name, guest) = (&self.place.name, self.guest.as_mut().expect("it lives"));
        let told = guest
            .run(script)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let said = [told.stdout.as_str(), &told.stderr].concat();
        assert_eq!(told.status, 0, "{name}: {script}: {said}{}", guest.log());
        told.stdout
    }

    /// Whether all is well with its memory; what is not.
    pub fn check(&mut self) -> Result<(), String> {
        let said = self.order("grep oom_kill /proc/vmstat; grep MemAvailable /proc/meminfo");
        let number = |name: &str| {
            let rest = said.lines().find_map(|line| line.strip_prefix(name))?;
            rest.split_whitespace().next()?.parse().ok()
        };
        let killed: Option<u64> = number("oom_kill");
        let available = number("MemAvailable:").unwrap_or(0);
        self.available_kib = self.available_kib.min(available);
        let guest = self.guest.as_ref().expect("it lives");
        let console = guest.console();
        let bad = ["Out of memory", "oom-kill", "Kernel panic", "BUG:"];
        match bad.into_iter().find(|bad| console.contains(bad)) {
            None if killed == Some(0) => Ok(()),
            found => Err(format!(
                "{}: {found:?}, {said}\n{}",
                self.place.name,
                guest.log()
            )),
        }
    }

    /// Its QEMU.
    pub fn process(&self) -> Option<u32> {
        self.guest.as_ref().map(Guest::id)
    }

    /// Kills it.
    pub fn end(&mut self) {
        self.guest = None;
    }

    /// Has its QEMU stop for a while, as on a host that swaps.
    pub fn stall(&self, time: Duration) {
        let process = self.process().expect("it lives");
        signal(process, Signal::STOP);
        std::thread::sleep(time);
        signal(process, Signal::CONT);
    }

    /// What runs in it, and what its agent has complained of.
    pub fn state(&mut self) -> String {
        self.order("ps; cat /tmp/agent.log; ls -l /tmp; head -5 /proc/meminfo; dmesg | tail -80")
    }

    /// Reads this many MiB of its disk, and nothing else, from now on.
    pub fn load(&mut self, mib: u64, choice: &str, seed: u64) {
        self.order(&format!(
            "[ -e /tmp/load.pid ] && kill -9 $(cat /tmp/load.pid)
             futae load /dev/vda --file-size {mib}MiB --choice '{choice}' --hit-us 500 --miss-us 2000 \
                 --seconds 100000 --seed {seed} >/dev/null 2>&1 &
             echo $! >/tmp/load.pid"
        ));
    }

    /// Reads as it were in passing, with this many MiB of memory that is no page cache.
    pub fn hog(&mut self, mib: u64) {
        self.order(&format!(
            "dd if=/dev/vda of=/dev/null bs={mib}M count=2 2>/dev/null"
        ));
    }

    /// No agent runs then, and the port is free.
    pub fn kill_agent(&mut self) {
        self.order(
            "[ -e /tmp/agent.pid ] && kill -9 $(cat /tmp/agent.pid); rm -f /tmp/agent.pid
             for try in $(seq 50); do sleep 0.1; true 2>/dev/null >/tmp/port && exit 0; done
             exit 1",
        );
    }

    /// The agent, as it should be.
    pub fn start_agent(&mut self) {
        self.order(&format!("futae agent --report /tmp/port {AGENT}"));
    }

    /// The agent, as it should be; what it says is kept.
    pub fn start_recorded_agent(&mut self) {
        self.order(&format!(
            "rm -f /tmp/pipe; mkfifo /tmp/pipe; tee /tmp/recorded </tmp/pipe >/tmp/port 2>/dev/null &
             futae agent --report /tmp/pipe {AGENT}"
        ));
    }

    /// Writes what was kept to the port, again and again.
    pub fn replay(&mut self) {
        self.order(
            "for try in 1 2 3 4; do cat /tmp/recorded; sleep 0.5; done >/tmp/port; rm /tmp/recorded",
        );
    }

    /// Writes a lie to the port that no agent has.
    pub fn lie(&mut self, lie: Lie, random: &mut Prng) {
        let parts = Liar::new(random).parts(lie, LIE_PARTS);
        let image = OpenOptions::new().write(true).open(&self.place.lies);
        let written = image.and_then(|mut image| image.write_all(&parts.concat()));
        written.expect("room for a lie");
        let (mut script, mut at) = (String::new(), 1);
        for part in parts {
            let (length, times) = (part.len(), lie.times());
            script += &format!(
                "tail -c +{at} /tmp/lie | head -c {length} >/tmp/part
                 for time in $(seq {times}); do cat /tmp/part; done; sleep 0.5\n"
            );
            at += length;
        }
        let length = at - 1;
        self.order(&format!(
            "head -c {length} /dev/vdb >/tmp/lie; {{ {script} }} >/tmp/port; rm /tmp/lie /tmp/part"
        ));
    }
}

/// Signals a guest's QEMU, if it is still there.
pub fn signal(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    // A process that is gone needs no signal.
    let _ = kill_process(process.expect("a process"), signal);
}
