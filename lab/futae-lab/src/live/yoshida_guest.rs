//! The upper cache in a guest: a real Debian kernel, its page cache or a `futae mount` in it, and
//! `futae load` on top.

use super::cgroup::{Bound, Group};
use super::guests::{bound_page_cache, order};
use super::process::{Background, futae, read_bytes, status};
use super::yoshida_variants::{self, Counts, Outcome, SIZES, Variant};
use crate::product::program;
use anyhow::Context;
use futae_machine::{Disk, Guest, HostCache, Kernel, Plan};
use futae_papers::yoshida::{
    CHOSEN, GAIN, GENERATIONS, LITERAL, MAPPED, TWICE, TWO_LISTS, is_ordinary,
};
use futae_papers::{Options, Progress, Reproduction};
use futae_terminal::failure::Failure;
use rustix::fs::Advice;
use serde_json::Value;
use std::fs::{self, File};
use std::time::Duration;

/// What is in the guest. Linux can order its page cache by two lists, as it does if nobody has chosen, or by
/// generations. The lists come near to an LRU if whatever is read is used more than once, generations for what is read
/// through a map.
const VARIANTS: [Variant; 7] = [
    ("normal", TWO_LISTS),
    ("normal, read twice", TWICE),
    ("normal, generations", GENERATIONS),
    ("normal, generations, mapped", MAPPED),
    ("const", CHOSEN),
    ("lfu as printed", LITERAL),
    ("lfu, min_gain 10", GAIN),
];
/// Enough for the guest's file system, or for a page cache of the same size.
const MEMORY_MIB: u32 = 512;
/// How often the limit of the guest's page cache follows what the load needs for itself.
const FOLLOW_SECONDS: f64 = 0.5;
/// One variant, boot included, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(1800);
const SECTOR: f64 = 512.0;
/// Where the guest's cache logs what it decides.
const GUEST_LOG: &str = "/tmp/decisions";
/// A disk that has room for the guest's image.
const DISK_BYTES: u64 = SIZES.file + (64 << 20);

/// What a host cache has counted.
#[derive(Clone, Copy)]
struct Counted {
    /// Bytes that were asked of it.
    asked: f64,
    /// Bytes that it read from the store.
    store: f64,
}

/// Over futae's lower cache, by QEMU's own NBD client.
pub fn run_over_serve(options: &Options, progress: &Progress<'_>) -> Result<Reproduction, Failure> {
    let place = tempfile::Builder::new().prefix("futae-paper-").tempdir()?;
    let image = place.path().join("disk.img");
    yoshida_variants::make_image(&image)?;
    let all = yoshida_variants::run_all(&VARIANTS, options, progress, |variant| {
        let mut serve = futae([])?;
        serve.args(yoshida_variants::serve_arguments(&image, place.path()));
        let log = place.path().join("decisions");
        serve.arg("--decision-log").arg(&log);
        let (serve, ready) = Background::start("futae serve", serve)?;
        let uri = ready["exports"][0]["uris"][0].as_str();
        let uri = uri
            .context("the server does not tell its address")?
            .to_owned();
        let control = place.path().join("control.sock");
        let mut guest = plan()?.disk(Disk::Nbd { uri }).boot()?;
        let (mut outcome, before) = measure(&mut guest, variant, options, &mut |_| {
            let status = status(&control)?;
            let asked = status.counters.requests * status.block_bytes;
            Ok(Counted {
                asked: asked as f64,
                store: status.bytes_store_read as f64,
            })
        })?;
        let above = guest_log(&mut guest, variant.1)?;
        drop(guest);
        // It completes its log at its end.
        drop(serve);
        let before = before.asked as u64 / SIZES.unit;
        let simulated = yoshida_variants::simulate_below(variant.1, options, before, &log, &above)?;
        outcome.simulated = Some(simulated);
        Ok(outcome)
    })?;
    let mut made = yoshida_variants::report(options, &all);
    made.parameters.extend(parameters());
    let below = "futae serve, an lru in blocks of 4 KiB, behind QEMU's NBD client";
    made.parameters.push(("host cache", below.to_owned()));
    let logged = "from the decisions of the host's cache: all that came to it, replayed; from the \
                  requests of the load, with policy linux for the guest's page cache, and with the time \
                  that the guest's own loads took";
    made.parameters.push(("simulated", logged.to_owned()));
    made.errata.push(
        "normal: an LRU above leaves the host nothing; two lists leave it 10 % of hits if each page is read \
         once at a time, in simulation as here, and nothing if it is read twice; generations come near to an \
         LRU where they see every use, which is for maps",
    );
    made.checks.extend(yoshida_variants::bounds(&all));
    made.checks.extend(yoshida_variants::as_simulated(&all));
    Ok(made)
}

/// Over the host's page cache, bounded by a memory cgroup.
pub fn run_over_page_cache(
    options: &Options,
    progress: &Progress<'_>,
) -> Result<Reproduction, Failure> {
    let place = tempfile::Builder::new().prefix("futae-paper-").tempdir()?;
    let path = place.path().join("disk");
    fs::create_dir(&path).with_context(|| path.display().to_string())?;
    let below = super::disk::Disk::new(&place.path().join("below.img"), DISK_BYTES, &path)?;
    // What the host reads ahead would count as read in vain.
    let _below = below.without_read_ahead()?;
    let image = path.join("disk.img");
    yoshida_variants::make_image(&image)?;
    let all = yoshida_variants::run_all(&VARIANTS, options, progress, |variant| {
        let file = File::open(&image).with_context(|| image.display().to_string())?;
        // What has not been written yet stays in memory.
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        let disk = Disk::Image {
            path: image.clone(),
            cache: HostCache::Writeback,
        };
        // Taken down after the guest, since a group with processes in it stays.
        let group = Group::new(&[Bound::PageCache(SIZES.host)])?;
        let mut guest = plan()?.preallocated().disk(disk).boot()?;
        group.add(guest.id())?;
        let id = guest.id();
        let measured = measure(&mut guest, variant, options, &mut |guest| {
            Ok(Counted {
                asked: sectors(guest)? * SECTOR,
                store: read_bytes(id)?,
            })
        })?;
        Ok(measured.0)
    })?;
    let mut made = yoshida_variants::report(options, &all);
    made.parameters.extend(parameters());
    let below = "the host's page cache: QEMU cache=writeback in a memory cgroup";
    made.parameters.push(("host cache", below.to_owned()));
    Ok(made)
}

fn plan() -> anyhow::Result<Plan> {
    let plan = Plan::new(Kernel::Debian61).memory_mib(MEMORY_MIB);
    let plan = plan.module("fuse").file("/bin/futae", program()?);
    Ok(plan.limit(LIMIT))
}

fn parameters() -> Vec<(&'static str, String)> {
    let guest = format!("Linux 6.1 in {MEMORY_MIB} MiB under QEMU without hardware virtualisation");
    let normal = format!(
        "normal is the guest's page cache by either of Linux's lists, bounded to {} MiB and reading \
         nothing ahead; the others read past it",
        SIZES.ordinary >> 20
    );
    vec![("machine", guest), ("guest cache", normal)]
}

/// Sets up the variant in the guest, warms up, and counts; also says what was counted before.
fn measure(
    guest: &mut Guest,
    variant: Variant,
    options: &Options,
    counted: &mut dyn FnMut(&mut Guest) -> anyhow::Result<Counted>,
) -> Result<(Outcome, Counted), Failure> {
    let policy = variant.1;
    let counts = Counts::new(options, policy);
    let is_mapped = policy == MAPPED;
    let (bounds, target) = if is_ordinary(policy) {
        bound(guest, is_mapped || policy == GENERATIONS)?;
        // The page cache of a disk is gone with the last who has it open.
        order(guest, "sleep 1000000 </dev/vda >/dev/null 2>&1 &")?;
        let target = match policy {
            MAPPED => "/dev/vda --map",
            TWICE => "/dev/vda --read-twice",
            _ => "/dev/vda",
        };
        ("echo $$ >/sys/fs/cgroup/load/cgroup.procs;", target)
    } else {
        mount(guest, policy)?;
        ("", "/mnt/vda --direct")
    };
    // As much as one request: a cold one is read at once, and nothing ahead of it. Around a page of a map that is
    // touched as much would be read, also before the request.
    let kib = if is_mapped { 0 } else { SIZES.request >> 10 };
    order(
        guest,
        &format!("echo {kib} >/sys/block/vda/queue/read_ahead_kb"),
    )?;
    let [first, second] = yoshida_variants::seeds(options);
    let load = |guest: &mut Guest, seed, operations| {
        let words = yoshida_variants::load_arguments(seed, operations).join(" ");
        let said = order(guest, &format!("{bounds} futae {words} {target}"))?;
        serde_json::from_str::<Value>(&said).context("the load does not answer in JSON")
    };
    load(guest, first, counts.warmup)?;
    let before = counted(guest)?;
    let report = load(guest, second, counts.counted)?;
    let after = counted(guest)?;
    let (asked, store) = (after.asked - before.asked, after.store - before.store);
    let asked_or_none = if asked > 0.0 { asked } else { f64::NAN };
    let outcome = Outcome {
        variant,
        host_hit: 1.0 - store / asked_or_none,
        store: store / counts.bytes(),
        mib_per_second: yoshida_variants::figure(&report, "mib_per_second")?,
        simulated: None,
    };
    Ok((outcome, before))
}

/// Chooses the guest's page cache, and bounds it for what is read by processes of a cgroup: the limit of
/// the group's memory follows what they take for themselves.
fn bound(guest: &mut Guest, generations: bool) -> anyhow::Result<()> {
    let lists = if generations { "y" } else { "n" };
    let cache = SIZES.ordinary;
    order(
        guest,
        &format!("echo {lists} >/sys/kernel/mm/lru_gen/enabled"),
    )?;
    bound_page_cache(guest, cache)?;
    let script = format!(
        "cd /sys/fs/cgroup\n\
         while sleep {FOLLOW_SECONDS}; do\n\
         own=$(($(cat load/memory.current) - $(sed -n 's/^file //p' load/memory.stat)))\n\
         echo $(({cache} + own)) >load/memory.max\n\
         done >/dev/null 2>&1 &"
    );
    order(guest, &script).map(drop)
}

/// Mounts the guest's file system and waits until it is there.
fn mount(guest: &mut Guest, policy: &str) -> anyhow::Result<()> {
    let words = yoshida_variants::mount_arguments(policy);
    let words = words
        .iter()
        .filter(|word| !["--on-eviction", "none"].contains(&word.as_str()));
    let words: Vec<_> = words.map(|word| format!("'{word}'")).collect();
    let script = format!(
        "futae mount /dev/vda /mnt --decision-log {GUEST_LOG} {} >/tmp/mount.out 2>/tmp/mount.err &\n\
         for attempt in $(seq 1 300); do\n\
         [ -e /mnt/vda ] && exit 0\n\
         kill -0 $! 2>/dev/null || break\n\
         sleep 0.1\ndone\ncat /tmp/mount.err >&2; exit 1",
        words.join(" ")
    );
    order(guest, &script).map(drop)
}

/// Ends the guest's mount, and takes the log that it has completed then; empty where there is none.
fn guest_log(guest: &mut Guest, policy: &str) -> anyhow::Result<String> {
    if is_ordinary(policy) {
        return Ok(String::new());
    }
    // One line when it is ready, and one at its end.
    let script = format!(
        "umount /mnt\n\
         for attempt in $(seq 1 300); do\n\
         [ $(wc -l </tmp/mount.out) -ge 2 ] && break\n\
         sleep 0.1\ndone\ncat {GUEST_LOG}"
    );
    order(guest, &script)
}

/// Sectors that the guest has read from its disk.
fn sectors(guest: &mut Guest) -> anyhow::Result<f64> {
    let said = order(guest, "cat /sys/block/vda/stat")?;
    let third = said.split_whitespace().nth(2);
    third
        .and_then(|word| word.parse().ok())
        .context("the guest does not tell what it has read")
}
