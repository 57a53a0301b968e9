//! What the probe counted.

use futae_agent_protocol::Counters;

/// Counts since the probe was set up, and what came through its rings.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// All of the page cache.
    pub total: Counters,
    /// By device, as the kernel packs its number.
    pub devices: Vec<(u32, Counters)>,
    /// By memory cgroup.
    pub groups: Vec<(u64, Counters)>,
    /// By device and inode.
    pub files: Vec<((u32, u64), Counters)>,
    /// Evicted pages whose notice was lost.
    pub notices_lost: u64,
    /// References that were lost.
    pub references_lost: u64,
    /// Times that something was not counted for a memory cgroup, since too many were counted already.
    pub groups_lost: u64,
}
