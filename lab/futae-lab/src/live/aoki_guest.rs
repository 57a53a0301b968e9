//! Both readers in guests of their own: Linux's page cache, counted by `futae agent`, moved by QEMU's
//! balloon.
//!
//! A kernel that is a sixteenth of a kernel there is not. What a guest needs beside its page cache is measured once the
//! agent runs; what of that is more than a sixteenth of the simulated guest's is given on top, and never moves.

use super::aoki_pace::{Pace, Probe};
use super::aoki_race::{Race, Trials};
use super::aoki_reader::forget;
use super::aoki_systems::{self, Ends, FILES, LEAST, MIB, MOST, OVERHEAD, Outcome, Reader, TOTAL};
use super::guests::{PORT, boot, look_for_qemu, memory, order, start_agent};
use super::process::{futae, run_json};
use anyhow::{Context, bail};
use futae_balance::Config;
use futae_balance::actuator::Actuator;
use futae_machine::Guest;
use futae_papers::{Check, Options, Reproduction, Source};
use futae_terminal::failure::Failure;
use futae_units::Size;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What a guest boots with: more than it ever has while it is measured.
const MEMORY_MIB: u32 = 512;
/// All runs of a guest, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(7200);
/// A file is read by this many commands. Between them it can be interrupted, but while one starts its guest
/// reads nothing.
const PARTS: u64 = 2;
const AGENT: &str = "--period 500ms --sample 0.125";
/// How long balloons may take at the start, and connections of agents.
const PATIENCE: Duration = Duration::from_secs(60);
const GREETING: Duration = Duration::from_secs(3);
/// So often what a guest needs must be the same in a row, and so often it is looked at.
const SETTLED: u32 = 3;
const SETTLE_LOOKS: u32 = 60;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
const IMAGE_BYTES: u64 = 480 * MIB;
const NAMES: [&str; 2] = ["first", "second"];

/// A guest with its disk and its agent.
struct Machine {
    guest: Guest,
    image: PathBuf,
    feed: PathBuf,
    /// Bytes that it has on top: what of its memory can be no page cache, less [`OVERHEAD`].
    on_top: u64,
}

/// Runs every system.
pub fn run(
    choice: &'static str,
    options: &Options,
    progress: &dyn Fn(f64),
) -> Result<Reproduction, Failure> {
    look_for_qemu("live-guest")?;
    let place = tempfile::Builder::new().prefix("futae-paper-").tempdir()?;
    let reads = aoki_systems::reads(options);
    let mut machines = [
        Machine::new(place.path(), 0, choice, options)?,
        Machine::new(place.path(), 1, choice, options)?,
    ];
    let pace = measure(&mut machines)?;
    for machine in &mut machines {
        machine.settle()?;
    }
    let [first, second] = &machines;
    let beside = [first, second].map(|machine| format!("{} MiB", machine.on_top / MIB));
    let parameters = vec![
        (
            "readers",
            format!(
                "{choice} by 4 KiB, {reads} of each file on ext4, one thread each; files of 128 and 256 MiB"
            ),
        ),
        (
            "guests",
            format!(
                "Linux {} under QEMU without hardware virtualisation; together 384 MiB, each at least 64 MiB, of which \
                 25.6 MiB are no page cache, and beside that {} for kernel and programs; nothing is read ahead",
                first.guest.release(),
                beside.join(" and ")
            ),
        ),
        ("agent", format!("futae agent {AGENT}")),
    ]
    .into_iter()
    .chain(pace.parameters())
    .collect();
    let mut killed = 0;
    let simulated = aoki_systems::simulated(choice, options, first.on_top)?;
    let mut made = aoki_systems::compare(parameters, simulated, progress, &mut |system| {
        let outcome = one(&mut machines, system, choice, &pace, options)?;
        for machine in &mut machines {
            let said = order(&mut machine.guest, "grep oom_kill /proc/vmstat")?;
            let number = said.split_whitespace().nth(1);
            killed += number.and_then(|number| number.parse().ok()).unwrap_or(1);
        }
        Ok(outcome)
    })?;
    made.checks.push(Check::within(
        Source::Model,
        "processes that the guests' OOM killer killed",
        f64::from(killed),
        0.0,
        0.0,
    ));
    Ok(made)
}

impl Machine {
    /// Makes its files and boots it; its agent runs then.
    fn new(
        place: &Path,
        number: usize,
        choice: &'static str,
        options: &Options,
    ) -> Result<Self, Failure> {
        if options.stopped.load(Ordering::Relaxed) {
            return Err(anyhow::anyhow!("interrupted; everything was taken down").into());
        }
        let image = image(place, number)?;
        let feed = place.join(format!("{number}.agent"));
        let mut guest = boot("live-guest", |plan| {
            plan.memory_mib(MEMORY_MIB)
                .limit(LIMIT)
                .balloon()
                .disk(image.clone())
                .port(PORT, &feed)
        })?;
        let hold = "mount -t ext4 -o ro,noatime /dev/vda /mnt && echo 0 >/sys/block/vda/queue/read_ahead_kb";
        order(&mut guest, hold)?;
        start_agent(&mut guest, AGENT)?;
        // What is read by the first command of all is read by none of those that are measured.
        let probe = format!(
            "sleep 3; futae load /mnt/first --choice '{choice}' --operations 100 >/dev/null"
        );
        order(&mut guest, &probe)?;
        Ok(Self {
            guest,
            image,
            feed,
            on_top: 0,
        })
    }

    fn actuator(&self) -> Actuator {
        Actuator::Qmp {
            socket: self.guest.monitor(),
        }
    }

    /// Has it have so much, in fact.
    fn resize(&self, bytes: u64) -> anyhow::Result<()> {
        let actuator = self.actuator();
        let told = |said: Result<u64, String>| said.map_err(anyhow::Error::msg);
        actuator.order(bytes).map_err(anyhow::Error::msg)?;
        let deadline = Instant::now() + PATIENCE;
        while told(actuator.achieved())?.abs_diff(bytes) > MIB {
            if Instant::now() > deadline {
                bail!("a guest's balloon does not reach its size");
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// Has it begin a run: with half of the memory, and with nothing that it has read before.
    fn empty(&mut self) -> anyhow::Result<()> {
        self.resize(TOTAL / 2 + self.on_top)?;
        self.forget()
    }

    /// Has nobody hold what it has read.
    fn forget(&mut self) -> anyhow::Result<()> {
        order(&mut self.guest, "echo 3 >/proc/sys/vm/drop_caches")?;
        forget(&self.image)
    }

    /// Learns what the guest needs beside its page cache, once that is the same for a while: an agent that is
    /// still loading its programs has more.
    fn settle(&mut self) -> anyhow::Result<()> {
        let (mut before, mut same) = (0, 0);
        for _ in 0..SETTLE_LOOKS {
            let look = "sleep 1; echo 3 >/proc/sys/vm/drop_caches; cat /proc/meminfo";
            let said = order(&mut self.guest, look)?;
            let now = overhead(&said).context("a guest does not tell its memory")?;
            same = if now.abs_diff(before) <= MIB {
                same + 1
            } else {
                0
            };
            before = now;
            if same == SETTLED {
                self.on_top = now.saturating_sub(OVERHEAD).div_ceil(MIB) * MIB;
                return Ok(());
            }
        }
        bail!("a guest does not come to rest")
    }

    /// Its lines of the configuration.
    fn config(&self, number: usize) -> String {
        let mib = |memory: u64| (memory + self.on_top) / MIB;
        format!(
            "[[guest]]\nname = \"G{}\"\nminimum = \"{}MiB\"\nmaximum = \"{}MiB\"\nstart = \"{}MiB\"\n\
             agent = {{ listen = {:?} }}\nactuator = {{ kind = \"qmp\", socket = {:?} }}\n",
            number + 1,
            mib(LEAST),
            mib(MOST),
            mib(TOTAL / 2),
            self.feed.display().to_string(),
            self.guest.monitor().display().to_string()
        )
    }
}

/// A disk image with a guest's files.
fn image(place: &Path, number: usize) -> Result<PathBuf, Failure> {
    let directory = place.join(format!("files-{number}"));
    fs::create_dir(&directory)?;
    for (name, bytes) in NAMES.into_iter().zip(FILES[number]) {
        let mut load = futae(["load", "--create", "--json", "--operations", "1"])?;
        load.args(["--file-size", &Size::Bytes(bytes).to_string()])
            .arg(directory.join(name));
        run_json("making a file", load)?;
    }
    let image = place.join(format!("{number}.img"));
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-m", "0", "-d"])
        .arg(&directory)
        .arg(&image);
    let made = make.arg(format!("{}k", IMAGE_BYTES / 1024)).output();
    let made = made.context("mkfs.ext4 cannot be started: apt-get install e2fsprogs")?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        return Err(anyhow::anyhow!("mkfs.ext4: {}", said.trim()).into());
    }
    fs::remove_dir_all(&directory)?;
    Ok(image)
}

/// What a guest with an empty page cache has beside it.
fn overhead(meminfo: &str) -> Option<u64> {
    let of = |name| memory(meminfo, name);
    // Files in memory are in the page cache and cannot leave it.
    let cache = (of("MemFree")? + of("Buffers")? + of("Cached")?).checked_sub(of("Shmem")?)?;
    let all = u64::from(MEMORY_MIB) * MIB;
    all.checked_sub(cache)
}

/// How fast they read, with empty page caches, while their agents count.
fn measure(machines: &mut [Machine; 2]) -> Result<Pace, Failure> {
    for machine in machines.iter_mut() {
        machine.forget()?;
    }
    let [first, second] = machines;
    // G1's second file and G2's first are the large ones.
    let probes = [(first, NAMES[1]), (second, NAMES[0])].map(|(machine, name)| -> Probe<'_> {
        Box::new(move |options| {
            let load = format!("futae load /mnt/{name} --json {}", options.join(" "));
            Ok(serde_json::from_str(&order(&mut machine.guest, &load)?)?)
        })
    });
    Ok(Pace::measure(probes)?)
}

fn one(
    machines: &mut [Machine; 2],
    system: &str,
    choice: &'static str,
    pace: &Pace,
    options: &Options,
) -> Result<Outcome, Failure> {
    let on_top: u64 = machines.iter().map(|machine| machine.on_top).sum();
    let mut config = aoki_systems::head(system, pace.trial, TOTAL + on_top);
    for (number, machine) in machines.iter_mut().enumerate() {
        config += &machine.config(number);
        machine.empty()?;
    }
    let config = Config::parse(&config)?;
    let [first, second] = machines;
    let readers = [(first, 0), (second, 1)].map(|(machine, number)| -> Reader<'_> {
        let script = Script {
            choice,
            reads: aoki_systems::reads(options),
            seed: aoki_systems::seed(options, number),
            pace,
        };
        Box::new(move |race| {
            let ends = read(&mut machine.guest, &script, race);
            race.has_read();
            ends
        })
    });
    aoki_systems::race(&config, readers, options, Trials::Time(pace.trial), || {
        // QEMU looks for somebody who listens once a second.
        std::thread::sleep(GREETING);
        Ok(())
    })
}

/// What the reader in a guest does.
struct Script<'a> {
    /// How pages are chosen.
    choice: &'static str,
    /// Page reads of each file.
    reads: u64,
    /// Of the first file; the second has the next.
    seed: u64,
    pace: &'a Pace,
}

/// Reads one file after the other in the guest.
fn read(guest: &mut Guest, script: &Script<'_>, race: &Race) -> anyhow::Result<Ends> {
    let (choice, reads) = (script.choice, script.reads);
    let mut ends = [0.0; 2];
    for (file, (name, seed)) in NAMES.into_iter().zip(script.seed..).enumerate() {
        for part in 0..PARTS {
            race.go_on()?;
            let now = reads * (part + 1) / PARTS - reads * part / PARTS;
            let seed = seed.wrapping_mul(PARTS).wrapping_add(part);
            let load = format!(
                "futae load /mnt/{name} --choice '{choice}' --operations {now} --seed {seed} {}",
                script.pace.options()
            );
            order(guest, &format!("{load} >/dev/null"))?;
        }
        ends[file] = race.elapsed(0, 0);
    }
    Ok(ends)
}
