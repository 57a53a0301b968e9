//! Guests of the experiments and demonstrations: futae in a Debian kernel, which QEMU runs without
//! hardware virtualisation.

use crate::interrupt;
use crate::product::program;
use anyhow::{anyhow, bail};
use futae_machine::{Guest, Kernel, Plan};
use std::process::{Command, Stdio};

/// The name of the virtual serial port that agents report to.
pub const PORT: &str = "futae.0";

/// Before anything is made or downloaded. `who` needs it.
pub fn look_for_qemu(who: &str) -> anyhow::Result<()> {
    let mut version = Command::new("qemu-system-x86_64");
    version
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    match version.status() {
        Ok(_) => Ok(()),
        Err(error) => Err(missing(who, &format!("qemu-system-x86_64: {error}"))),
    }
}

/// Boots a guest that has futae, with the kernel that this release of Debian has.
pub fn boot(who: &str, plan: impl Fn(Plan) -> Plan) -> anyhow::Result<Guest> {
    boot_kernel(who, None, plan)
}

/// As [`boot`], with a certain kernel.
pub fn boot_kernel(
    who: &str,
    kernel: Option<Kernel>,
    plan: impl Fn(Plan) -> Plan,
) -> anyhow::Result<Guest> {
    let futae = program()?;
    let boot = |kernel| {
        let plan = plan(Plan::new(kernel)).file("/bin/futae", &futae);
        match interrupt::watched() {
            Some(stopped) => plan.stopped(stopped).boot(),
            None => plan.boot(),
        }
    };
    let booted = match kernel {
        Some(kernel) => boot(kernel),
        None => match boot(Kernel::Debian61) {
            Err(error) if error.is_missing() => boot(Kernel::Debian612),
            booted => booted,
        },
    };
    booted.map_err(|error| match error.is_missing() {
        true => missing(who, &error.to_string()),
        false => error.into(),
    })
}

fn missing(who: &str, what: &str) -> anyhow::Error {
    anyhow!(
        "{what}; {who} needs QEMU, and Debian's kernel and busybox, which are downloaded and not \
         installed: apt-get update && apt-get install qemu-system-x86 xz-utils binutils"
    )
}

/// Runs a script in a guest; what it prints.
pub fn order(guest: &mut Guest, script: &str) -> anyhow::Result<String> {
    let output = guest.run(script)?;
    if output.status != 0 {
        let (status, said) = (output.status, output.stderr.trim());
        let log = guest.log();
        bail!("in a guest, status {status}: {said}\n{script}\n{log}");
    }
    Ok(output.stdout)
}

/// Starts an agent in a guest, which reports to the guest's port; what it says of errors goes to
/// `/tmp/agent.log` there.
pub fn start_agent(guest: &mut Guest, options: &str) -> anyhow::Result<()> {
    let script = format!(
        "for port in /sys/class/virtio-ports/*; do \
         [ $(cat $port/name) = {PORT} ] && port=/dev/${{port##*/}} && break; done\n\
         futae agent --report $port {options} >/tmp/agent.log 2>&1 &"
    );
    order(guest, &script).map(drop)
}

/// A number of kilobytes in `/proc/meminfo`, in bytes.
pub fn memory(meminfo: &str, name: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let rest = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// What a program needs beside the page cache, in the memory cgroup that bounds it.
const PROGRAM_BYTES: u64 = 8 << 20;

/// Makes a memory cgroup `/sys/fs/cgroup/load` in a guest: what processes in it read has so much page cache.
pub fn bound_page_cache(guest: &mut Guest, bytes: u64) -> anyhow::Result<()> {
    let bytes = bytes + PROGRAM_BYTES;
    let script = format!(
        "mount -t cgroup2 cgroups /sys/fs/cgroup && cd /sys/fs/cgroup && \
         echo +memory >cgroup.subtree_control && mkdir load && echo {bytes} >load/memory.max"
    );
    order(guest, &script).map(drop)
}
