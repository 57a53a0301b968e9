//! The upper cache in a guest: a real Debian kernel, its page cache or a `futae mount` in it, and
//! `futae load` on top.

use super::Options;
use super::cgroup::{Bound, Group};
use super::process::{Background, futae, own_program, read_bytes, status};
use super::yoshida::{self, Counts, Outcome, SIZES};
use crate::failure::Failure;
use anyhow::{Context, anyhow};
use futae_machine::{Disk, Guest, HostCache, Kernel, Plan};
use futae_papers::Reproduction;
use futae_papers::yoshida::ORDINARY;
use rustix::fs::Advice;
use serde_json::Value;
use std::fs::{self, File};
use std::time::Duration;

/// Enough for the guest's file system, or for a page cache of the same size.
const MEMORY_MIB: u32 = 512;
/// What the load itself needs, in the memory cgroup that bounds the page cache.
const LOAD_BYTES: u64 = 8 << 20;
/// One variant, boot included, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(900);
const SECTOR: f64 = 512.0;
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
pub fn run_over_serve(
    options: &Options<'_>,
    progress: &dyn Fn(f64),
) -> Result<Reproduction, Failure> {
    let place = tempfile::Builder::new().prefix("futae-paper-").tempdir()?;
    let image = place.path().join("disk.img");
    yoshida::make_image(&image)?;
    let all = yoshida::run_all(options, progress, |policy| {
        let mut serve = futae([])?;
        serve.args(yoshida::serve_arguments(&image, place.path()));
        let (_serve, ready) = Background::start("futae serve", serve)?;
        let uri = ready["exports"][0]["uris"][0].as_str();
        let uri = uri
            .context("the server does not tell its address")?
            .to_owned();
        let control = place.path().join("control.sock");
        let mut guest = plan()?.disk(Disk::Nbd { uri }).boot()?;
        measure(&mut guest, policy, options, &mut |_| {
            let status = status(&control)?;
            let asked = status.counters.requests * status.block_bytes;
            Ok(Counted {
                asked: asked as f64,
                store: status.bytes_store_read as f64,
            })
        })
    })?;
    let mut made = yoshida::report(options, &all);
    made.parameters.extend(parameters());
    let below = "futae serve, an lru in blocks of 4 KiB, behind QEMU's NBD client";
    made.parameters.push(("host cache", below.to_owned()));
    made.checks.extend(yoshida::bounds(&all));
    Ok(made)
}

/// Over the host's page cache, bounded by a memory cgroup.
pub fn run_over_page_cache(
    options: &Options<'_>,
    progress: &dyn Fn(f64),
) -> Result<Reproduction, Failure> {
    let place = tempfile::Builder::new().prefix("futae-paper-").tempdir()?;
    let path = place.path().join("disk");
    fs::create_dir(&path).with_context(|| path.display().to_string())?;
    let below = super::disk::Disk::new(&place.path().join("below.img"), DISK_BYTES, &path)?;
    // What the host reads ahead would count as read in vain.
    let _below = below.without_read_ahead()?;
    let image = path.join("disk.img");
    yoshida::make_image(&image)?;
    let all = yoshida::run_all(options, progress, |policy| {
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
        measure(&mut guest, policy, options, &mut |guest| {
            Ok(Counted {
                asked: sectors(guest)? * SECTOR,
                store: read_bytes(id)?,
            })
        })
    })?;
    let mut made = yoshida::report(options, &all);
    made.parameters.extend(parameters());
    let below = "the host's page cache: QEMU cache=writeback in a memory cgroup";
    made.parameters.push(("host cache", below.to_owned()));
    Ok(made)
}

fn plan() -> anyhow::Result<Plan> {
    let plan = Plan::new(Kernel::Debian61).memory_mib(MEMORY_MIB);
    let plan = plan.module("fuse").file("/bin/futae", own_program()?);
    Ok(plan.limit(LIMIT))
}

fn parameters() -> Vec<(&'static str, String)> {
    let guest = format!("Linux 6.1 in {MEMORY_MIB} MiB under QEMU without hardware virtualisation");
    let normal = format!(
        "normal is the guest's page cache, bounded to {} MiB and reading nothing ahead; the others \
         read past it",
        SIZES.ordinary >> 20
    );
    vec![("machine", guest), ("guest cache", normal)]
}

/// Sets up the variant in the guest, warms up, and counts.
fn measure(
    guest: &mut Guest,
    policy: &str,
    options: &Options<'_>,
    counted: &mut dyn FnMut(&mut Guest) -> anyhow::Result<Counted>,
) -> Result<Outcome, Failure> {
    let counts = Counts::new(options, policy);
    let (bounds, target) = match policy {
        ORDINARY => {
            bound(guest)?;
            ("echo $$ >/sys/fs/cgroup/load/cgroup.procs;", "/dev/vda")
        }
        _ => {
            mount(guest, policy)?;
            ("", "/mnt/vda --direct")
        }
    };
    run(guest, "echo 0 >/sys/block/vda/queue/read_ahead_kb")?;
    let [first, second] = yoshida::seeds(options);
    let load = |guest: &mut Guest, seed, operations| {
        let words = yoshida::load_arguments(seed, operations).join(" ");
        let said = run(guest, &format!("{bounds} futae {words} {target}"))?;
        serde_json::from_str::<Value>(&said).context("the load does not answer in JSON")
    };
    load(guest, first, counts.warmup)?;
    let before = counted(guest)?;
    let report = load(guest, second, counts.counted)?;
    let after = counted(guest)?;
    let (asked, store) = (after.asked - before.asked, after.store - before.store);
    let asked_or_none = if asked > 0.0 { asked } else { f64::NAN };
    Ok(Outcome {
        host_hit: 1.0 - store / asked_or_none,
        store: store / counts.bytes(),
        mib_per_second: yoshida::figure(&report, "mib_per_second")?,
        simulated: None,
    })
}

/// Bounds the page cache of what is read by processes of a cgroup in the guest.
fn bound(guest: &mut Guest) -> anyhow::Result<()> {
    let bytes = SIZES.ordinary + LOAD_BYTES;
    let script = format!(
        "mount -t cgroup2 cgroups /sys/fs/cgroup && cd /sys/fs/cgroup && \
         echo +memory >cgroup.subtree_control && mkdir load && echo {bytes} >load/memory.max"
    );
    run(guest, &script).map(drop)
}

/// Mounts the guest's file system and waits until it is there.
fn mount(guest: &mut Guest, policy: &str) -> anyhow::Result<()> {
    let words = yoshida::mount_arguments(policy);
    let words = words
        .iter()
        .filter(|word| !["--hand-down", "nothing"].contains(&word.as_str()));
    let words: Vec<_> = words.map(|word| format!("'{word}'")).collect();
    let script = format!(
        "futae mount /dev/vda /mnt {} >/tmp/mount.out 2>/tmp/mount.err &\n\
         for attempt in $(seq 1 300); do\n\
         [ -e /mnt/vda ] && exit 0\n\
         kill -0 $! 2>/dev/null || break\n\
         sleep 0.1\ndone\ncat /tmp/mount.err >&2; exit 1",
        words.join(" ")
    );
    run(guest, &script).map(drop)
}

fn run(guest: &mut Guest, script: &str) -> anyhow::Result<String> {
    let output = guest.run(script)?;
    if output.status != 0 {
        let (status, said) = (output.status, output.stderr.trim());
        let log = guest.log();
        return Err(anyhow!(
            "in the guest, status {status}: {said}\n{script}\n{log}"
        ));
    }
    Ok(output.stdout)
}

/// Sectors that the guest has read from its disk.
fn sectors(guest: &mut Guest) -> anyhow::Result<f64> {
    let said = run(guest, "cat /sys/block/vda/stat")?;
    let third = said.split_whitespace().nth(2);
    third
        .and_then(|word| word.parse().ok())
        .context("the guest does not tell what it has read")
}
