//! The ways in which the host's memory is used, one run each.

use clap::ValueEnum;
use futae_sim::Link;
use serde::Serialize;

/// What is between the guests and their images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// QEMU with `cache=none`; nothing below the guests caches, and the memory of the lower cache lies idle
    Direct,
    /// QEMU with `cache=writeback`; a memory cgroup bounds the host's page cache
    Writeback,
    /// futae with LRU, blind to what the guests evict
    Lru,
    /// futae with an exclusive cache, to which agents in the guests demote
    Exclusive,
    /// QEMU with `cache=none`; the guests have the memory of the lower cache themselves
    Memory,
}

/// How guests reach the disks of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// By QEMU's NBD client; agents write evicted pages to channel disks
    Nbd,
    /// As vhost-user devices; the server reads evicted pages in the guests' memory
    VhostUser,
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nbd => "nbd",
            Self::VhostUser => "vhost-user",
        })
    }
}

/// The order of an exclusive lower cache above which agents report.
const EXCLUSIVE: &str = "exclusive(keep_served=true)";
/// That of a Linux page cache, as the simulator has it.
const LINUX: &str = "linux";

impl Way {
    /// All of them, in the order in which they run.
    pub const ALL: [Self; 5] = [
        Self::Direct,
        Self::Writeback,
        Self::Lru,
        Self::Exclusive,
        Self::Memory,
    ];

    /// As it is typed, and as JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Writeback => "writeback",
            Self::Lru => "lru",
            Self::Exclusive => "exclusive",
            Self::Memory => "memory",
        }
    }

    /// The policy of `futae serve`, if the lower cache is futae's.
    pub fn served_policy(self) -> Option<&'static str> {
        match self {
            Self::Direct | Self::Memory | Self::Writeback => None,
            Self::Lru => Some("lru"),
            Self::Exclusive => Some("exclusive"),
        }
    }

    /// The policy of the lower cache in the simulator, if there is a lower cache.
    pub fn simulated_policy(self) -> Option<&'static str> {
        match self {
            Self::Direct | Self::Memory => None,
            Self::Writeback => Some(LINUX),
            Self::Lru => Some("lru"),
            Self::Exclusive => Some(EXCLUSIVE),
        }
    }

    /// The policy of the guests' page caches in the simulator.
    pub fn simulated_upper(self) -> &'static str {
        LINUX
    }

    /// Whether there is a cache below the guests' page caches.
    pub fn has_lower(self) -> bool {
        self.simulated_policy().is_some()
    }

    /// What crosses from the page caches to the lower cache.
    pub fn link(self) -> Link {
        if self == Self::Exclusive {
            Link::Demote
        } else {
            Link::None
        }
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
