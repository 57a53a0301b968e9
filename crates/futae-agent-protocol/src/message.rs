//! The messages of an agent.

use crate::Counters;
use crate::device::DeviceId;
use crate::in_place::{RingAnswer, RingOffer};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One thing that an agent says, or a host that answers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Message {
    /// Who speaks.
    Hello(Hello),
    /// What happened in a period.
    Sample(Sample),
    /// What the page cache gave up lately.
    Notices(Notices),
    /// A sample of what was asked for.
    References(References),
    /// Where the guest's memory holds evicted pages.
    Ring(RingOffer),
    /// From the host: whether it reads them there.
    RingAnswer(RingAnswer),
    /// How the guest's kernel caches pages.
    PageCache(PageCache),
}

/// Who speaks: sent first, and again with every period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hello {
    /// The guest's name; at most 255 bytes.
    pub guest: String,
    /// Release of its kernel; at most 255 bytes.
    pub kernel: String,
    /// One boot of the guest.
    pub boot: BootId,
    /// One run of the agent, a random number: frames are numbered within it.
    pub run: u64,
    /// Where the counts come from.
    pub source: Source,
    /// Its disks, at most [`Hello::MAX_DEVICES`].
    pub devices: Vec<Device>,
}

impl Hello {
    /// Disks that one message can name.
    pub const MAX_DEVICES: usize = 64;
}

/// Where the counts come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// eBPF programs on the page cache's tracepoints: Linux 6.12 and later.
    Tracepoints,
    /// eBPF programs where functions of the page cache begin and end: Linux 6.1 and later.
    Functions,
    /// `/proc/vmstat` alone: refaults, evictions and pages read in, nothing else.
    #[default]
    Vmstat,
}

/// How a guest's kernel caches pages: sent after each hello, so that forecasts model the right kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageCache {
    /// How it replaces pages.
    pub replacement: Replacement,
    /// The largest read-ahead of its disks, in bytes; 0 for none.
    pub read_ahead_bytes: u64,
    /// Whether what it reads ahead lies in large folios, on a file system of one of its disks.
    pub large_folios: bool,
}

/// How a kernel replaces pages of the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replacement {
    /// Active and inactive lists.
    #[default]
    Linux,
    /// Multi-generational LRU (`/sys/kernel/mm/lru_gen/enabled`).
    Mglru,
}

/// One boot of a guest, as `/proc/sys/kernel/random/boot_id` names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// Reads 32 hexadecimal digits, with hyphens anywhere.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut digits = text.trim().bytes().filter(|&byte| byte != b'-');
        let mut digit = || (digits.next()? as char).to_digit(16);
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            *byte = u8::try_from(digit()? << 4 | digit()?).ok()?;
        }
        digit().is_none().then_some(Self(bytes))
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let hyphen = if matches!(at, 4 | 6 | 8 | 10) {
                "-"
            } else {
                ""
            };
            write!(formatter, "{hyphen}{byte:02x}")?;
        }
        Ok(())
    }
}

impl From<BootId> for String {
    fn from(boot: BootId) -> Self {
        boot.to_string()
    }
}

impl TryFrom<String> for BootId {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
            .ok_or_else(|| format!("{text:?} is not a boot id: 32 hexadecimal digits"))
    }
}

/// A whole disk of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Its number.
    pub id: DeviceId,
    /// Its name, as in `/sys/block`; at most 255 bytes.
    pub name: String,
    /// What the host wrote on it, empty if nothing; at most 255 bytes.
    pub serial: String,
    /// Its size, in sectors of 512 bytes.
    pub sectors: u64,
}

/// What happened in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// When the period ended, in microseconds since the guest booted.
    pub at_us: u64,
    /// How long the period was, in microseconds.
    pub period_us: u64,
    /// All of the page cache.
    pub total: Counters,
    /// By disk, where anything happened; at most [`Sample::MAX_DEVICES`].
    pub devices: Vec<DeviceSample>,
    /// By memory cgroup, where anything happened; at most [`Sample::MAX_GROUPS`].
    pub groups: Vec<GroupSample>,
    /// The busiest files, if asked for; at most [`Sample::MAX_FILES`].
    pub files: Vec<FileSample>,
    /// The guest's memory when the period ended.
    pub memory: Memory,
    /// How long tasks waited for memory in the period; missing where the kernel does not tell.
    pub pressure: Option<Pressure>,
    /// Evicted pages whose notice was lost, since too many came at once.
    pub notices_lost: u64,
    /// Evicted pages for which no place on a disk was found.
    pub notices_homeless: u64,
    /// Sampled references that were lost, since too many came at once.
    pub references_lost: u64,
}

impl Sample {
    /// Devices that one message can hold.
    pub const MAX_DEVICES: usize = 64;
    /// Memory cgroups that one message can hold.
    pub const MAX_GROUPS: usize = 256;
    /// Files that one message can hold.
    pub const MAX_FILES: usize = 256;
}

/// What happened on one block device: a disk, or a partition if the guest tells them apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceSample {
    /// The device.
    pub device: DeviceId,
    /// Its events.
    pub counters: Counters,
}

/// What happened in one memory cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupSample {
    /// Number of its directory.
    pub id: u64,
    /// Path of its directory, empty if it is gone; at most 255 bytes.
    pub path: String,
    /// Its events.
    pub counters: Counters,
}

/// What happened to one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileSample {
    /// The device of its file system.
    pub device: DeviceId,
    /// Its inode number.
    pub inode: u64,
    /// Its events.
    pub counters: Counters,
}

/// The guest's memory, in bytes (`/proc/meminfo`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// All that the kernel manages; falls when a balloon is filled.
    pub total: u64,
    /// Used for nothing.
    pub free: u64,
    /// What new processes could have without swapping.
    pub available: u64,
    /// Page cache of files, but for those that live in memory alone.
    pub cached: u64,
    /// Page cache of block devices.
    pub buffers: u64,
}

/// How long tasks waited for memory (`/proc/pressure/memory`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pressure {
    /// Microseconds of the period in which some task waited.
    pub some_us: u64,
    /// Microseconds of the period in which all of them did.
    pub full_us: u64,
}

/// Why pages left the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Memory was needed.
    #[default]
    Reclaim,
    /// Somebody asked for it.
    Invalidate,
}

/// Where pages lay that the page cache gave up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Notices {
    /// The whole disk; one of those in [`Hello::devices`].
    pub device: DeviceId,
    /// Why the pages left.
    pub reason: Reason,
    /// Where they lay, in the order in which they left; at most [`Notices::MAX_RANGES`].
    pub ranges: Vec<Range>,
}

impl Notices {
    /// Ranges that one message can hold.
    pub const MAX_RANGES: usize = 8192;
}

/// A range of a disk, in sectors of 512 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Range {
    /// The first sector.
    pub start: u64,
    /// How many.
    pub count: u64,
}

/// A sample of the pages that were read, chosen by the hash of their place: all reads of a page are
/// in it, or none (SHARDS).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct References {
    /// A page is in the sample if the lowest 24 bits of its hash are below this.
    pub threshold: u32,
    /// Hashes of (device, inode, page) in the order of the reads; at most
    /// [`References::MAX_PAGES`].
    pub pages: Vec<u64>,
}

impl References {
    /// Reads that one message can hold.
    pub const MAX_PAGES: usize = 16384;
    /// The threshold at which every page is in the sample.
    pub const ALL: u32 = 1 << 24;
}
