//! A guest whose page cache is counted: its bound, its load and its agent.

use super::setup::{Bound, FileSystem, Lists, PAGE};
use crate::live::guests::{boot_kernel, order};
use anyhow::{Context, anyhow};
use futae_agent_protocol::{Counters, Message};
use futae_machine::{Disk, Guest, Kernel};
use futae_terminal::failure::Failure;
use futae_trace::WorkloadSpec;
use serde_json::Value;
use std::collections::HashSet;
use std::fs::File;
use std::time::Duration;
use tempfile::TempDir;

/// Memory of a guest whose page cache a group bounds, and of one whose page cache has all that is left.
const MEMORY_MIB: [u32; 2] = [512, 256];
/// All cells of a guest, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(4 * 3600);
const PERIOD_MS: u64 = 200;
/// Where the agent writes its lines.
const REPORTS: &str = "/tmp/agent.json";
/// What the names of a load's files begin with: its orders, its reports, its errors, and that it has ended.
const LOAD: &str = "/tmp/load";
/// The allocator keeps what a round frees, for the next one: else the group's page cache would shrink with each round.
const KEEP: &str =
    "MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=268435456 MALLOC_MMAP_THRESHOLD_=268435456";
/// A process that takes memory of which the kernel gets nothing back.
const HOG: &str = "/fill/hog";
const KIB: u64 = 1024;
/// What the kernel keeps free before its daemon begins, and what the load needs.
const KEPT_FREE: u64 = 16 << 20;

/// What a guest's page cache did.
pub struct Measured {
    /// Its size once full.
    pub pages: u64,
    pub reads: u64,
    pub hit_ratio: f64,
    pub disk_hit_ratio: f64,
}

/// What is read of a guest while its load does nothing.
pub struct Look {
    counters: Counters,
    disk_pages: u64,
    pages: u64,
}

/// What XFS takes beside the file: it makes none of less than 300 MiB.
const BESIDE: u64 = 320 << 20;
/// The disk, and a file on it.
const DEVICE: &str = "/dev/vda";
const FILE: &str = "/mnt/file";

/// A guest with its disk and its agent.
pub struct Machine {
    guest: Guest,
    /// What is read.
    read: &'static str,
    bound: Bound,
    /// Bytes of page cache.
    cache: u64,
    /// Cells so far: each has a group of its own, whose lists begin empty.
    cells: u32,
    /// The kernel's choice before anything was changed.
    by_default: String,
    /// Rounds of this cell's load.
    rounds: u64,
    _place: Option<TempDir>,
}

impl Machine {
    /// Boots it with an empty disk, or with a file as large on a file system; its agent runs then.
    pub fn boot(
        kernel: Kernel,
        bound: Bound,
        cache: u64,
        (bytes, file_system): (u64, Option<FileSystem>),
    ) -> Result<Self, Failure> {
        let place = tempfile::Builder::new().prefix("futae-lab-").tempdir()?;
        let image = place.path().join("disk.img");
        let Some(file_system) = file_system else {
            File::create(&image)?.set_len(bytes)?;
            let booted = Self::boot_on(kernel, bound, cache, &image.into())?;
            return Ok(Self {
                _place: Some(place),
                ..booted
            });
        };
        File::create(&image)?.set_len(bytes + BESIDE)?;
        file_system.make(&image)?;
        let disk = (&image.into(), Some(file_system));
        let mut booted = Self::boot_with(kernel, bound, cache, disk)?;
        let script = format!(
            "mount -t {} {DEVICE} /mnt && dd if=/dev/zero of={FILE} bs=1M count={} conv=fsync 2>/dev/null",
            file_system.name(),
            bytes.div_ceil(1 << 20)
        );
        order(&mut booted.guest, &script)?;
        Ok(Self {
            _place: Some(place),
            read: FILE,
            ..booted
        })
    }

    /// As [`boot`](Self::boot), with a disk that is there.
    pub fn boot_on(kernel: Kernel, bound: Bound, cache: u64, disk: &Disk) -> Result<Self, Failure> {
        Self::boot_with(kernel, bound, cache, (disk, None))
    }

    /// As [`boot_on`](Self::boot_on), with what the kernel needs for a file system.
    fn boot_with(
        kernel: Kernel,
        bound: Bound,
        cache: u64,
        (disk, file_system): (&Disk, Option<FileSystem>),
    ) -> Result<Self, Failure> {
        let mut guest = boot_kernel("kernels", Some(kernel), |plan| {
            let memory = MEMORY_MIB[usize::from(bound == Bound::Memory)];
            let plan = plan.memory_mib(memory).limit(LIMIT);
            let plan = plan.disk(disk.clone());
            match file_system {
                Some(file_system) => plan.module(file_system.name()),
                None => plan,
            }
        })?;
        // The page cache of a disk is gone with the last who has it open.
        let script = format!(
            "echo 0 >/sys/block/vda/queue/read_ahead_kb\n\
             sleep 1000000 <{DEVICE} >/dev/null 2>&1 &\n\
             mount -t cgroup2 cgroups /sys/fs/cgroup\n\
             echo +memory >/sys/fs/cgroup/cgroup.subtree_control\n\
             futae agent --report - --period {PERIOD_MS}ms --groups >{REPORTS} 2>/tmp/agent.log &\n\
             for attempt in $(seq 1 600); do grep -q sample {REPORTS} && break; sleep 0.1; done\n\
             cat /sys/kernel/mm/lru_gen/enabled"
        );
        let by_default = order(&mut guest, &script)?;
        Ok(Self {
            guest,
            read: DEVICE,
            bound,
            cache,
            cells: 0,
            by_default: by_default.trim().to_owned(),
            rounds: 0,
            _place: None,
        })
    }

    /// Sets what files that are opened from now on read ahead, in bytes; nothing after [`boot`](Self::boot).
    pub fn read_ahead(&mut self, bytes: u64) -> Result<(), Failure> {
        let kib = bytes / KIB;
        let setting = "/sys/block/vda/queue/read_ahead_kb";
        order(&mut self.guest, &format!("echo {kib} >{setting}"))?;
        Ok(())
    }

    /// The kernel's release.
    pub fn release(&self) -> &str {
        self.guest.release()
    }

    /// Chooses how the page cache is ordered; whether that is by generations.
    pub fn choose(&mut self, lists: Lists) -> Result<bool, Failure> {
        let generations = match lists {
            Lists::Default => self.by_default != "0x0000",
            Lists::Two => false,
            Lists::Generations => true,
        };
        let word = if generations { "y" } else { "n" };
        order(
            &mut self.guest,
            &format!("echo {word} >/sys/kernel/mm/lru_gen/enabled"),
        )?;
        Ok(generations)
    }

    /// Begins a workload, from an empty page cache on. One process does all its rounds: another one would take memory of the
    /// group, and pages would leave. If it is to tell after each round which pages are `resident`, that takes memory, too.
    pub fn begin(
        &mut self,
        workload: &WorkloadSpec,
        seed: u64,
        resident: bool,
    ) -> Result<(), Failure> {
        self.cells += 1;
        self.rounds = 0;
        self.bound()?;
        let group = self.group();
        let resident = if resident { "--resident" } else { "" };
        let read = self.read;
        // A pipe that is opened for both waits for nobody.
        let script = format!(
            "rm -f {LOAD}.*; mkfifo {LOAD}.orders; : >{LOAD}.reports\n\
             export {KEEP} WORKLOAD='{workload}'\n\
             (sh -c 'echo $$ >{group}/cgroup.procs; echo $$ >{LOAD}.process\n\
             exec futae load {read} --workload \"$WORKLOAD\" --rounds --seed {seed} {resident} --json'\n\
             echo >{LOAD}.ended) <>{LOAD}.orders >>{LOAD}.reports 2>{LOAD}.errors &"
        );
        order(&mut self.guest, &script)?;
        Ok(())
    }

    /// Does so many further reads; which pages are in the cache then, if the load tells.
    pub fn read(&mut self, reads: u64) -> Result<HashSet<u64>, Failure> {
        self.rounds += 1;
        let script = format!(
            "echo {reads} >{LOAD}.orders\n\
             while [ $(wc -l <{LOAD}.reports) -lt {} ]; do\n\
             if [ -e {LOAD}.ended ]; then cat {LOAD}.errors >&2; exit 1; fi\n\
             sleep 0.05\n\
             done\n\
             tail -n 1 {LOAD}.reports",
            self.rounds
        );
        let said: Value = serde_json::from_str(&order(&mut self.guest, &script)?)?;
        let ranges: Option<Vec<[u64; 2]>> = serde_json::from_value(said["resident_pages"].clone())?;
        let ranges = ranges.unwrap_or_default();
        Ok(ranges.into_iter().flat_map(|[from, to]| from..to).collect())
    }

    /// Ends the load after so many reads; what the cache did since the guest looked as `before` says.
    pub fn end(&mut self, before: &Look, reads: u64) -> Result<Measured, Failure> {
        let after = self.look()?;
        let script =
            format!("kill $(cat {LOAD}.process); while ! [ -e {LOAD}.ended ]; do sleep 0.05; done");
        order(&mut self.guest, &script)?;
        self.unbound()?;
        let accesses = after.counters.accesses - before.counters.accesses;
        let misses = after.counters.misses - before.counters.misses;
        let disk_pages = after.disk_pages - before.disk_pages;
        if accesses != reads {
            let log = order(&mut self.guest, "cat /tmp/agent.log")?;
            let message =
                format!("the agent counts {accesses} reads where the load did {reads}: {log}");
            return Err(anyhow!(message).into());
        }
        let share = |misses: u64| 1.0 - misses as f64 / reads.max(1) as f64;
        Ok(Measured {
            // A cache that was not full yet is measured by what it grew to.
            pages: before.pages.max(after.pages),
            reads,
            hit_ratio: share(misses),
            disk_hit_ratio: share(disk_pages),
        })
    }

    fn group(&self) -> String {
        match self.bound {
            Bound::Group => format!("/sys/fs/cgroup/load{}", self.cells),
            Bound::Memory => "/sys/fs/cgroup".to_owned(),
        }
    }

    /// Empties the page cache, and bounds it: a group's limit follows what the load takes for itself; or a file in memory
    /// takes what the page cache shall not have.
    fn bound(&mut self) -> Result<(), Failure> {
        let (group, cache) = (self.group(), self.cache);
        let script = match self.bound {
            Bound::Group => format!(
                "echo 3 >/proc/sys/vm/drop_caches; mkdir {group} && cd {group} && echo {} >memory.max || exit 1\n\
                 held=0\n\
                 while sleep 0.5; do\n\
                 own=$(($(cat memory.current) - $(sed -n 's/^file //p' memory.stat)))\n\
                 held=$((own > held ? own : held - (held - own) / 8))\n\
                 echo $(({cache} + held)) >memory.max\n\
                 done >/dev/null 2>&1 &\n\
                 echo $! >/tmp/follow",
                cache + (8 << 20)
            ),
            Bound::Memory => format!(
                "mkdir -p /fill; mountpoint -q /fill || mount -t ramfs none /fill\n\
                 rm -f {HOG}; echo 3 >/proc/sys/vm/drop_caches\n\
                 free=$(sed -n 's/^MemFree: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo)\n\
                 [ $free -le {kept} ] || dd if=/dev/zero of={HOG} bs=64k count=$(((free - {kept}) / 64)) 2>/dev/null",
                kept = (cache + KEPT_FREE) / KIB
            ),
        };
        order(&mut self.guest, &script)?;
        Ok(())
    }

    fn unbound(&mut self) -> Result<(), Failure> {
        let script = match self.bound {
            Bound::Group => format!(
                "kill $(cat /tmp/follow); echo 3 >/proc/sys/vm/drop_caches; rmdir {}",
                self.group()
            ),
            Bound::Memory => format!("rm -f {HOG}"),
        };
        order(&mut self.guest, &script)?;
        Ok(())
    }

    /// Waits until the agent has reported all so far, and adds that up.
    pub fn look(&mut self) -> Result<Look, Failure> {
        let seconds = 2.5 * PERIOD_MS as f64 / 1000.0;
        let files = match self.bound {
            Bound::Group => format!("sed -n 's/^file //p' {}/memory.stat", self.group()),
            Bound::Memory => {
                "sed -n 's/^.*active(file): *\\([0-9]*\\) kB/\\1/p' /proc/meminfo".to_owned()
            }
        };
        let script =
            format!("sleep {seconds}; {files}; echo; cat /sys/block/vda/stat; cat {REPORTS}");
        let said = order(&mut self.guest, &script)?;
        let (sizes, rest) = said
            .split_once("\n\n")
            .context("the guest does not tell the size of its page cache")?;
        let numbers = sizes
            .lines()
            .filter_map(|line| line.trim().parse::<u64>().ok());
        let sum: u64 = numbers.sum();
        let unit = match self.bound {
            Bound::Group => 1,
            Bound::Memory => KIB,
        };
        let mut lines = rest.lines();
        // The third is the number of sectors read.
        let disk_sectors = lines.next().and_then(|line| {
            let third = line.split_whitespace().nth(2)?;
            third.parse::<u64>().ok()
        });
        let disk_sectors =
            disk_sectors.context("the guest does not tell what its disk has read")?;
        Ok(Look {
            counters: counted(lines)?,
            disk_pages: disk_sectors / (PAGE / 512),
            pages: sum * unit / PAGE,
        })
    }
}

/// All that an agent has counted of disks, by its lines.
fn counted<'a>(lines: impl Iterator<Item = &'a str>) -> anyhow::Result<Counters> {
    let mut sum = [0; Counters::FIELDS];
    for line in lines.filter(|line| line.contains("sample")) {
        let message: Message = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let Message::Sample(sample) = message else {
            continue;
        };
        for device in sample.devices {
            let counts = device.counters.to_array();
            sum.iter_mut()
                .zip(counts)
                .for_each(|(sum, one)| *sum += one);
        }
    }
    Ok(Counters::from_array(sum))
}
