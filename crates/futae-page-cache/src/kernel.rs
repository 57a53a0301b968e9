//! What every loader of eBPF programs needs of the kernel: its description of itself, and why it refuses.

use crate::thin;
use anyhow::Context;
use aya::{Btf, EbpfLoader, Endianness};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Where the kernel describes itself (BTF).
pub const DESCRIPTION: &str = "/sys/kernel/btf/vmlinux";

/// The kernel's types that programs read (`bpf/kernel.h`, where some have a suffix).
pub const TYPES: [&str; 24] = [
    "page",
    "super_block",
    "inode",
    "address_space",
    "file",
    "fdtable",
    "files_struct",
    "kiocb",
    "readahead_control",
    "folio",
    "mm_struct",
    "vm_area_struct",
    "fault_flag",
    "vm_fault",
    "kernfs_node",
    "cgroup",
    "cgroup_subsys_state",
    "mem_cgroup",
    "css_set",
    "task_io_accounting",
    "task_struct",
    "pt_regs",
    "pageflags",
    "cgroup_subsys_id",
];

/// What the kernel says of those names.
///
/// # Errors
///
/// It does not describe itself.
pub fn description(is_needed: impl Fn(&[u8]) -> bool) -> anyhow::Result<Btf> {
    let raw = std::fs::read(DESCRIPTION).context(DESCRIPTION)?;
    let description = match thin::thin(&raw, is_needed) {
        Some(thinned) => {
            drop(raw);
            thinned
        }
        // Of a form that is not known here; the loader may know it.
        None => raw,
    };
    let read = Btf::parse(&description, Endianness::default());
    read.context("it does not describe itself (BTF)")
}

/// What it says of [`TYPES`] and of tracepoints.
///
/// # Errors
///
/// It does not describe itself.
pub fn types(is_tracepoint: impl Fn(&str) -> bool) -> anyhow::Result<Btf> {
    description(|name| {
        let event = name.strip_prefix(b"btf_trace_");
        let event = event.and_then(|event| std::str::from_utf8(event).ok());
        TYPES.iter().any(|known| name == known.as_bytes()) || event.is_some_and(&is_tracepoint)
    })
}

/// A loader of an object. By itself it reads the whole description of the kernel, whatever it is told
/// later; while no more files can be opened, it does not.
#[must_use]
pub fn loader<'a>() -> EbpfLoader<'a> {
    let before = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(0),
        ..before
    };
    // What does not work costs memory, and nothing else.
    let _ = setrlimit(Resource::Nofile, none);
    let loader = EbpfLoader::new();
    let _ = setrlimit(Resource::Nofile, before);
    loader
}

/// Whether this process may load eBPF programs that trace: CAP_SYS_ADMIN, or CAP_BPF and CAP_PERFMON. True where
/// that cannot be read.
#[must_use]
pub fn may_load_bpf() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = field.and_then(|field| u64::from_str_radix(field.trim(), 16).ok());
    effective.is_none_or(can_load_bpf)
}

/// The same of a set of capabilities.
fn can_load_bpf(effective: u64) -> bool {
    const SYS_ADMIN: u32 = 21;
    const PERFMON: u32 = 38;
    const BPF: u32 = 39;
    let has = |capability: u32| effective >> capability & 1 == 1;
    has(SYS_ADMIN) || (has(BPF) && has(PERFMON))
}

/// The kernel's number of a device, of that which `stat` tells.
#[must_use]
pub fn packed_device(device: u64) -> u32 {
    const MINOR_BITS: u32 = 20;
    rustix::fs::major(device) << MINOR_BITS | rustix::fs::minor(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A type that is read and not asked for would not be found in the kernel.
    #[test]
    fn every_type_that_is_read_is_asked_for() {
        let header = include_str!("bpf/kernel.h");
        let begin = header.find("#pragma clang attribute push").expect("there");
        let mut count = 0;
        for line in header[begin..].lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let ["struct" | "enum", name, "{", ..] = words[..] {
                let name = name.split("___").next().expect("a name");
                assert!(TYPES.contains(&name), "{name}");
                count += 1;
            }
        }
        assert!(count > 20, "{count}");
    }

    #[test]
    fn two_sets_of_privileges_may_load() {
        assert!(can_load_bpf(u64::MAX) && can_load_bpf(1 << 21));
        assert!(can_load_bpf(1 << 38 | 1 << 39));
        assert!(!can_load_bpf(0) && !can_load_bpf(1 << 38) && !can_load_bpf(1 << 39));
    }

    #[test]
    fn devices_are_numbered_as_the_kernel_does() {
        assert_eq!(packed_device(rustix::fs::makedev(254, 17)), 254 << 20 | 17);
    }
}
