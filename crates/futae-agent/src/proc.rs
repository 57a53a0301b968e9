//! What `/proc` and `/sys` tell.

use futae_agent_protocol::{
    BootId, Counters, Device, DeviceId, Memory, PAGE_BYTES, PageCache, Pressure, Replacement,
};
use std::collections::HashMap;
use std::fs::read_to_string;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a page of this machine in units of 4 KiB: 1 on x86-64.
fn pages_per_page() -> u64 {
    rustix::param::page_size() as u64 / futae_agent_protocol::PAGE_BYTES
}

/// What cannot be read is empty: every reader here has something to say then. Bytes that are not UTF-8, as in the path of a mount, spoil
/// no other line.
pub(crate) fn text(path: impl AsRef<Path>) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// This boot of this machine.
#[must_use]
pub fn boot_id() -> BootId {
    BootId::parse(&text("/proc/sys/kernel/random/boot_id")).unwrap_or_default()
}

/// The release of its kernel.
#[must_use]
pub fn kernel() -> String {
    text("/proc/sys/kernel/osrelease").trim().to_owned()
}

/// Its host name.
#[must_use]
pub fn host_name() -> String {
    text("/proc/sys/kernel/hostname").trim().to_owned()
}

/// For how long it has been up.
#[must_use]
pub fn uptime_seconds() -> f64 {
    let text = text("/proc/uptime");
    text.split(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0.0)
}

/// Its memory now.
#[must_use]
pub fn memory() -> Memory {
    memory_in(&text("/proc/meminfo"))
}

fn memory_in(text: &str) -> Memory {
    let bytes = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        number.unwrap_or(0).saturating_mul(1024)
    };
    Memory {
        total: bytes("MemTotal"),
        free: bytes("MemFree"),
        available: bytes("MemAvailable"),
        // Files of tmpfs are counted there as well, and cannot be given back.
        cached: bytes("Cached").saturating_sub(bytes("Shmem")),
        buffers: bytes("Buffers"),
    }
}

/// For how long tasks have waited for memory since the boot, if the kernel tells.
#[must_use]
pub fn pressure() -> Option<Pressure> {
    pressure_in(&read_to_string("/proc/pressure/memory").ok()?)
}

fn pressure_in(text: &str) -> Option<Pressure> {
    let total = |kind: &str| {
        let line = text.lines().find(|line| line.starts_with(kind))?;
        line.rsplit_once("total=")?.1.trim().parse().ok()
    };
    Some(Pressure {
        some_us: total("some")?,
        full_us: total("full")?,
    })
}

/// What `/proc/vmstat` has of the page cache since the boot: refaults, pages that came from disks, pages
/// reclaimed, pages dirtied, and faults that waited.
#[must_use]
pub fn vmstat() -> Counters {
    vmstat_in(&text("/proc/vmstat"), pages_per_page())
}

fn vmstat_in(text: &str, scale: u64) -> Counters {
    let numbers: HashMap<&str, u64> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, number)| Some((name, number.parse().ok()?)))
        .collect();
    let of = |name: &str| numbers.get(name).copied().unwrap_or(0);
    let pages = |name: &str| of(name).saturating_mul(scale);
    Counters {
        // In KiB, whatever the page size.
        added: of("pgpgin") / 4,
        refaults: pages("workingset_refault_file"),
        reclaimed: pages("pgsteal_file"),
        dirtied: pages("nr_dirtied"),
        misses: of("pgmajfault"),
        ..Counters::default()
    }
}

/// Refaults of a memory cgroup since it was made, from its directory's `memory.stat`.
#[must_use]
pub fn group_refaults(directory: &Path) -> u64 {
    let stat = text(directory.join("memory.stat"));
    let line = stat
        .lines()
        .find_map(|line| line.strip_prefix("workingset_refault_file "));
    let pages: u64 = line
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0);
    pages.saturating_mul(pages_per_page())
}

/// A block device by the number that the kernel packs into 32 bits.
#[must_use]
pub fn device_id(packed: u32) -> DeviceId {
    DeviceId {
        major: packed >> 20,
        minor: packed & 0xf_ffff,
    }
}

fn parse_id(text: &str) -> Option<DeviceId> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(DeviceId {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

/// The disks of this machine.
#[must_use]
pub fn disks() -> Vec<Device> {
    let Ok(entries) = std::fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    let mut disks: Vec<Device> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let sectors = text(path.join("size"))
                .trim()
                .parse()
                .ok()
                .filter(|&size| size > 0)?;
            let serial = [path.join("serial"), path.join("device/serial")]
                .into_iter()
                .find_map(|path| read_to_string(path).ok());
            Some(Device {
                id: parse_id(&text(path.join("dev")))?,
                name: path.file_name()?.to_string_lossy().into_owned(),
                serial: serial.unwrap_or_default().trim().to_owned(),
                sectors,
            })
        })
        .collect();
    disks.sort_by_key(|disk| disk.id);
    disks.truncate(futae_agent_protocol::Hello::MAX_DEVICES);
    disks
}

/// The disk that a device is or lies on as a partition, and the sector where it begins. `None` for what
/// is neither, such as the device of a network file system.
#[must_use]
pub fn place_on_disk(device: DeviceId) -> Option<(DeviceId, u64)> {
    let path = format!("/sys/dev/block/{device}");
    let path = Path::new(&path);
    if !path.join("partition").exists() {
        return path.exists().then_some((device, 0));
    }
    let start = text(path.join("start")).trim().parse().ok()?;
    Some((parse_id(&text(path.join("../dev")))?, start))
}

/// Numbers of `count` pages of this process from an address on, in the machine's memory.
///
/// # Errors
///
/// If the kernel does not tell them, which takes CAP_SYS_ADMIN.
pub fn page_numbers(address: usize, count: usize) -> io::Result<Vec<u64>> {
    const PATH: &str = "/proc/self/pagemap";
    const PRESENT: u64 = 1 << 63;
    const NUMBER: u64 = (1 << 55) - 1;
    let file = std::fs::File::open(PATH)?;
    let mut bytes = vec![0; 8 * count];
    file.read_exact_at(&mut bytes, 8 * (address as u64 / PAGE_BYTES))?;
    let entries = bytes.chunks_exact(8).map(|entry| {
        let entry = entry
            .first_chunk()
            .map_or(0, |eight| u64::from_ne_bytes(*eight));
        Some(entry & NUMBER).filter(|number| entry & PRESENT != 0 && *number != 0)
    });
    let numbers: Option<Vec<u64>> = entries.collect();
    let hidden = || io::Error::other(format!("{PATH} hides where pages are"));
    numbers.ok_or_else(hidden)
}

/// How the kernel caches pages, on these disks.
pub fn page_cache(disks: &[Device]) -> PageCache {
    let read_ahead = disks.iter().filter_map(|disk| {
        let path = format!("/sys/block/{}/queue/read_ahead_kb", disk.name);
        text(path).trim().parse::<u64>().ok()
    });
    PageCache {
        replacement: replacement(&text("/sys/kernel/mm/lru_gen/enabled")),
        read_ahead_bytes: read_ahead.max().unwrap_or(0).saturating_mul(1024),
        large_folios: large_folios(disks),
    }
}

/// Whether a file system with large folios is mounted from one of these disks.
fn large_folios(disks: &[Device]) -> bool {
    // Without huge pages a kernel has no large folios of files.
    if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return false;
    }
    let (mounts, release) = (text("/proc/self/mountinfo"), kernel());
    let mut devices =
        mounted(&mounts).filter(|(_, file_system)| has_large_folios(file_system, &release));
    devices.any(|(device, _)| {
        let place = place_on_disk(device);
        place.is_some_and(|(disk, _)| disks.iter().any(|one| one.id == disk))
    })
}

/// The devices that are mounted, and the types of their file systems, by `/proc/self/mountinfo`.
fn mounted(mounts: &str) -> impl Iterator<Item = (DeviceId, &str)> {
    mounts.lines().filter_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let device = parse_id(mount.split(' ').nth(2)?)?;
        Some((device, file_system.split(' ').next()?))
    })
}

/// Whether kernels of this release keep what they read ahead on such a file system in large folios.
fn has_large_folios(file_system: &str, release: &str) -> bool {
    let mut numbers = release.split(|sign: char| !sign.is_ascii_digit());
    let mut number = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    let version = (number().unwrap_or(0), number().unwrap_or(0));
    match file_system {
        "xfs" => version >= (5, 18),
        "ext4" => version >= (6, 16),
        _ => false,
    }
}

/// By `/sys/kernel/mm/lru_gen/enabled`: a number in hexadecimal whose lowest bit is the main switch. Kernels without the
/// multi-generational LRU do not have the file.
fn replacement(lru_gen: &str) -> Replacement {
    let digits = lru_gen.trim().trim_start_matches("0x");
    match u64::from_str_radix(digits, 16) {
        Ok(switches) if switches & 1 != 0 => Replacement::Mglru,
        _ => Replacement::Linux,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_folios_are_those_of_file_systems_that_have_them() {
        let mounts = "21 27 0:20 / /proc rw,relatime shared:12 - proc proc rw\n\
            27 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro\n\
            90 27 254:16 / /a\\040b rw - xfs /dev/vdb rw,attr2\n\
            broken\n";
        let device = |major, minor| DeviceId { major, minor };
        let all: Vec<_> = mounted(mounts).collect();
        let wanted = [
            (device(0, 20), "proc"),
            (device(254, 1), "ext4"),
            (device(254, 16), "xfs"),
        ];
        assert_eq!(all, wanted);
        let both = |release| ["xfs", "ext4"].map(|name| has_large_folios(name, release));
        assert_eq!(both("5.15.0-91-generic"), [false, false]);
        assert_eq!(both("6.1.0-41-amd64"), [true, false]);
        assert_eq!(both("6.12.48+deb13-amd64"), [true, false]);
        assert_eq!(both("6.16-rc1"), [true, true]);
        assert_eq!(both("7.0.1"), [true, true]);
        assert!(!has_large_folios("btrfs", "7.0") && !has_large_folios("xfs", "?"));
    }

    #[test]
    fn numbers_are_found_and_missing_ones_are_zero() {
        let memory = memory_in(
            "MemTotal:  1000 kB\nMemFree: 12 kB\nCachedX: 3 kB\nCached: 15 kB\nShmem: 10 kB\n",
        );
        assert_eq!(
            (memory.total, memory.free, memory.cached),
            (1_024_000, 12_288, 5120)
        );
        assert_eq!(memory.available, 0);
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=17\n\
            full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(
            pressure_in(text),
            Some(Pressure {
                some_us: 17,
                full_us: 5
            })
        );
        assert_eq!(pressure_in("some total=x"), None);
        let counters = vmstat_in(
            "pgpgin 400\nworkingset_refault_file 7\nbroken\npgsteal_file x\n",
            1,
        );
        assert_eq!(
            (counters.added, counters.refaults, counters.reclaimed),
            (100, 7, 0)
        );
    }

    #[test]
    fn the_main_switch_says_how_pages_are_replaced() {
        for (text, expected) in [
            ("0x0007\n", Replacement::Mglru),
            ("0x0001\n", Replacement::Mglru),
            ("0x0006\n", Replacement::Linux),
            ("0x0000\n", Replacement::Linux),
            ("", Replacement::Linux),
            ("y", Replacement::Linux),
        ] {
            assert_eq!(replacement(text), expected, "{text:?}");
        }
    }

    #[test]
    fn devices_are_numbered_as_the_kernel_does() {
        let id = device_id((254 << 20) | 17);
        assert_eq!(id.to_string(), "254:17");
        assert_eq!(parse_id("254:17\n"), Some(id));
        assert_eq!(parse_id("254"), None);
    }
}
